"""Turn batches of images by any angle.

An image is a function on the plane that is zero outside its frame. `interpolation` says which
function stands for the pixels, and the rotated image is that function read at the rotated pixel
centres:

- `"nearest"`: constant on each pixel;
- `"bilinear"`: linear between pixel centres. It blurs: half-way between pixels it is an average;
- `"cubic"`: the cubic spline through the pixels (that of `scipy.ndimage.rotate(order=3)`), which
  keeps fine detail. Where an edge is sharp it may leave the range of the pixels a little.

A spline is s(x) = sum_n c[n] b(x - n) with the cubic B-spline b. Passing through the pixels means
f = c * (1, 4, 1)/6, whose inverse on the infinite line is c = f * sqrt(3) z^|n|, z = sqrt(3) - 2.
"""

import functools
import math
from collections.abc import Callable
from typing import Literal, get_args

import torch
import torch.nn.functional as F

from besselnet.checks import check_choice, check_number

Interpolation = Literal["nearest", "bilinear", "cubic"]
INTERPOLATIONS: tuple[str, ...] = get_args(Interpolation)

# Coefficients of the zero-extended image decay as |z|^n outside its frame, and 0.27^12 is 1.4e-7:
# a rounding of float32.
_SPLINE_MARGIN = 12


def rotate_images(
    images: torch.Tensor,
    angles: torch.Tensor | float,
    interpolation: Interpolation = "cubic",
) -> torch.Tensor:
    """Turn each image about its centre, counter-clockwise as displayed; zero outside.

    `images` is (N, C, H, W), floating point or uint8; `angles` is in degrees, one number or (N,).
    The result has the shape and type of `images`; uint8 is rounded and cut to 0..255, floating
    point is linear in the pixels and not cut. Multiples of 90 degrees equal `torch.rot90` on square
    images: bit for bit for uint8, to rounding for floating point.
    """
    check_choice("interpolation", interpolation, INTERPOLATIONS)
    if images.ndim != 4:
        raise ValueError(f"images must be (N, C, H, W), got {tuple(images.shape)}")
    if not (images.is_floating_point() or images.dtype == torch.uint8):
        raise ValueError(f"images must be floating point or uint8, got {images.dtype}")
    if not min(images.shape[2:]):
        raise ValueError(f"images have shape {tuple(images.shape)}: must have rows and columns")
    if not isinstance(angles, torch.Tensor):
        check_number("angles", angles)
    angles = torch.as_tensor(angles, dtype=torch.float64)
    if not torch.compiler.is_compiling() and not bool(angles.isfinite().all()):
        raise ValueError(f"angles={angles}: must be finite numbers of degrees")
    if angles.ndim == 0:
        angles = angles.expand(len(images))
    if angles.shape != (len(images),):
        raise ValueError(
            f"angles must be one number or one per image ({len(images)}), got {tuple(angles.shape)}"
        )
    if len(images) == 0:
        return images.clone()

    pixels = images if images.is_floating_point() else images.float()
    x, y = source_points(rotation_matrices(angles), images.shape[2], images.shape[3], pixels)
    if interpolation == "cubic":
        turned = _sample_spline(pixels, x, y)
    else:
        height, width = images.shape[-2:]
        turned = _sample(pixels, _to_frame(x, width), _to_frame(y, height), interpolation)
    if images.dtype == torch.uint8:
        turned = turned.round().clamp(0, 255).to(torch.uint8)
    return turned


def rotation_matrices(angles: torch.Tensor) -> torch.Tensor:
    """(N, 2, 3) float64: the maps that `source_points` takes, for rotations by (N,) degrees."""
    angles = angles.double()
    # Quarter turns are split off in degrees, where they are exact: their points are pixel centres.
    quarters = torch.round(angles / 90)
    rest = torch.deg2rad(angles - 90 * quarters)
    cos, sin = torch.cos(rest), torch.sin(rest)
    turn = quarters.remainder(4).long()
    each = torch.arange(len(angles), device=angles.device)
    cos, sin = (
        torch.stack([cos, -sin, -cos, sin])[turn, each],
        torch.stack([sin, cos, -sin, -cos])[turn, each],
    )
    zero = torch.zeros_like(cos)
    return torch.stack([cos, -sin, zero, sin, cos, zero], dim=1).unflatten(1, (2, 3))


def source_points(
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


def _sample(pixels: torch.Tensor, x: torch.Tensor, y: torch.Tensor, mode: str) -> torch.Tensor:
    """`pixels` at x and y, both (N, h, w) and -1 to 1 across the frame; zero outside."""
    grid = torch.stack([x, y], dim=-1)
    return F.grid_sample(pixels, grid, mode=mode, padding_mode="zeros", align_corners=False)


def _to_frame(position: torch.Tensor, size: int) -> torch.Tensor:
    """Pixel index -> -1 to 1 across a frame of `size` pixels, in place."""
    return position.mul_(2 / size).add_(1 / size - 1)


def _sample_spline(
    pixels: torch.Tensor,
    x: torch.Tensor,
    y: torch.Tensor,
    inverse_filter: Callable[[int], torch.Tensor] | None = None,
) -> torch.Tensor:
    """The cubic spline through `pixels` at column x and row y, both (N, h, w).

    `inverse_filter(size)` gives the coefficients of a row from its pixels, with `_SPLINE_MARGIN` more on
    both sides; by default those of `_inverse_filter`, for pixels that are zero outside.

    The four weights of b at a point are two positive pairs, and a linear interpolation at the right
    place between two neighbours weighs them like one pair: four bilinear samples of c do the work
    of 16 taps.
    """
    filter_of = inverse_filter or _inverse_filter
    rows, columns = (filter_of(size).to(pixels) for size in pixels.shape[-2:])
    coefficients = rows @ pixels @ columns.T
    left, right, across = _linear_pairs(x, len(columns))
    upper, lower, down = _linear_pairs(y, len(rows))

    def row_of_samples(at: torch.Tensor) -> torch.Tensor:
        start = _sample(coefficients, left, at, "bilinear")
        return torch.lerp(start, _sample(coefficients, right, at, "bilinear"), across)

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
def _inverse_filter(size: int) -> torch.Tensor:
    """(size + 2 margin, size): pixels of a row, zero outside its frame -> spline coefficients."""
    z = math.sqrt(3) - 2
    coefficient = torch.arange(-_SPLINE_MARGIN, size + _SPLINE_MARGIN, dtype=torch.float64)
    distance = (coefficient[:, None] - torch.arange(size, dtype=torch.float64)).abs()
    return math.sqrt(3) * torch.tensor(z, dtype=torch.float64) ** distance
