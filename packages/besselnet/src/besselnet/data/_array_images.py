"""What arrays of images mean: their axes and their types."""

import numpy as np
import torch

from besselnet._pixels import option_hint, scale_depth

# That are recognised without `layout`.
_MOST_CHANNELS = 32


def as_images(
    array: np.ndarray, layout: str | None = None, bits: int | None = None
) -> torch.Tensor:
    """(N, H, W), (N, H, W, C) or (N, C, H, W) of any accepted type -> (N, C, H, W) tensor."""
    if array.ndim not in (3, 4):
        raise ValueError(f"images must have 3 or 4 dimensions, got shape {array.shape}")
    if array.ndim == 3:
        array = array[:, None]
    else:
        if (layout or _layout(array.shape)) == "NHWC":
            array = array.transpose(0, 3, 1, 2)
    return torch.from_numpy(np.ascontiguousarray(_as_values(array, bits)))


def _layout(shape: tuple[int, ...]) -> str:
    """ "NHWC" or "NCHW", where the lengths of the axes tell."""
    for few in (
        lambda length, _: length in (1, 3),
        lambda length, others: length <= _MOST_CHANNELS and 2 * length < min(others),
    ):
        for layout, axis in (("NHWC", 3), ("NCHW", 1)):
            if few(shape[axis], (shape[2], shape[4 - axis])):
                return layout
    raise ValueError(
        f"the channel dimension of shape {shape} is ambiguous: {option_hint('layout', 'NHWC')} or NCHW"
    )


def _as_values(array: np.ndarray, bits: int | None) -> np.ndarray:
    """uint8, or float32 in [0, 1]."""
    kind = array.dtype.kind
    if kind == "b":
        return array.astype(np.uint8) * 255
    if kind == "f":
        return array.astype(np.float32)
    if array.dtype == np.uint8:
        return array
    if array.dtype == np.uint16:
        return scale_depth(array, bits)
    if kind in "iu":
        low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
        if low < 0 or high > 255:
            raise ValueError(f"integer images must be in 0..255, got {low} to {high}")
        return array.astype(np.uint8)
    raise ValueError(f"images must be numbers, got {array.dtype}")
