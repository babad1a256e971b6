"""``upsample2d``: maps of a coarser level on the pixels of the finer one that ``blur_pool2d`` took them from.

Pooling by 2 with sizes rounded up puts the m samples of n pixels, n = 2 m or 2 m - 1, at

    p_i = (n - 1) / 2 + 2 (i - (m - 1) / 2),        i = 0 .. m - 1

(see :mod:`besselnet.functional._pool`): half-way between pixels where n is even, on every second pixel where
it is odd. This is linear interpolation between those places, along each axis; outside the outermost samples
of an even size, half a pixel, they are repeated.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from besselnet.checks import check_images, check_pair
from besselnet.functional._padding import pad_image

# For even and odd n the weights of samples i - 1, i, i + 1 at the pixels 2 i and 2 i + 1.
_TAPS = (((0.25, 0.75, 0.0), (0.0, 0.75, 0.25)), ((0.0, 1.0, 0.0), (0.0, 0.5, 0.5)))


def upsample_weights(
    *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
) -> Tensor:
    """Weights along one axis, (2, 6): for even and odd sizes three taps of even pixels, three of odd ones."""
    return torch.tensor(_TAPS, dtype=dtype, device=device).flatten(1)


def upsample2d(input: Tensor, size: int | Sequence[int]) -> Tensor:
    """Bilinear interpolation to twice the size, the inverse of the grid of ``blur_pool2d(ceil_mode=True)``.

    Properties (each has a test of its name):
        *quarter turns exact* and *reflections exact*: on every size, odd or even, to rounding;
        *constants kept*; *ramps kept*: what is linear in the place stays so, but at the rim of even sizes.

    Args:
        input: (N, C, h, w), floating point.
        size: (H, W) of the result, or both in one number; 2 h or 2 h - 1, and 2 w or 2 w - 1.

    Returns:
        (N, C, H, W).
    """
    check_images("input", input)
    height, width = check_pair("size", size, 1)
    if input.ndim != 4 or [(height + 1) // 2, (width + 1) // 2] != list(input.shape[2:]):
        raise ValueError(
            f"size={(height, width)}: must be 2 n or 2 n - 1 for each side n of input, which has the shape "
            f"{tuple(input.shape)}"
        )
    if height % 2 == width % 2:
        # What the weights say, by a faster function.
        corners = bool(height % 2)
        return F.interpolate(input, (height, width), mode="bilinear", align_corners=corners)
    weights = upsample_weights(dtype=input.dtype, device=input.device)
    return upsample_centred(input, weights, height, width)


def upsample_centred(input: Tensor, weights: Tensor, height: int, width: int) -> Tensor:
    """:func:`upsample2d` without any check; ``weights`` are ``upsample_weights()``.

    Only the rows of weights depend on the size: one graph can be exported for all of them.
    """
    rows, columns = weights.select(0, height % 2), weights.select(0, width % 2)
    kernel = torch.outer(rows, columns).view(2, 3, 2, 3).permute(0, 2, 1, 3).reshape(4, 1, 3, 3)
    channels = input.shape[1]
    padded = pad_image(input, (1, 1, 1, 1), "replicate")
    # Four pixels in place of each sample, then each at its place.
    pixels = F.conv2d(padded, kernel.repeat(channels, 1, 1, 1), groups=channels)
    return F.pixel_shuffle(pixels, 2).narrow(2, 0, height).narrow(3, 0, width)
