"""Find out whether images fill their frame, or show objects on a uniform background."""

import torch
from torch import Tensor

from besselnet.data._imageset import as_floats
from besselnet.data._stored import Pixels

# Corners that vary this much against the whole image are part of the picture. Measured medians: digits 0,
# galaxies 0.26, blood cells cut out on black 0.43, fields of nuclei 0.97, tissue 1.00, noise 1.00. Of the
# smaller corners beyond a reach of 1.2: galaxies 0.20, blood cells 0, tissue 1.00.
FLAT = 0.1
# Enough to decide by.
MOST_IMAGES, MOST_PIXELS = 500, 64


def ground_colour(images: Pixels, reach: float = 1.0) -> Tensor | None:
    """Return the colour (C,), in [0, 1], of the uniform background; None if there is none.

    The corners are the pixels outside the ellipse that touches the four sides. The background colour is the
    median of their colours over all images. An image has this background if the root mean square distance of
    its corners from that colour is less than a tenth of that of the whole image. A colour is returned if most
    images have this background. So the result does not depend on the contrast of the images, nor on
    quarter turns.

    Args:
        images: (N, C, H, W), as in an `ImageSet`.
        reach: scale of the ellipse. With 1.2, objects may touch the sides of the image and extend slightly
            outside the disc; only the outermost corners must be background.

    It uses at most 500 images and 128 pixels per side, evenly spaced.
    """
    count, _, height, width = images.shape
    step = max(1, min(height, width) // MOST_PIXELS)
    some = as_floats(images[:: -(-count // MOST_IMAGES), :, ::step, ::step])
    y, x = (torch.linspace(-1, 1, side) for side in some.shape[2:])
    corners = y[:, None].square() + x.square() > reach**2
    if not corners.any():
        return None
    ground = some[:, :, corners].movedim(1, 0).flatten(1).median(1).values
    distance = (some - ground[:, None, None]).square()
    flat = distance[:, :, corners].mean((1, 2)) <= FLAT**2 * distance.mean((1, 2, 3))
    return ground if flat.float().mean() > 0.5 else None


def frames_are_full(images: Pixels) -> bool:
    """Return whether images (N, C, H, W) fill their frame, without a uniform background (`ground_colour`)."""
    return ground_colour(images) is None
