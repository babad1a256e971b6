"""Scores of masks that can be counted by hand."""

import numpy as np
import pytest
import torch

from besselnet.masks import IGNORED, boundary_f1, class_mean, confusion_of_masks, dice, iou


def square(shift=0, size=30, side=10):
    mask = np.zeros((size, size), np.uint8)
    mask[10 : 10 + side, 10 + shift : 10 + shift + side] = 1
    return mask


def test_identical_masks_have_full_scores():
    mask = np.random.default_rng(0).integers(0, 3, (20, 20))
    confusion = confusion_of_masks(mask, mask, 3)
    assert (dice(confusion) == 1).all()
    assert (iou(confusion) == 1).all()
    assert (boundary_f1(mask, mask, 3, tolerance=0) == 1).all()


@pytest.mark.parametrize("shift", range(11))
def test_shifted_squares(shift):
    """Of 10 x 10 pixels, (10 - shift) x 10 are shared."""
    confusion = confusion_of_masks(square(shift), square(), 2)
    assert iou(confusion)[1] == (10 - shift) / (10 + shift)
    assert dice(confusion)[1] == pytest.approx((10 - shift) / 10)


def test_dice_follows_from_iou():
    chance = np.random.default_rng(0)
    confusion = confusion_of_masks(*chance.integers(0, 4, (2, 50, 50)), 4)
    overlap = iou(confusion)
    np.testing.assert_allclose(dice(confusion), 2 * overlap / (1 + overlap))


def test_confusions_add_up_and_count_true_classes_in_rows():
    prediction, truth = np.array([[0, 1], [1, 1]]), np.array([[0, 0], [1, 0]])
    assert confusion_of_masks(prediction, truth, 2).tolist() == [[1, 2], [0, 1]]
    both = confusion_of_masks([prediction, truth], [truth, truth], 2)
    assert (both == [[4, 2], [0, 2]]).all()


def test_ignored_pixels_count_nowhere():
    truth = square()
    wrong = truth.copy()
    truth[:, 15:] = IGNORED
    wrong[:, 15:] = 1 - wrong[:, 15:]
    confusion = confusion_of_masks(wrong, truth, 2)
    assert confusion.sum() == 30 * 15
    assert (iou(confusion) == 1).all()
    assert (boundary_f1(wrong, truth, 2, tolerance=0) == 1).all()


def test_a_class_that_nobody_has_does_not_count():
    confusion = confusion_of_masks(square(), square(), 3)
    assert np.isnan(dice(confusion)[2])
    assert class_mean(dice(confusion)) == 1
    assert np.isnan(boundary_f1(square(), square(), 3)[2])
    assert np.isnan(class_mean([np.nan, np.nan]))


def test_boundaries_within_the_tolerance_are_right():
    for shift, expected in ((0, 1), (2, 1), (3, None), (12, 0)):
        score = boundary_f1(square(shift), square(), 2, tolerance=2)[1]
        assert score == expected or (expected is None and 0.5 < score < 1)
    assert boundary_f1(np.zeros_like(square()), square(), 2)[1] == 0


def test_the_frame_is_no_boundary():
    half = np.zeros((10, 10), int)
    half[:, 5:] = 1
    shifted = np.zeros((10, 10), int)
    shifted[:, 4:] = 1
    # Ten pixels each, all of them one pixel off.
    assert boundary_f1(half, shifted, 2, tolerance=0).tolist() == [0, 0]
    assert boundary_f1(half, shifted, 2, tolerance=1).tolist() == [1, 1]


def test_tensors_are_taken():
    mask = torch.from_numpy(square())
    assert confusion_of_masks(mask, mask, 2).sum() == 900


def test_unfit_masks_are_named():
    with pytest.raises(ValueError, match="prediction has shape"):
        confusion_of_masks(square(), square()[:5], 2)
    with pytest.raises(ValueError, match="truth has classes from 0 to 1"):
        confusion_of_masks(0 * square(), square(), 1)
