"""Labels that are no classes in batches; masks that follow their images; patches of both."""

import math

import pytest
import torch

from besselnet.data import IGNORED, Batches, ImageSet, make_augmentation
from besselnet.data._patches import classes_in, draw_numbers, place_patch

MOVES = ("rotate", "reflect", "scale", "stretch", "shift", "elastic")
ALL = (*MOVES, "brightness", "contrast", "colour")


def discs(count=6, size=32, seed=0):
    """Images that show their masks: soft discs of class 1 on class 0, brighter than a half inside."""
    generator = torch.Generator().manual_seed(seed)
    at = torch.arange(size)
    centres = torch.rand(count, 2, generator=generator) * (size - 16) + 8
    y, x = centres[:, :1, None], centres[:, 1:, None]
    distance = ((at[None, :, None] - y) ** 2 + (at[None, None, :] - x) ** 2).sqrt()
    images = (0.5 + (6 - distance) / 16).clamp(0, 1)[:, None]
    return ImageSet(images, (images[:, 0] > 0.5).to(torch.uint8), ("ground", "disc"))


def spots(size=(40, 50)):
    """Images whose pixels tell their place, with a rare class 2 and a margin without labels."""
    height, width = size
    place = torch.arange(height * width).view(1, 1, height, width) / (height * width)
    mask = torch.zeros(1, height, width, dtype=torch.uint8)
    mask[:, :, 20:] = 1
    mask[:, 30, 30] = 2
    mask[:, :6] = IGNORED
    return ImageSet(place.repeat(3, 1, 1, 1), mask.repeat(3, 1, 1), ("a", "b", "rare"))


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (torch.tensor([2, 0, 1]), torch.int64),
        (torch.randint(0, 3, (3, 8, 8), dtype=torch.uint8), torch.int64),
        (torch.randn(3, 3), torch.float32),
        (torch.tensor([[True, False, True]] * 3), torch.float32),
    ],
)
def test_labels_of_every_kind_keep_their_values(labels, expected):
    batches = Batches(ImageSet(torch.rand(3, 1, 8, 8), labels, ("a", "b", "c")), 2)
    found = torch.cat([part for _, part in batches])
    assert found.dtype == expected
    assert torch.equal(found, labels.to(expected))


@pytest.mark.parametrize("border", ["zeros", "reflect"])
@pytest.mark.parametrize("names", [*((name,) for name in MOVES), ALL])
def test_masks_move_with_their_images(names, border):
    # Tone moves the level of the edge: only pixels that are far from it are compared.
    images = discs()
    augment = make_augmentation(names, "bilinear", border)
    moves = make_augmentation(names[: len(MOVES)], "bilinear", border)
    for epoch in range(3):
        batches = Batches(images, 6, augment=augment, seed=4)
        batches.set_epoch(epoch)
        shown, masks = batches[0]
        assert shown.shape[2:] == masks.shape[1:]
        draws = augment.draw(6, batches._generator(epoch, 0))
        moved = moves.apply(images.images, draws[: len(MOVES)])[:, 0]
        inside, outside = moved > 0.55, (moved < 0.45) & (masks != IGNORED)
        assert (masks[inside] == 1).all()
        assert (masks[outside] == 0).all()
        assert inside.any()
        assert (masks == IGNORED).any() <= (border == "zeros")


def test_outside_the_frame_nothing_is_labelled():
    images = ImageSet(torch.ones(1, 1, 21, 21), torch.zeros(1, 21, 21, dtype=torch.uint8), ("a",))
    rotate = make_augmentation(["rotate"], "nearest", "zeros")
    shown = rotate.apply(images.images, (torch.tensor([45.0]),))
    masks = rotate.apply_masks(images.labels, (torch.tensor([45.0]),))
    assert torch.equal(masks == IGNORED, shown[:, 0] == 0)
    assert (masks == IGNORED).any()


@pytest.mark.parametrize("quarters", [1, 2, 3])
@pytest.mark.parametrize("size", [8, 9])
def test_quarter_turns_of_masks_are_exact(quarters, size):
    masks = torch.randint(0, 200, (2, size, size), dtype=torch.uint8)
    rotate = make_augmentation(["rotate"])
    moved = rotate.apply_masks(masks, (torch.full((2,), 90.0 * quarters),))
    assert torch.equal(moved, masks.rot90(quarters, (1, 2)))


def test_erased_pixels_keep_their_labels():
    masks = discs().labels
    erase = make_augmentation(["erase"])
    draws = erase.draw(len(masks), torch.Generator().manual_seed(0))
    assert torch.equal(erase.apply_masks(masks, draws), masks)


def test_patches_are_parts_of_images_and_masks_at_one_place():
    images = spots()
    batches = Batches(images, 4, shuffle=True, seed=1, patch=(16, 12), patches_per_image=5)
    assert len(batches) == math.ceil(15 / 4)
    drawn = torch.cat([batches.indices(i) for i in range(len(batches))])
    assert torch.bincount(drawn).tolist() == [5, 5, 5]
    for shown, masks in batches:
        assert shown.shape[2:] == masks.shape[1:] == (16, 12)
        for patch, mask in zip(shown[:, 0], masks):
            top, left = divmod(round(patch[0, 0].item() * 2000), 50)
            assert torch.equal(patch, images.images[0, 0, top : top + 16, left : left + 12])
            assert torch.equal(mask, images.labels[0, top : top + 16, left : left + 12].long())


def test_half_of_the_patches_are_drawn_by_class():
    images = spots()
    numbers = draw_numbers(600, torch.Generator().manual_seed(0))
    present = classes_in(images.labels)[0]
    assert present.nonzero()[:, 0].tolist() == [0, 1, 2]
    rare, labelled = 0, []
    for drawn in numbers:
        top, left = place_patch(images.labels[0], present, (9, 9), drawn)
        assert 0 <= top <= 31
        assert 0 <= left <= 41
        seen = images.labels[0, top : top + 9, left : left + 9]
        rare += bool((seen == 2).any())
        labelled.append((seen != IGNORED).float().mean().item())
    # A sixth is drawn for it; elsewhere, 81 of the 1 344 places show it.
    expected = 1 / 6 + 81 / 1344 * 5 / 6
    assert abs(rare / 600 - expected) < 4 * math.sqrt(expected / 600)
    assert min(labelled) >= 0.5


def test_a_mask_with_few_labels_still_gives_the_best_patch():
    mask = torch.full((20, 20), IGNORED, dtype=torch.uint8)
    mask[3, 4] = 0
    present = classes_in(mask[None])[0]
    numbers = draw_numbers(1, torch.Generator().manual_seed(0))[0]
    numbers[0] = 0  # by class
    top, left = place_patch(mask, present, (5, 5), numbers)
    assert (top, left) == (1, 2)
    # By class, and no class is there: anywhere.
    top, left = place_patch(mask.fill_(IGNORED), present & False, (5, 5), numbers)
    assert (top, left) == tuple((numbers[2:4] * 16).int().tolist())


def test_patches_are_functions_of_seed_epoch_and_batch():
    first, again = (
        Batches(
            spots(), 4, shuffle=True, seed=3, patch=(8, 8), augment=make_augmentation(["rotate"])
        )
        for _ in range(2)
    )
    again.set_epoch(5)
    assert not torch.equal(first[0][0], again[0][0])
    first.set_epoch(5)
    for one, other in zip(first[0], again[0]):
        assert torch.equal(one, other)


@pytest.mark.parametrize("world_size", [2, 3])
def test_shares_of_processes_are_the_patches_of_one(world_size):
    options = {"shuffle": True, "seed": 2, "patch": (10, 10), "patches_per_image": 4}
    options["augment"] = make_augmentation(["rotate", "contrast"], border="reflect")
    alone = Batches(spots(), 6, **options)
    for rank in range(world_size):
        share = Batches(spots(), 6, rank=rank, world_size=world_size, **options)
        for (images, masks), (part, part_masks) in zip(alone, share):
            torch.testing.assert_close(part, images[rank::world_size], atol=1e-5, rtol=0)
            assert torch.equal(part_masks, masks[rank::world_size])


def test_rotated_patches_show_what_lies_beside_them():
    # A patch in the middle of a large image needs nothing from outside of that image.
    mask = torch.zeros(1, 64, 64, dtype=torch.uint8)
    images = ImageSet(torch.ones(1, 1, 64, 64), mask, ("a",))
    augment = make_augmentation(["rotate"], "bilinear", "zeros")
    for epoch in range(5):
        batches = Batches(images, 1, augment=augment, patch=(17, 11))
        batches.set_epoch(epoch)
        shown, masks = batches[0]
        assert shown.min() > 0.999
        assert not masks.any()


def test_images_that_fit_are_not_cut():
    batches = Batches(discs(size=32), 3, patch=(32, 40), patches_per_image=7)
    assert len(batches) == 2
    assert batches[0][0].shape[2:] == (32, 32)
    assert Batches(discs(size=32), 3, patch=(16, 40))[0][0].shape[2:] == (16, 32)


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        (torch.zeros(3, dtype=torch.int64), {"patch": (8, 8)}, "without masks"),
        (torch.zeros(3, 8, 8, dtype=torch.uint8), {"patch": (0, 8)}, "patch=0"),
        (torch.zeros(3, 8, 8, dtype=torch.uint8), {"patches_per_image": 0}, "patches_per_image"),
        (torch.zeros(3, 1), {"balance": True, "shuffle": True}, "balance=True"),
    ],
)
def test_wrong_arguments_are_named(labels, options, message):
    images = ImageSet(torch.rand(3, 1, 8, 8), labels, ("a",))
    with pytest.raises(ValueError, match=message):
        Batches(images, 2, **options)
