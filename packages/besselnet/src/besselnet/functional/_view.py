"""Show rotated images to a network, with a choice for their corners."""

from collections.abc import Iterable
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from besselnet.functional._disc import soft_disc
from besselnet.functional._rotation import rotate_images
from besselnet.functional._warp import Border, Interpolation

View = Literal["disc", "reflect", "black"]
VIEWS: tuple[str, ...] = get_args(View)


def show_rotated(
    images: Tensor,
    degrees: float,
    border: View,
    interpolation: Interpolation,
    colour: Tensor | None = None,
) -> Tensor:
    """Return images (N, C, H, W) rotated by an angle; at 0 degrees, pixels are not resampled.

    `"black"` leaves black corners, `"reflect"` mirrors the image at its edges. `"disc"` shows only the
    inscribed disc, with a soft edge and `colour` (C,) around it, also at 0 degrees. So copies at two angles
    differ only in the rotation.
    """
    if degrees:
        angles = images.new_full((len(images),), degrees)
        outside: Border = "zeros" if border == "black" else "reflect"
        images = rotate_images(images, angles, interpolation, outside)
    if border == "disc":
        if colour is None:
            raise ValueError("colour=None: must be (C,) numbers for border='disc'")
        disc = soft_disc(*images.shape[-2:], dtype=images.dtype, device=images.device)
        images = torch.lerp(colour.to(images)[:, None, None], images, disc)
    return images


def hidden_colour(batches: Iterable[tuple[Tensor, Any]]) -> Tensor:
    """Return the mean colour (C,) outside the inscribed disc, over all images.

    For objects on a uniform background, it is the background colour, and the disc changes nothing.
    """
    total, weight = torch.zeros((), dtype=torch.float64), 0.0
    for images, _ in batches:
        hidden = 1 - soft_disc(*images.shape[-2:], dtype=torch.float64)
        total = total + (images.cpu() * hidden).sum((0, 2, 3))
        weight += len(images) * hidden.sum().item()
    if not weight:
        raise ValueError("batches is empty: must have at least one batch")
    return total / weight
