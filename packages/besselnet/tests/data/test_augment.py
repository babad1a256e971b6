"""Augmentations: what each draws, what it does with it, and that changes of geometry are one sampling."""

import math

import pytest
import torch

from besselnet.data import (
    Batches,
    Brightness,
    Colour,
    Compose,
    Contrast,
    Elastic,
    Erase,
    ImageSet,
    Reflect,
    Rotate,
    Scale,
    Shift,
    Stretch,
    make_augmentation,
)
from besselnet.functional import rotate_images, rotation_matrices, warp_images

NAMES = (
    "rotate",
    "reflect",
    "scale",
    "stretch",
    "shift",
    "elastic",
    "brightness",
    "contrast",
    "colour",
    "erase",
)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def noise(*shape):
    return torch.rand(*shape, generator=seeded())


def smooth(count=1, size=33):
    """A soft blob off the centre, zero at the frame."""
    at = torch.arange(size) - (size - 1) / 2
    blob = torch.exp(-((at - 1) ** 2 + (at[:, None] + 3) ** 2) / 12)
    return blob.expand(count, 1, size, size).contiguous()


def test_rotate_turns_by_what_it_drew():
    images, turn = noise(6, 2, 9, 9), Rotate("bilinear", degrees=30)
    angles = turn.draw(6, seeded(1))
    assert (angles.abs() <= 30).all()
    assert angles.std() > 5
    assert torch.equal(turn.apply(images, angles), rotate_images(images, angles, "bilinear"))


def test_reflect_mirrors_about_half():
    images = torch.arange(1000.0)[:, None, None, None] / 1000 * torch.tensor([0.0, 1.0])
    drawn = Reflect().draw(1000, seeded())
    changed = Reflect().apply(images, drawn)
    assert torch.equal(changed[drawn], images[drawn].flip(-1))
    assert torch.equal(changed[~drawn], images[~drawn])
    assert 450 < int(drawn.sum()) < 550


@pytest.mark.parametrize("kind", [Scale, Brightness, Contrast, Colour])
def test_factors_are_log_uniform(kind):
    logs = kind(factor=1.5).draw(2000, seeded()).log() / math.log(1.5)
    assert logs.abs().max() <= 1
    assert logs.mean().abs() < 0.05
    assert abs(logs.std() - 3**-0.5) < 0.02


def test_scale_magnifies_areas():
    images, factors = smooth(3), torch.tensor([0.8, 1.0, 1.2])
    found = Scale().apply(images, factors).sum((1, 2, 3)) / images.sum((1, 2, 3))
    torch.testing.assert_close(found, factors**2, rtol=1e-3, atol=0)


def test_stretch_makes_ellipses_of_circles():
    """Second moments along and across the axis change by the square of the factor; areas stay."""
    at = torch.arange(41) - 20.0
    images = torch.exp(-(at**2 + at[:, None] ** 2) / 18).expand(3, 1, 41, 41)
    draws = torch.tensor([[0.0, 1.3], [90.0, 1.3], [45.0, 1.3]])
    found = Stretch().apply(images, draws)[:, 0]
    torch.testing.assert_close(found.sum((1, 2)), images.sum((1, 2, 3)), rtol=1e-3, atol=0)
    along_x = (found * at**2).sum((1, 2)) / found.sum((1, 2))
    along_y = (found * at[:, None] ** 2).sum((1, 2)) / found.sum((1, 2))
    both = (found * at * at[:, None]).sum((1, 2)) / found.sum((1, 2))
    square = 1.3**2
    torch.testing.assert_close(
        along_x[:2], torch.tensor([9 * square, 9 / square]), rtol=1e-2, atol=0
    )
    torch.testing.assert_close(
        along_y[:2], torch.tensor([9 / square, 9 * square]), rtol=1e-2, atol=0
    )
    torch.testing.assert_close(along_x[2], along_y[2])
    torch.testing.assert_close(
        both.abs(), torch.tensor([0, 0, 4.5 * (square - 1 / square)]), rtol=1e-2, atol=1e-2
    )


def test_stretch_draws_every_direction():
    degrees, factors = Stretch(factor=1.5).draw(2000, seeded()).unbind(1)
    assert abs(degrees.mean() - 90) < 4
    assert degrees.min() >= 0
    assert degrees.max() <= 180
    logs = factors.log() / math.log(1.5)
    assert abs(logs.mean() - 0.5) < 0.02
    assert logs.min() >= 0
    assert logs.max() <= 1


def test_shift_moves_by_shares_of_the_sides():
    images, shift = noise(2, 3, 20, 40), Shift(share=0.2)
    drawn = shift.draw(500, seeded())
    assert drawn.shape == (500, 2)
    assert drawn.abs().max() <= 0.2
    assert drawn.std(0).min() > 0.1
    # Four columns to the right and one row up.
    moved = shift.apply(images, torch.tensor([[0.1, -0.05]] * 2))
    torch.testing.assert_close(moved[..., :-1, 4:], images[..., 1:, :-4], atol=1e-5, rtol=0)
    assert moved[..., -1, :].abs().max() < 1e-5


def test_equal_vectors_of_a_grid_shift():
    """Bent by a grid whose vectors are all the same, an image is shifted by it."""
    images, vector = noise(2, 3, 20, 20), torch.tensor([-0.1, 0.05])
    vectors = vector[None, :, None, None].expand(2, 2, 5, 5)
    expected = Shift(share=0.2).apply(images, -vector.expand(2, 2))
    torch.testing.assert_close(Elastic().apply(images, vectors), expected, atol=1e-5, rtol=0)


def test_elastic_passes_through_its_vectors():
    elastic = Elastic(share=0.05, grid=4)
    vectors = elastic.draw(500, seeded())
    assert abs(vectors.std() - 0.05) < 0.002
    moved = elastic.displacements(vectors, 31, 31)
    # 31 pixels have 30 steps: a vector for every tenth pixel.
    torch.testing.assert_close(moved[..., ::10, ::10], vectors * 31, atol=1e-4, rtol=1e-4)
    # Neighbours move nearly alike.
    assert moved.diff(dim=-1).abs().max() < 0.2 * moved.abs().max()


def test_elastic_joins_the_sampling_of_affine_changes():
    images, steps = noise(4, 1, 16, 16), Compose([Rotate(), Elastic()])
    degrees, vectors = steps.draw(4, seeded())
    matrices, bent = rotation_matrices(degrees), Elastic().displacements(vectors, 16, 16)
    expected = warp_images(images, matrices, displacements=bent).clamp(0, 1)
    assert torch.equal(steps.apply(images, (degrees, vectors)), expected)


def test_brightness_contrast_and_colour_are_linear_in_the_range():
    images = 0.4 + 0.2 * noise(3, 3, 6, 6)
    factors = torch.tensor([0.9, 1.0, 1.2])
    wide = factors[:, None, None, None]
    torch.testing.assert_close(Brightness().apply(images, factors), images * wide)
    mean = images.mean((1, 2, 3), keepdim=True)
    torch.testing.assert_close(Contrast().apply(images, factors), mean + wide * (images - mean))
    each = Colour().draw(3, seeded())
    changed = Colour().apply(images, each) / images
    torch.testing.assert_close(changed, each[:, :3, None, None].expand_as(changed))
    assert torch.equal(Colour().apply(images[:, :1], each), images[:, :1])


def test_colour_takes_any_number_of_channels():
    images = torch.full((2, 100, 2, 2), 0.5)
    changed = Colour().apply(images, Colour().draw(2, seeded()))
    assert changed.shape == images.shape


def test_erase_fills_a_disc_with_the_mean():
    images, erase = noise(200, 2, 40, 40), Erase(share=0.2)
    drawn = erase.draw(200, seeded())
    changed = erase.apply(images, drawn)
    hidden = (changed != images).any(1)
    mean = images.mean((2, 3))[:, :, None, None].expand_as(images)
    assert torch.equal(
        changed[hidden[:, None].expand_as(images)], mean[hidden[:, None].expand_as(images)]
    )
    radius = drawn[:, 2] * 40
    assert radius.max() <= 8
    assert radius.max() > 7
    inside = ((drawn[:, :2] * 40 - 20).abs() < 20 - radius[:, None]).all(1)
    area = torch.pi * radius**2
    # Pixels whose centres lie in a disc: the area, up to those along its edge.
    assert ((hidden.sum((1, 2)) - area)[inside].abs() <= 2 + 2 * radius[inside]).all()


@pytest.mark.parametrize("border", ["zeros", "reflect"])
@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "cubic"])
@pytest.mark.parametrize("channels", [1, 3, 5])
def test_results_stay_in_range(interpolation, border, channels):
    images = (noise(8, channels, 28, 28) > 0.5).float()
    augment = make_augmentation(NAMES, interpolation, border)
    changed = augment.apply(images, augment.draw(8, seeded(1)))
    assert changed.shape == images.shape
    assert changed.min() >= 0
    assert changed.max() <= 1
    assert not torch.equal(changed, images)


def test_affine_changes_in_a_row_are_one_sampling(monkeypatch):
    """Composed, they agree with one after the other on an image that survives two samplings."""
    images = smooth(16)
    steps = [Rotate(), Scale(), Stretch(), Reflect(), Shift()]
    draws = Compose(steps).draw(16, seeded(3))
    expected = images
    for step, drawn in zip(steps, draws):
        expected = step.apply(expected, drawn)
    calls = []

    def counted(*arguments):
        calls.append(arguments)
        return warp(*arguments)

    from besselnet.data import _augment

    warp = _augment.warp_images
    monkeypatch.setattr(_augment, "warp_images", counted)
    found = Compose(steps).apply(images, draws)
    assert len(calls) == 1
    torch.testing.assert_close(found, expected, atol=2e-3, rtol=0)
    # Something between them, or another border, divides the row.
    for steps, times in [
        ([Rotate(), Brightness(), Scale(), Shift()], 2),
        ([Rotate(), Scale(border="reflect"), Reflect()], 2),
        ([Rotate(), Elastic(), Shift()], 1),
        ([Reflect(), Reflect()], 0),
    ]:
        calls.clear()
        Compose(steps).apply(images, Compose(steps).draw(16, seeded()))
        assert len(calls) == times


def test_quarter_turns_and_reflections_compose_exactly():
    images = noise(4, 2, 12, 12)
    turns, mirrored = torch.tensor([0.0, 90.0, 180.0, 270.0]), torch.tensor([True, False] * 2)
    found = Compose([Rotate(), Reflect()]).apply(images, (turns, mirrored))
    for number, image in enumerate(images):
        turned = torch.rot90(image, number, (1, 2))
        expected = turned.flip(-1) if mirrored[number] else turned
        torch.testing.assert_close(found[number], expected, atol=3e-5, rtol=0)


def test_processes_share_what_all_augmentations_draw():
    data = ImageSet(noise(24, 3, 8, 8), torch.arange(24) % 2, ("a", "b"))
    options = {"shuffle": True, "augment": make_augmentation(NAMES, border="reflect")}
    alone = Batches(data, 8, **options)
    for rank in range(2):
        share = Batches(data, 8, rank=rank, world_size=2, **options)
        for index in range(len(alone)):
            torch.testing.assert_close(share[index][0], alone[index][0][rank::2], atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Rotate("lanczos"),
        lambda: Rotate(degrees=0),
        lambda: Reflect(0),
        lambda: Scale(factor=1),
        lambda: Scale(border="wrap"),
        lambda: Stretch(factor=1),
        lambda: Shift(share=2),
        lambda: Elastic(share=0),
        lambda: Elastic(grid=1),
        lambda: Brightness(0.9),
        lambda: Erase(0),
        lambda: make_augmentation(["spin"]),
        lambda: make_augmentation([], border="wrap"),
        lambda: make_augmentation([], "lanczos"),
    ],
)
def test_wrong_augmentations_are_refused(make):
    with pytest.raises(ValueError, match="must be"):
        make()
