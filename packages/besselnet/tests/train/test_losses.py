"""Losses of masks, values and several labels."""

import math

import pytest
import torch
from torch.nn import functional as F

from besselnet.data import IGNORED
from besselnet.train import Regress, Segment
from besselnet.train._losses import LabelLoss, MaskLoss, ValueLoss, soft_dice


def masked_logits():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 4, 6, 5, generator=generator)
    masks = torch.randint(0, 4, (3, 6, 5), generator=generator)
    masks[0, :3] = IGNORED
    masks[2] = IGNORED
    return logits, masks


def test_pixels_without_a_label_count_in_no_loss_and_no_score():
    logits, masks = masked_logits()
    changed = torch.where((masks == IGNORED)[:, None], torch.randn(logits.shape), logits)
    task = Segment("abcd")
    for first, second in (
        (MaskLoss()(logits, masks), MaskLoss()(changed, masks)),
        (task.tally(logits, masks)[None], task.tally(changed, masks)[None]),
    ):
        for one, other in zip(first, second):
            torch.testing.assert_close(one, other)


def test_the_loss_of_masks_is_cross_entropy_of_labelled_pixels_and_dice():
    logits, masks = masked_logits()
    loss, weight = MaskLoss()(logits, masks)
    assert weight == (masks != IGNORED).sum()
    expected = F.cross_entropy(logits, masks, ignore_index=IGNORED) + soft_dice(logits, masks)
    torch.testing.assert_close(loss / weight, expected)


def test_dice_is_0_for_the_right_mask_and_1_for_a_wrong_one():
    masks = torch.tensor([[[0, 0, 1, IGNORED]]])
    logits = 50.0 * F.one_hot(masks.clamp(max=2), 3).movedim(-1, 1)
    assert soft_dice(logits, masks) < 1e-6
    assert soft_dice(logits.roll(1, dims=1), masks) > 1 - 1e-6


def test_masks_without_any_label_leave_the_weights_alone():
    logits = torch.randn(2, 3, 4, 4, requires_grad=True)
    loss, weight = MaskLoss()(logits, torch.full((2, 4, 4), IGNORED))
    (loss / weight).backward()
    assert loss == 0
    assert not logits.grad.any()


@pytest.mark.parametrize(
    ("criterion", "outputs", "labels"),
    [
        (MaskLoss(), torch.rand(2, 3), torch.zeros(2, 4, 4, dtype=torch.int64)),
        (MaskLoss(), torch.rand(2, 3, 2, 2), torch.zeros(2, 4, 4, dtype=torch.int64)),
        (ValueLoss(torch.zeros(3), torch.ones(3)), torch.rand(2, 1), torch.zeros(2, 3)),
        (LabelLoss(), torch.rand(2, 1), torch.zeros(2, 3)),
    ],
)
def test_outputs_of_another_shape_are_refused(criterion, outputs, labels):
    with pytest.raises(ValueError, match="the network returns outputs"):
        criterion(outputs, labels)


def test_balanced_weights_count_labelled_pixels():
    logits, masks = masked_logits()
    counts = torch.bincount(masks[masks != IGNORED])
    inverse = tuple((counts.sum() / (4 * counts)).tolist())
    found = MaskLoss("balanced", labels=masks.to(torch.uint8))(logits, masks)
    for one, other in zip(found, MaskLoss(inverse)(logits, masks)):
        torch.testing.assert_close(one, other)


def test_equal_values_have_a_deviation_of_one():
    task = Regress.of_values(["a"], torch.full((5, 1), 7.0))
    assert task.deviation.tolist() == [1.0]
    assert math.isfinite(task.score_of(task.tally(torch.zeros(5, 1), torch.full((5, 1), 7.0)), 5))


def test_smoothed_labels_lie_between_no_and_yes():
    logits, labels = torch.randn(6, 3), (torch.randn(6, 3) > 0).float()
    loss, weight = LabelLoss(0.2)(logits, labels)
    expected = F.binary_cross_entropy_with_logits(logits, 0.1 + 0.8 * labels)
    torch.testing.assert_close(loss / weight, expected)
