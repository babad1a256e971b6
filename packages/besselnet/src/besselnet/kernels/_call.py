"""Calls of the library with tensors. The structures are those of native/besselnet.h."""

import ctypes
from ctypes import c_int64
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from besselnet.kernels._load import load

# The largest kernel that the library takes; setup.py compiles it so.
MOST_TAPS = 64
RESPONSES = {"power": 0, "amplitude": 1, "signed": 2}
OK, NO_MEMORY, NO_PARITY = range(3)


class Settings(NamedTuple):
    """Settings of a layer that the library needs besides its tensors."""

    radial_counts: tuple[int, ...]
    mirror: bool
    """O(2) instead of SO(2)."""
    response: str
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int


class _Strides(ctypes.Structure):
    _fields_ = [(name, c_int64) for name in ("image", "channel", "row", "pixel")]


class _Layer(ctypes.Structure):
    _fields_ = [
        *[(name, c_int64) for name in ("batch", "height", "width", "out_height", "out_width")],
        *[(name, c_int64) for name in ("in_channels", "out_channels", "groups", "kernel_size")],
        *[(name, c_int64 * 2) for name in ("stride", "padding", "dilation")],
        ("num_orders", c_int64),
        ("radial_counts", ctypes.POINTER(c_int64)),
        *[(name, c_int64) for name in ("mirror", "response", "bfloat16")],
        *[(name, _Strides) for name in ("input", "output", "gradient", "to_input")],
    ]


@lru_cache(maxsize=512)
def _layer(
    settings: Settings,
    kernel_size: int,
    bfloat16: bool,
    shape: tuple[int, ...],
    out_shape: tuple[int, ...],
    *strides: tuple[int, ...],
) -> tuple[_Layer, int]:
    """The structure, which the library only reads, and its address."""
    counts, mirror, response, stride, padding, dilation, groups = settings
    layer = _Layer(
        *(shape[0], *shape[2:], *out_shape[2:]),
        *(shape[1] // groups, out_shape[1] // groups, groups, kernel_size),
        *((c_int64 * 2)(*pair) for pair in (stride, padding, dilation)),
        *(len(counts), (c_int64 * len(counts))(*counts)),
        *(mirror, RESPONSES[response], bfloat16),
        *(_Strides(*each) for each in strides),
    )
    return layer, ctypes.addressof(layer)


def forward(
    input: Tensor,
    weight: Tensor,
    bank: Tensor,
    bias: Tensor | None,
    output: Tensor,
    layer: Settings,
) -> bool:
    """Fill ``output`` with the response plus bias; return False if the bank lacks the required parities.

    input (N, C, H, W), float32 or bfloat16, and output (N, O, H', W') of any strides; weight
    (O, C / groups, F), bank (F, k, k) and bias (O,) float32 and contiguous.
    """
    strides = (input.stride(), output.stride())
    bfloat16 = input.dtype is torch.bfloat16
    _, address = _layer(layer, bank.shape[-1], bfloat16, input.shape, output.shape, *strides)
    code = load().library.bessel_forward(
        address,
        input.data_ptr(),
        weight.data_ptr(),
        bank.data_ptr(),
        None if bias is None else bias.data_ptr(),
        output.data_ptr(),
        torch.get_num_threads(),
    )
    return _succeeded(code, input, output)


def backward(
    input: Tensor,
    weight: Tensor,
    bank: Tensor,
    gradient: Tensor,
    to_input: Tensor | None,
    to_weight: Tensor,
    to_bias: Tensor | None,
    layer: Settings,
) -> bool:
    """Fill the last three arguments with gradients; return False as in :func:`forward`.

    ``gradient`` is float32, of any strides; ``to_input`` is like the input, or None.
    """
    last = input.stride() if to_input is None else to_input.stride()
    strides = (input.stride(), gradient.stride(), gradient.stride(), last)
    bfloat16 = input.dtype is torch.bfloat16
    _, address = _layer(layer, bank.shape[-1], bfloat16, input.shape, gradient.shape, *strides)
    code = load().library.bessel_backward(
        address,
        input.data_ptr(),
        weight.data_ptr(),
        bank.data_ptr(),
        gradient.data_ptr(),
        None if to_input is None else to_input.data_ptr(),
        to_weight.data_ptr(),
        None if to_bias is None else to_bias.data_ptr(),
        torch.get_num_threads(),
    )
    return _succeeded(code, input, gradient)


def _succeeded(code: int, input: Tensor, output: Tensor) -> bool:
    if code == NO_MEMORY:
        raise MemoryError(
            f"not enough memory for the workspace of the native kernel: input {tuple(input.shape)}, output "
            f"{tuple(output.shape)}, {torch.get_num_threads()} threads"
        )
    return code == OK
