"""Corruptions: images stay images, severity grows, the seed decides."""

import pytest
import torch

from besselnet.robust import CORRUPTIONS, SEVERITIES, corrupt
from besselnet.robust._corruptions import gaussian_blur
from robust.patterns import pattern_images

NAMES = list(CORRUPTIONS)


def colour_images(count: int = 24, side: int = 24) -> torch.Tensor:
    """Smooth colour images with some detail."""
    grey = pattern_images(3 * count, 3, side)[0]
    return (2 * gaussian_blur(grey, 0.7) - 0.4).clamp(0, 1).view(count, 3, side, side)


@pytest.mark.parametrize("name", NAMES)
def test_the_change_grows_with_severity(name):
    images = colour_images()
    changes = [
        (corrupt(images, name, severity, 1) - images).square().mean().item()
        for severity in range(1, SEVERITIES + 1)
    ]
    # Patterns that repeat come back to themselves when they are moved or rotated far.
    last = 3 if name in ("rotation", "shift", "scale") else SEVERITIES
    assert changes[0] > 0
    assert changes[:last] == sorted(changes[:last])
    assert changes[-1] > changes[0]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("channels", [1, 2, 3])
def test_images_stay_images(name, channels):
    images = colour_images()[:, :1].expand(-1, channels, -1, -1)[..., :20]
    kept = images.clone()
    for severity in (1, SEVERITIES):
        found = corrupt(images, name, severity)
        assert found.shape == images.shape
        assert found.dtype == images.dtype
        assert found.min() >= 0
        assert found.max() <= 1
    assert torch.equal(images, kept)
    assert corrupt(images[:0], name, 1).shape == images[:0].shape


@pytest.mark.parametrize("name", NAMES)
def test_the_seed_decides(name):
    images = colour_images()
    first, again, other = (corrupt(images, name, 3, seed) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    # These are not random.
    assert torch.equal(first, other) == (name in ("blur", "contrast", "brightness", "jpeg"))


def test_noise_has_the_strength_it_says():
    images = torch.full((50, 1, 20, 20), 0.5)
    noise = corrupt(images, "gaussian_noise", 1) - images
    assert noise.std().item() == pytest.approx(CORRUPTIONS["gaussian_noise"].strengths[0], rel=0.02)
    peppered = corrupt(images.expand(-1, 3, -1, -1), "salt_and_pepper", 5)
    changed = peppered != 0.5
    assert changed[:, 0].float().mean().item() == pytest.approx(0.2, abs=0.01)
    assert torch.equal(changed[:, 0], changed[:, 1])
    assert ((peppered == 0) | (peppered == 1))[changed].all()


def test_a_blurred_point_is_a_gaussian():
    point = torch.zeros(1, 1, 41, 41)
    point[..., 20, 20] = 1
    blurred = gaussian_blur(point, 2.0)[0, 0].double()
    places = torch.arange(41, dtype=torch.float64) - 20
    assert blurred.sum().item() == pytest.approx(1, abs=1e-5)
    for axis in (0, 1):
        assert (blurred.sum(axis) * places**2).sum().item() == pytest.approx(4, rel=0.01)


def test_a_moved_image_is_moved_by_its_share():
    # A smooth hill in the middle: its centre of mass says where it went.
    side = 40
    axis = torch.arange(side) - (side - 1) / 2
    hill = torch.exp(-(axis**2 + axis[:, None] ** 2) / 18)[None, None].expand(8, 1, side, side)
    moved = corrupt(hill, "shift", 3)[:, 0]
    x, y = ((moved * a).sum((1, 2)) / moved.sum((1, 2)) for a in (axis, axis[:, None]))
    distance = CORRUPTIONS["shift"].strengths[2] * side
    torch.testing.assert_close(torch.hypot(x, y), torch.full((8,), distance), rtol=0.01, atol=0)
    grown = corrupt(hill, "scale", 3)[:, 0].sum((1, 2)) / hill[0].sum()
    factor = CORRUPTIONS["scale"].strengths[2] ** 2
    for ratio in grown.tolist():
        assert min(abs(ratio / factor - 1), abs(ratio * factor - 1)) < 0.01


def test_the_border_is_what_was_asked_for():
    white = torch.ones(4, 1, 16, 16)
    assert corrupt(white, "rotation", 2).min() == 0
    assert corrupt(white, "rotation", 2, border="reflect").min() > 0.999


@pytest.mark.parametrize(
    ("name", "severity", "seed", "about"),
    [
        ("fog", 1, 0, "name="),
        ("blur", 0, 0, "severity="),
        ("blur", 6, 0, "severity="),
        ("blur", 1, -1, "seed="),
    ],
)
def test_mistakes_are_named(name, severity, seed, about):
    with pytest.raises(ValueError, match=about):
        corrupt(colour_images(), name, severity, seed)
