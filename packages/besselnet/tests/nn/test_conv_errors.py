"""Bad input to ``BesselConv2d``: refused with the argument, its value and what is allowed."""

import re

import pytest
import torch

from besselnet.nn import BesselConv2d

BAD_ARGUMENTS = [
    {"kernel_size": 0},
    {"kernel_size": -3},
    {"kernel_size": 2.5},
    {"kernel_size": (3, 5)},
    {"in_channels": 0},
    {"in_channels": 2.0},
    {"out_channels": -1},
    {"groups": 0},
    {"symmetry": "C4"},
    {"cutoff": 0},
    {"cutoff": -0.5},
    {"cutoff": float("nan")},
    {"cutoff": float("inf")},
    {"cutoff": "weak"},
    {"scales": (-6, 0)},
    {"scales": (1,)},
    {"scales": ()},
    {"scale_pool": "mean"},
    {"response": "energy"},
    {"sampling": "nearest"},
    {"algorithm": "fastest"},
    {"stride": 0},
    {"stride": (1, 2, 3)},
    {"dilation": 0},
    {"dilation": 1.5},
    {"padding": -1},
    {"padding": "full"},
    {"padding": (1, 2, 3)},
    {"padding_mode": "mirror"},
]


@pytest.mark.parametrize("bad", BAD_ARGUMENTS, ids=str)
def test_bad_argument(bad):
    ((name, value),) = bad.items()
    with pytest.raises(ValueError, match="must") as raised:
        BesselConv2d(**({"in_channels": 4, "out_channels": 4, "kernel_size": 5} | bad))
    assert f"{name}={value!r}" in str(raised.value)


@pytest.mark.parametrize(("name", "channels"), [("in_channels", (5, 4)), ("out_channels", (4, 5))])
def test_channels_not_divisible_by_groups(name, channels):
    with pytest.raises(ValueError, match=rf"{name}=5: must be a multiple of groups=2"):
        BesselConv2d(*channels, 3, groups=2)


@pytest.mark.parametrize("stride", [2, (1, 2)])
def test_same_padding_with_stride(stride):
    with pytest.raises(ValueError, match=r"padding='same' with stride=.*stride must be 1"):
        BesselConv2d(1, 1, 3, stride, padding="same")


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 3, 9, 9), "input has shape (1, 3, 9, 9) with 3 channels: must have 2"),
        ((3, 9, 9), "input has shape (3, 9, 9) with 3 channels: must have 2"),
        ((9, 9), "input has shape (9, 9): must be (N, C, H, W) or (C, H, W)"),
        ((1, 1, 2, 9, 9), "input has shape (1, 1, 2, 9, 9): must be (N, C, H, W) or (C, H, W)"),
        ((1, 2, 4, 9), "input has shape (1, 2, 4, 9)"),
    ],
)
def test_bad_shape(shape, message):
    layer = BesselConv2d(2, 4, 5)
    with pytest.raises(ValueError, match=re.escape(message)) as raised:
        layer(torch.rand(shape))
    assert "must" in str(raised.value)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.int64, torch.uint8, torch.bool], ids=str)
def test_complex_or_integer_input(dtype):
    layer = BesselConv2d(2, 4, 5)
    with pytest.raises(TypeError, match=rf"input has dtype {dtype}: must be a real floating"):
        layer(torch.ones(1, 2, 9, 9).to(dtype))
