"""Upsampling on a centred grid: exact symmetries on every size, and what interpolation keeps."""

import pytest
import torch

from besselnet.functional import blur_pool2d, upsample2d, upsample_centred, upsample_weights
from besselnet.nn import Upsample2d
from tolerances import FLOAT64, assert_same

SIZES = [(1, 1), (1, 2), (2, 2), (3, 3), (8, 8), (9, 9), (8, 9), (15, 6), (6, 11)]


def coarse(height, width):
    shape = (2, 3, (height + 1) // 2, (width + 1) // 2)
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("size", SIZES)
def test_quarter_turns_exact_and_reflections_exact(size):
    x = coarse(*size)
    y = upsample2d(x, size)
    assert y.shape[2:] == size
    assert_same(upsample2d(x.rot90(1, (2, 3)), size[::-1]), y.rot90(1, (2, 3)), FLOAT64.rounding)
    assert_same(upsample2d(x.flip(3), size), y.flip(3), FLOAT64.rounding)


@pytest.mark.parametrize("size", SIZES)
def test_the_fast_function_gives_what_the_weights_say(size):
    x = coarse(*size)
    weights = upsample_weights(dtype=torch.float64)
    assert_same(upsample2d(x, size), upsample_centred(x, weights, *size), FLOAT64.rounding)


@pytest.mark.parametrize("size", SIZES)
def test_constants_kept(size):
    x = torch.full_like(coarse(*size), 3.0)
    assert_same(upsample2d(x, size), torch.full((2, 3, *size), 3.0).double(), FLOAT64.rounding)


@pytest.mark.parametrize("size", [(12, 12), (13, 13), (12, 13), (13, 12)])
def test_ramps_kept(size):
    """Pooled and interpolated, a ramp is itself again: the grids of both lie on each other."""
    y, x = torch.meshgrid(*(torch.arange(n, dtype=torch.float64) for n in size), indexing="ij")
    ramp = (2 * y - 3 * x).expand(1, 1, *size)
    pooled = blur_pool2d(ramp, sigma=0, ceil_mode=True)
    # Windows at the rim of an odd size reach beyond the image, where the ramp does not go on.
    inner = (..., slice(2, -2), slice(2, -2))
    assert_same(upsample2d(pooled, size)[inner], ramp[inner], FLOAT64.rounding)


@pytest.mark.parametrize("size", [(8, 8), (9, 9), (9, 8)])
def test_gradients(size):
    x = coarse(*size).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: upsample2d(x, size), x)


def test_the_module_takes_the_size_of_the_finer_maps():
    x, fine = coarse(9, 14), torch.rand(2, 5, 9, 14)
    assert torch.equal(Upsample2d()(x, fine), upsample2d(x, (9, 14)))


@pytest.mark.parametrize("size", [7, (8, 11), 0, (8, 8, 8)])
def test_a_size_that_does_not_fit_is_refused(size):
    with pytest.raises(ValueError, match="size="):
        upsample2d(coarse(9, 9), size)
