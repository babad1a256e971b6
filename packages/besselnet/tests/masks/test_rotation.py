"""Masks of rotated images, rotated back."""

import numpy as np
import pytest
import torch

from besselnet.masks import IGNORED, mask_agreement
from masks.networks import equivariant, plain


@pytest.mark.parametrize("border", ["disc", "reflect", "black"])
@pytest.mark.parametrize("size", [(32, 32), (24, 41)])
def test_quarter_turns_of_an_equivariant_network_agree_in_every_pixel(border, size):
    images = torch.rand(3, 1, *size, generator=torch.Generator().manual_seed(0))
    agreement = mask_agreement(equivariant(), images, 4, border=border).agreement
    assert agreement.shape == (4, 3)
    assert (agreement == 1).all()
    plainly = mask_agreement(plain(), images, 4, border=border).agreement
    assert (plainly[0] == 1).all()
    assert plainly[1:].max() < 0.9


def test_dice_of_each_angle_is_that_of_the_true_masks():
    images = torch.rand(2, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    model = equivariant()
    with torch.no_grad():
        truth = model(images).argmax(1).to(torch.uint8)
    found = mask_agreement(model, [(images, truth)], 4, border="reflect")
    assert (found.dice == 1).all()
    # The classes of the middle of the image, moved by one: all wrong.
    wrong = mask_agreement(model, [(images, (truth + 1) % 3)], 4, border="reflect")
    assert (wrong.dice == 0).all()
    assert (wrong.agreement == 1).all()


def test_pixels_that_some_angle_does_not_see_and_ignored_ones_do_not_count():
    images = torch.rand(2, 1, 32, 32)
    truth = torch.zeros(2, 32, 32, dtype=torch.uint8)
    truth[:, 16:] = IGNORED
    found = mask_agreement(equivariant(), [(images[:1], truth[:1]), (images[1:], truth[1:])], 2)
    y, x = np.mgrid[:32, :32] - 15.5
    seen = np.count_nonzero((np.hypot(x, y) <= 16)[:16])
    assert found.upright[0].sum() == found.truth[1].sum() == 2 * seen


def test_the_report_is_json_and_names_the_classes():
    images = torch.rand(1, 1, 16, 16)
    report = mask_agreement(equivariant(), images, 4).to_dict(("a", "b", "c"))
    assert report["agreement"] == report["worst_agreement"] == 1
    assert report["agreement_by_class"].keys() == {"a", "b", "c"}
    assert report["angles"] == [0, 90, 180, 270]
    assert "dice" not in report


def test_no_images_and_iterators_are_refused():
    with pytest.raises(ValueError, match="batches is empty"):
        mask_agreement(equivariant(), [], border="reflect")
    with pytest.raises(ValueError, match="must be readable twice"):
        mask_agreement(equivariant(), iter([]))
