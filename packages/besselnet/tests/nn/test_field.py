"""The field of view: what lies outside it, and constants, change nothing; symmetries are exact."""

import pytest
import torch

from besselnet.functional import rotate_images, soft_disc
from besselnet.nn import FieldOfView
from tolerances import FLOAT64, assert_same


def images(*shape):
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("size", [8, 9, 28])
def test_corners_do_not_matter(size):
    x = images(2, 3, size, size)
    hidden = soft_disc(size, size) == 0
    changed = torch.where(hidden, torch.rand_like(x), x)
    assert torch.equal(FieldOfView()(changed), FieldOfView()(x))
    assert not FieldOfView()(x)[..., hidden].any()


@pytest.mark.parametrize("field", ["disc", "square"])
def test_constants_do_not_matter(field):
    x, view = images(2, 3, 12, 15), FieldOfView(field)
    offset = torch.tensor([0.3, -0.2, 5.0], dtype=torch.float64)[:, None, None]
    assert_same(view(x + offset), view(x), FLOAT64.rounding)
    assert not view(offset.expand(1, 3, 12, 15)).abs().gt(1e-12).any()


@pytest.mark.parametrize("field", ["disc", "square"])
@pytest.mark.parametrize("size", [2, 9, 12])
def test_quarter_turns_exact(field, size):
    x, view = images(2, 3, size, size), FieldOfView(field)
    assert_same(view(x.rot90(1, (2, 3))), view(x).rot90(1, (2, 3)), FLOAT64.rounding)


def test_a_square_keeps_what_stands_on_a_uniform_ground():
    object_ = images(1, 2, 16, 16) * soft_disc(16, 16)
    ground = torch.tensor([0.7, 0.1], dtype=torch.float64)[:, None, None]
    shown = FieldOfView("square")(object_ + ground)
    # The rim of the disc counts as ground by what it has faded.
    assert_same(shown[0, 1] - shown[0, 0], object_[0, 1] - object_[0, 0], 0.1)
    assert FieldOfView("square")(torch.zeros(1, 1, 8, 8)).abs().max() == 0


def test_black_corners_of_a_rotated_photograph_are_not_seen():
    x = images(1, 1, 33, 33)
    black, mirrored = (rotate_images(x, 30.0, border=border) for border in ("zeros", "reflect"))
    assert (black - mirrored).abs().max() > 0.1
    # At the rim the interpolation reads a pixel or two beyond the frame.
    view = FieldOfView(fade=6.0)
    assert (view(black) - view(mirrored)).abs().max() < 0.1


@pytest.mark.parametrize("settings", [{"field": "ring"}, {"fade": -1.0}])
def test_mistakes_are_named(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        FieldOfView(**settings)
