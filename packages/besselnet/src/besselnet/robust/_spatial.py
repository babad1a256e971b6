"""The spatial attack: the worst of a grid of rotations and shifts (Engstrom et al. 2019)."""

from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor

from besselnet.checks import check_number
from besselnet.functional import Border, Interpolation, rotation_matrices, warp_images
from besselnet.robust._standing import Network, attacking


def spatial(
    network: Network,
    images: Tensor,
    labels: Tensor,
    *,
    angles: Sequence[float],
    shifts: Sequence[float],
    interpolation: Interpolation = "cubic",
    border: Border = "zeros",
) -> Tensor:
    """Attack images by rotations and shifts: try all combinations until an image is misclassified.

    Like the other attacks, it returns the image itself if no combination succeeds.

    Args:
        angles: angles in degrees, counter-clockwise.
        shifts: shifts in pixels, to the right and downwards; all pairs are tried.
    """
    for name, numbers in (("angles", angles), ("shifts", shifts)):
        if not numbers:
            raise ValueError(f"{name}={numbers!r}: must be at least one number")
        for i, number in enumerate(numbers):
            check_number(f"{name}[{i}]", number)
    with attacking(network, images, labels) as standing:
        for angle, across, down in product(angles, shifts, shifts):
            if not standing:
                break
            matrices = placement(angle, across, down).expand(len(standing.left), 2, 3)
            tried = warp_images(standing.images, matrices, interpolation, border).clamp_(0, 1)
            standing.note(tried, network(tried))
    return standing.found


def placement(angle: float, across: float, down: float) -> Tensor:
    """(1, 2, 3) for `warp_images`: rotate by `angle` degrees, then shift to the right and downwards."""
    rotation = rotation_matrices(torch.tensor([angle]))[:, :, :2]
    shift = torch.tensor([[across], [down]], dtype=rotation.dtype)
    # A pixel at p shows what the rotated image has at p - shift.
    return torch.cat([rotation, -rotation @ shift], dim=2)
