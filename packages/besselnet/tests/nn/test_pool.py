"""Anti-aliased pooling: exact symmetries on every size, and agreement with plain pooling."""

import copy
import itertools
import pickle

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

from besselnet.functional._pool import blur_pool2d
from besselnet.nn import BlurPool2d
from tolerances import FLOAT64, assert_same, relative_difference

SETTINGS = [
    dict(zip(("stride", "sigma", "window", "ceil_mode"), values))
    for values in itertools.product((1, 2, 3, 4), (0, None, 1.3), (None, 1, 3), (False, True))
]


def images(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("padding_mode", ["replicate", "reflect", "zeros", "circular"])
@pytest.mark.parametrize("size", [9, 10, 11, 12, 13])
def test_quarter_turns_and_reflections_exact(size, padding_mode):
    x = images(1, 2, size, size)
    for settings in SETTINGS:
        pool = BlurPool2d(**settings, padding_mode=padding_mode).double()
        y = pool(x)
        assert_same(pool(x.rot90(1, (2, 3))), y.rot90(1, (2, 3)), FLOAT64.rounding)
        assert_same(pool(x.flip(3)), y.flip(3), FLOAT64.rounding)


def test_plain_pooling_fails_the_same_check_on_odd_sizes():
    x = images(1, 1, 9, 9)
    y = F.avg_pool2d(x, 2)
    assert relative_difference(F.avg_pool2d(x.flip(3), 2), y.flip(3)) > 0.1


@pytest.mark.parametrize("stride", [2, 3])
@pytest.mark.parametrize("size", [10, 11, 12])
def test_samples_are_centred(size, stride):
    """The mean of a ramp over a symmetric window is the ramp at the window's centre, p_i."""
    pool = BlurPool2d(stride)
    ramp = torch.arange(size, dtype=torch.float64).expand(1, size, size)
    samples = size // stride
    positions = (size - 1) / 2 + stride * (torch.arange(samples) - (samples - 1) / 2)
    # The outermost windows reach beyond the image, where the ramp does not go on.
    inner = slice(1, samples - 1)
    expected = positions.double().expand(samples, samples)
    assert_same(pool(ramp)[0, inner, inner], expected[inner, inner], FLOAT64.rounding)


@pytest.mark.parametrize("settings", SETTINGS)
def test_output_size_and_constants_kept(settings):
    s = settings["stride"]
    for n in (7, 8, 9):
        y = blur_pool2d(torch.ones(1, 1, n, n + 1, dtype=torch.float64), **settings)
        sizes = [-(-m // s) if settings["ceil_mode"] else m // s for m in (n, n + 1)]
        assert list(y.shape[2:]) == sizes
        assert_same(y, torch.ones_like(y), FLOAT64.rounding)


@pytest.mark.parametrize("stride", [2, 3])
def test_average_pooling(stride):
    x = images(2, 3, 12, 18)
    assert_same(blur_pool2d(x, stride, 0), F.avg_pool2d(x, stride), FLOAT64.rounding)


def test_odd_size_without_blur_averages_both_ways_to_place_the_windows():
    x = images(1, 1, 1, 9)
    both = (F.avg_pool2d(x[..., :-1], (1, 2)) + F.avg_pool2d(x[..., 1:], (1, 2))) / 2
    column = blur_pool2d(x.expand(1, 1, 2, 9), 2, 0)
    assert_same(column, both, FLOAT64.rounding)


def test_blur_of_the_papers_experiments():
    """5 x 5 Gaussian with sigma 0.66 on each channel, zeros outside, then 2 x 2 average."""
    x = images(2, 3, 12, 14)
    distance = torch.arange(-2, 3, dtype=torch.float64)
    gauss = torch.exp(-((distance / 0.66) ** 2) / 2)
    kernel = torch.outer(gauss, gauss) / gauss.sum() ** 2
    blurred = F.conv2d(x, kernel.expand(3, 1, 5, 5), padding=2, groups=3)
    pooled = blur_pool2d(x, padding_mode="zeros")
    assert_same(pooled, F.avg_pool2d(blurred, 2), FLOAT64.rounding)


def test_blur_removes_what_the_coarse_grid_cannot_hold():
    """A wave of 2.5 pixels folds to a longer one when every second pixel is taken."""
    wave = torch.cos(2 * torch.pi / 2.5 * torch.arange(100.0)).expand(1, 1, 100, 100)
    taken = wave[..., ::2, ::2].std()
    assert BlurPool2d(sigma=1.3)(wave)[..., 5:-5].std() < 0.05 * taken


def test_gradient():
    x = images(1, 2, 7, 8).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: blur_pool2d(x), x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_float_dtype(dtype):
    x = images(1, 2, 9, 8)
    exact = blur_pool2d(x)
    # Roundings of the input, of the weights of both axes and of the result, twice half a step each.
    tolerance = 4 * torch.finfo(dtype).eps
    for pool in (BlurPool2d(), BlurPool2d().to(dtype)):
        y = pool(x.to(dtype))
        assert y.dtype == dtype
        assert_same(y, exact, tolerance)


def test_weights_are_rebuilt_when_the_dtype_changes():
    pool = BlurPool2d().half().double()
    assert torch.equal(pool.weights, BlurPool2d().double().weights)


def test_without_batch_and_channels_last():
    x = images(2, 3, 9, 9)
    assert_same(blur_pool2d(x[0]), blur_pool2d(x)[0], FLOAT64.rounding)
    last = x.contiguous(memory_format=torch.channels_last)
    assert_same(blur_pool2d(last), blur_pool2d(x), FLOAT64.rounding)


def test_copies_and_state():
    pool = BlurPool2d(3, ceil_mode=True)
    x = images(1, 2, 10, 10).float()
    assert not pool.state_dict()
    for twin in (copy.deepcopy(pool), pickle.loads(pickle.dumps(pool))):
        assert torch.equal(twin(x), pool(x))
    assert "stride=3" in repr(pool)


@pytest.mark.parametrize("settings", [{}, {"stride": 3, "padding_mode": "reflect"}])
def test_one_export_serves_every_size(settings):
    stack = nn.Sequential(BlurPool2d(**settings), BlurPool2d(**settings))
    sizes = {2: Dim("h", min=20, max=99), 3: Dim("w", min=20, max=99)}
    program = torch.export.export(stack, (torch.rand(1, 2, 32, 32),), dynamic_shapes=(sizes,))
    for size in (32, 31, 30, 29, 25):
        x = torch.rand(1, 2, size, size + 1)
        assert torch.equal(program.module()(x), stack(x))


def test_compiles_into_one_graph():
    pool = BlurPool2d()
    compiled = torch.compile(pool, fullgraph=True, backend="aot_eager", dynamic=True)
    for size in (8, 9):
        x = torch.rand(1, 2, size, size)
        assert torch.equal(compiled(x), pool(x))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"stride": 0}, "stride=0"),
        ({"stride": 2.0}, "stride=2.0"),
        ({"sigma": -1}, "sigma=-1"),
        ({"sigma": float("nan")}, "sigma=nan"),
        ({"kernel_size": 4}, "kernel_size=4"),
        ({"window": 0}, "window=0"),
        ({"padding_mode": "mirror"}, "padding_mode='mirror'"),
    ],
)
def test_bad_settings(settings, named):
    for build in (BlurPool2d, lambda **s: blur_pool2d(torch.ones(1, 8, 8), **s)):
        with pytest.raises(ValueError, match=named):
            build(**settings)


def test_bad_input():
    pool = BlurPool2d()
    with pytest.raises(TypeError, match="int64"):
        pool(torch.ones(1, 8, 8, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"\(8, 8\)"):
        pool(torch.ones(8, 8))
    with pytest.raises(ValueError, match="at least 2"):
        pool(torch.ones(1, 1, 8))
    with pytest.raises(ValueError, match="at least 4"):
        BlurPool2d(padding_mode="reflect")(torch.ones(1, 3, 8))
