"""The spatial attack: the worst of a grid of rotations and shifts (Engstrom et al. 2019)."""

from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor

from besselnet.checks import check_number
from besselnet.functional import Border, Interpolation, rotation_matrices, warp_images
from besselnet.robust._standing import Network, Standing, measuring


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
    """Each image rotated and then shifted, in every combination, until it is answered wrongly.

    As the other attacks: an image that is answered right at every place comes back as it was.

    Args:
        angles: degrees, counter-clockwise.
        shifts: pixels, to the right and downwards; every pair of them is tried.
    """
    for name, numbers in (("angles", angles), ("shifts", shifts)):
        if not numbers:
            raise ValueError(f"{name}={numbers!r}: must be at least one number")
        for i, number in enumerate(numbers):
            check_number(f"{name}[{i}]", number)
    with measuring(network):
        standing = Standing(network, images, labels)
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
