"""``upsample2d``: upsample feature maps to the pixels from which ``blur_pool2d`` computed them.

Pooling by 2 with sizes rounded up puts the m samples of n pixels, n = 2 m or 2 m - 1, at

    p_i = (n - 1) / 2 + 2 (i - (m - 1) / 2),        i = 0 .. m - 1

(see :mod:`besselnet.functional._pool`): half-way between pixels if n is even, on every second pixel if n is
odd. `upsample2d` interpolates linearly between these positions, along each axis. For even sizes, the
outermost samples are repeated over the half pixel outside them.
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
    """Return weights along one axis, (2, 6): for even and odd sizes, three taps of even and of odd pixels."""
    return torch.tensor(_TAPS, dtype=dtype, device=device).flatten(1)


def upsample2d(input: Tensor, size: int | Sequence[int]) -> Tensor:
    """Upsample to twice the size by bilinear interpolation, on the grid of ``blur_pool2d(ceil_mode=True)``.

    Properties (each has a test of the same name):
        *quarter turns exact* and *reflections exact*: for every size, odd or even, up to rounding;
        *constants kept*; *ramps kept*: linear functions stay linear, except at the rim of even sizes.

    Args:
        input: (N, C, h, w), floating point.
        size: (H, W) of the result, or one number for both; 2 h or 2 h - 1, and 2 w or 2 w - 1.

    Returns:
        (N, C, H, W).
    """
    check_images("input", input)
    height, width = check_pair("size", size, 1)
    if input.ndim != 4 or [(height + 1) // 2, (width + 1) // 2] != list(input.shape[2:]):
        raise ValueError(
            f"size={(height, width)}: must be 2 n or 2 n - 1 for each side n of input, which has shape "
            f"{tuple(input.shape)}"
        )
    if height % 2 == width % 2:
        # What the weights say, by a faster function.
        corners = bool(height % 2)
        return F.interpolate(input, (height, width), mode="bilinear", align_corners=corners)
    weights = upsample_weights(dtype=input.dtype, device=input.device)
    return upsample_centred(input, weights, height, width)


def upsample_centred(input: Tensor, weights: Tensor, height: int, width: int) -> Tensor:
    """Compute :func:`upsample2d` without checks; ``weights`` are ``upsample_weights()``.

    Only the rows of weights depend on the size, so one graph can be exported for all sizes.
    """
    rows, columns = weights.select(0, height % 2), weights.select(0, width % 2)
    kernel = torch.outer(rows, columns).view(2, 3, 2, 3).permute(0, 2, 1, 3).reshape(4, 1, 3, 3)
    channels = input.shape[1]
    padded = pad_image(input, (1, 1, 1, 1), "replicate")
    # Four pixels in place of each sample, then each at its place.
    pixels = F.conv2d(padded, kernel.repeat(channels, 1, 1, 1), groups=channels)
    return F.pixel_shuffle(pixels, 2).narrow(2, 0, height).narrow(3, 0, width)
