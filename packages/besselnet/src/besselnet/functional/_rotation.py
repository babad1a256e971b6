"""Rotate batches of images by any angle."""

import math

import torch
import torch.nn.functional as F

from besselnet.checks import check_number
from besselnet.functional._warp import Border, Interpolation, warp_images


def rotate_images(
    images: torch.Tensor,
    angles: torch.Tensor | float,
    interpolation: Interpolation = "cubic",
    border: Border = "zeros",
) -> torch.Tensor:
    """Rotate each image about its centre, counter-clockwise as displayed.

    `images` is (N, C, H, W), floating point or uint8; `angles` is in degrees, one number or (N,).
    The result has the shape and dtype of `images`. uint8 is rounded and clamped to 0..255; floating point is
    linear in the pixels and not clamped. On square images, multiples of 90 degrees equal `torch.rot90`: bit
    for bit for uint8, up to rounding for floating point. Pixels outside the frame are zero, or mirrored at
    the edge of the frame with `border="reflect"`. See `warp_images`.
    """
    if not isinstance(angles, torch.Tensor):
        check_number("angles", angles)
    angles = torch.as_tensor(angles, dtype=torch.float64)
    if not torch.compiler.is_compiling() and not bool(angles.isfinite().all()):
        raise ValueError(f"angles={angles}: must be finite, in degrees")
    if angles.ndim == 0:
        angles = angles.expand(len(images))
    if angles.shape != (len(images),):
        raise ValueError(
            f"angles must be one number or one per image ({len(images)}), got {tuple(angles.shape)}"
        )
    return warp_images(images, rotation_matrices(angles), interpolation, border)


def rotate_alike(images: torch.Tensor, degrees: float) -> torch.Tensor:
    """Rotate all images (N, C, H, W) about their centres by one angle, counter-clockwise as displayed.

    A simpler `rotate_images` for use inside networks: torch functions without checks, so that a network can
    be traced, compiled and exported for all sizes. Interpolation is bicubic (Keys), and pixels outside the
    frame are mirrored at its edge.
    """
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    height, width = images.shape[2:]
    # Pixel centres, counted from the centre of the frame. Of the images, so that one graph serves all sizes.
    ones = torch.ones_like(images[:1, 0])
    x = ones.cumsum(2) - (width + 1) / 2
    y = ones.cumsum(1) - (height + 1) / 2
    grid = torch.stack([(cos * x - sin * y) * (2 / width), (cos * y + sin * x) * (2 / height)], -1)
    grid = grid.expand(images.shape[0], -1, -1, -1)
    return F.grid_sample(images, grid, "bicubic", "reflection", align_corners=False)


def rotation_matrices(angles: torch.Tensor) -> torch.Tensor:
    """Return the matrices (N, 2, 3), float64, of `warp_images` for rotations by (N,) degrees."""
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
