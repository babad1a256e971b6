"""Sample images through affine maps: rotation, reflection, scale and shift in one step.

Several maps that follow one another are composed first, so pixels are interpolated once, whatever the
number of maps. `interpolation` is that of `rotate_images`; `border` says what lies outside the frame:

- `"zeros"`: nothing, as for `rotate_images`;
- `"reflect"`: the image mirrored about the centres of its outermost pixels, over and over
  (`torch.nn.functional.pad(mode="reflect")`; scipy calls it "mirror").
"""

import functools
from typing import Literal, get_args

import torch

from besselnet.checks import check_choice
from besselnet.functional._rotation import (
    _SPLINE_MARGIN,
    INTERPOLATIONS,
    Interpolation,
    _sample,
    _sample_spline,
    _to_frame,
    source_points,
)

Border = Literal["zeros", "reflect"]
BORDERS: tuple[str, ...] = get_args(Border)


def warp_images(
    images: torch.Tensor,
    matrices: torch.Tensor,
    interpolation: Interpolation = "cubic",
    border: Border = "zeros",
) -> torch.Tensor:
    """Each image read through its own affine map.

    `images` is (N, C, H, W), floating point or uint8, and so is the result. `matrices` is (N, 2, 3): a
    pixel at (x, y), counted from the centre to the right and downwards, shows what the original has at
    ``matrices @ (x, y, 1)``. To map by A and then by B, give the product A B (of the matrices with a
    third row 0 0 1). Rotations are `rotation_matrices`; those by quarter turns are exact to rounding.
    Floating point is linear in the pixels and not cut; uint8 is rounded and cut to 0..255.
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
    if len(images) == 0:
        return images.clone()
    height, width = images.shape[2:]
    pixels = images if images.is_floating_point() else images.float()
    x, y = source_points(matrices, height, width, pixels)
    if border == "reflect":
        x, y = _fold(x, width), _fold(y, height)
    if interpolation == "cubic":
        sampled = _sample_spline(pixels, x, y, _mirror_filter if border == "reflect" else None)
    else:
        sampled = _sample(pixels, _to_frame(x, width), _to_frame(y, height), interpolation)
    if images.dtype == torch.uint8:
        sampled = sampled.round().clamp(0, 255).to(torch.uint8)
    return sampled


def _fold(position: torch.Tensor, size: int) -> torch.Tensor:
    """The place within 0..size - 1 that a mirrored row repeats at `position`."""
    last = size - 1
    if last == 0:
        return torch.zeros_like(position)
    # The distance to the nearest multiple of the period, in place: see `_linear_pairs`.
    return position.sub_((position / (2 * last)).round_().mul_(2 * last)).abs_()


@functools.lru_cache(maxsize=32)
def _mirror_filter(size: int) -> torch.Tensor:
    """(size + 2 margin, size): pixels of a mirrored row -> spline coefficients, mirrored like them."""
    places = torch.arange(-_SPLINE_MARGIN, size + _SPLINE_MARGIN)
    inside = _fold(places.double(), size).round().long()
    # Each pixel is (c[n-1] + 4 c[n] + c[n+1]) / 6, with the neighbours of the ends folded back.
    own = torch.eye(size, dtype=torch.float64)
    before, after = (inside[_SPLINE_MARGIN + n : _SPLINE_MARGIN + n + size] for n in (-1, 1))
    pixels = (own[before] + 4 * own + own[after]) / 6
    return torch.linalg.inv(pixels)[inside]
