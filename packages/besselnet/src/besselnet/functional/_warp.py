"""Warp images by affine and elastic maps: rotation, reflection, scale and shift in one step.

An image is a function on the plane. `interpolation` determines the function from the pixels, and the new
image is that function at the mapped pixel centres:

- `"nearest"`: constant on each pixel;
- `"bilinear"`: linear between pixel centres. It blurs: half-way between pixels it is an average;
- `"cubic"`: the cubic spline through the pixels (that of `scipy.ndimage.rotate(order=3)`), which
  keeps fine detail. At sharp edges it may slightly overshoot the range of the pixels.

`border` determines how it continues outside the frame:

- `"zeros"`: every pixel outside is zero;
- `"reflect"`: mirrored at the edge of the frame, half a pixel beyond the outermost pixel centres,
  repeatedly: (d c b a | a b c d | d c b a). This is the mode "reflect" of `scipy.ndimage` and
  "symmetric" of `numpy.pad`.

Successive maps are composed first, so pixels are interpolated only once, whatever the number of maps.

A spline is s(x) = sum_n c[n] b(x - n) with the cubic B-spline b. Passing through the pixels means
f = c * (1, 4, 1)/6, whose inverse on the infinite line is c = f * sqrt(3) z^|n|, z = sqrt(3) - 2.
"""

import functools
import math
from typing import Literal, get_args

import torch
import torch.nn.functional as F

from besselnet.checks import check_choice

Interpolation = Literal["nearest", "bilinear", "cubic"]
INTERPOLATIONS: tuple[str, ...] = get_args(Interpolation)
Border = Literal["zeros", "reflect"]
BORDERS: tuple[str, ...] = get_args(Border)

# Coefficients of the zero-extended image decay as |z|^n outside its frame, and 0.27^12 is 1.4e-7:
# a rounding of float32.
_SPLINE_MARGIN = 12


def warp_images(
    images: torch.Tensor,
    matrices: torch.Tensor,
    interpolation: Interpolation = "cubic",
    border: Border = "zeros",
    displacements: torch.Tensor | None = None,
) -> torch.Tensor:
    """Warp each image by its own affine map.

    `images` is (N, C, H, W), floating point or uint8, and so is the result. `matrices` is (N, 2, 3): the
    output pixel at (x, y), measured from the centre to the right and downwards, is read from the input at
    ``matrices @ (x, y, 1)``. To map by A and then by B, pass the product A B (of the matrices with a third
    row 0 0 1). `rotation_matrices` returns rotations; quarter turns are exact up to rounding.
    `displacements` (N, 2, H, W), to the right and downwards in pixels, are added to the input positions.
    Floating point is linear in the pixels and not clamped; uint8 is rounded and clamped to 0..255.
    """
    check_choice("interpolation", interpolation, INTERPOLATIONS)
    check_choice("border", border, BORDERS)
    if images.ndim != 4 or not min(images.shape[2:]):
        raise ValueError(f"images have shape {tuple(images.shape)}: must be (N, C, H, W)")
    if not (images.is_floating_point() or images.dtype == torch.uint8):
        raise ValueError(f"images have dtype {images.dtype}: must be floating point or uint8")
    if matrices.shape != (len(images), 2, 3):
        raise ValueError(
            f"matrices have shape {tuple(matrices.shape)}: must be ({len(images)}, 2, 3)"
        )
    height, width = images.shape[2:]
    if displacements is not None and displacements.shape != (len(images), 2, height, width):
        raise ValueError(
            f"displacements have shape {tuple(displacements.shape)}: must be "
            f"({len(images)}, 2, {height}, {width})"
        )
    if len(images) == 0:
        return images.clone()
    pixels = images if images.is_floating_point() else images.float()
    x, y = _source_points(matrices, height, width, pixels)
    if displacements is not None:
        x, y = x + displacements[:, 0].to(x), y + displacements[:, 1].to(y)
    if border == "reflect":
        x, y = _fold(x, width), _fold(y, height)
    if interpolation == "cubic":
        sampled = _sample_spline(pixels, x, y, border)
    else:
        sampled = _sample(pixels, _to_frame(x, width), _to_frame(y, height), interpolation, border)
    if images.dtype == torch.uint8:
        sampled = sampled.round().clamp(0, 255).to(torch.uint8)
    return sampled


def _source_points(
    matrices: torch.Tensor, height: int, width: int, like: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Column x and row y, (N, H, W), at which each pixel of the new image reads the original.

    `matrices` (N, 2, 3) give them from (column, row, 1), both in pixels from the centre of the image.
    """
    terms = matrices.to(like)[..., None, None].unbind(1)
    rows = torch.arange(height).to(like)[:, None] - (height - 1) / 2
    columns = torch.arange(width).to(like)[None, :] - (width - 1) / 2
    x, y = (
        across * columns + down * rows + (offset + (size - 1) / 2)
        for (across, down, offset), size in zip((t.unbind(1) for t in terms), (width, height))
    )
    return x, y


def _fold(position: torch.Tensor, size: int) -> torch.Tensor:
    """The place in the frame, -1/2 to size - 1/2, that mirrors show at `position`."""
    return (position + 0.5).remainder_(2 * size).sub_(size).abs_().neg_().add_(size - 0.5)


def _sample(
    pixels: torch.Tensor, x: torch.Tensor, y: torch.Tensor, mode: str, border: Border
) -> torch.Tensor:
    """`pixels` at x and y, both (N, h, w) and -1 to 1 across the frame.

    Mirrored places are inside the frame: beyond the outermost pixel centre, the next pixel is that one again.
    """
    grid = torch.stack([x, y], dim=-1)
    padding = "zeros" if border == "zeros" else "border"
    return F.grid_sample(pixels, grid, mode=mode, padding_mode=padding, align_corners=False)


def _to_frame(position: torch.Tensor, size: int) -> torch.Tensor:
    """Pixel index -> -1 to 1 across a frame of `size` pixels, in place."""
    return position.mul_(2 / size).add_(1 / size - 1)


def _sample_spline(
    pixels: torch.Tensor, x: torch.Tensor, y: torch.Tensor, border: Border
) -> torch.Tensor:
    """The cubic spline through `pixels` at column x and row y, both (N, h, w).

    The four weights of b at a point are two positive pairs, and a linear interpolation at the right
    place between two neighbours weighs them like one pair: four bilinear samples of c do the work
    of 16 taps.
    """
    rows = _inverse_filter(pixels.shape[-2], border).to(pixels)
    columns = _inverse_filter(pixels.shape[-1], border).to(pixels)
    coefficients = rows @ pixels @ columns.T
    left, right, across = _linear_pairs(x, len(columns))
    upper, lower, down = _linear_pairs(y, len(rows))

    def row_of_samples(at: torch.Tensor) -> torch.Tensor:
        start, end = (_sample(coefficients, x, at, "bilinear", border) for x in (left, right))
        return torch.lerp(start, end, across)

    return torch.lerp(row_of_samples(upper), row_of_samples(lower), down)


def _linear_pairs(
    position: torch.Tensor, padded_size: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Where to read the first and the second pair of b's four weights, and the share of the second.

    The places are -1 to 1 across the padded frame. Steps are in place because fresh temporaries of
    this size cost more in page faults than the arithmetic does.
    """
    start = position.floor()
    t = position - start
    share = (t * -2).add_(3).mul_(t).add_(3).mul_(t).add_(1).div_(6)
    start.add_(_SPLINE_MARGIN)
    first = (1 - t).pow_(3).div_(share.sub(1).mul_(6)).add_(start)
    second = t.pow_(3).div_(share * 6).add_(start).add_(1)
    return _to_frame(first, padded_size), _to_frame(second, padded_size), share[:, None]


@functools.lru_cache(maxsize=32)
def _inverse_filter(size: int, border: Border) -> torch.Tensor:
    """(size + 2 margin, size): pixels of a row and what its border adds -> spline coefficients."""
    z = torch.tensor(math.sqrt(3) - 2, dtype=torch.float64)
    coefficient = torch.arange(-_SPLINE_MARGIN, size + _SPLINE_MARGIN)[:, None]
    pixel = torch.arange(size)
    if border == "zeros":
        return math.sqrt(3) * z ** (coefficient - pixel).abs()
    # Pixel n is seen again at -1 - n, and both in every period of 2 size: two geometric series each.
    period = 2 * size
    total = torch.zeros(len(coefficient), size, dtype=torch.float64)
    for place in (pixel, -1 - pixel):
        distance = (coefficient - place).remainder(period)
        total += (z**distance + z ** (period - distance)) / (1 - z**period)
    return math.sqrt(3) * total
