"""Rotate batches of images by any angle."""

import torch

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
