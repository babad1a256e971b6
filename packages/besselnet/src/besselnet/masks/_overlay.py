"""Draw masks over their images."""

import numpy as np

from besselnet._pixels import IGNORED
from besselnet.checks import check_number

Array = np.ndarray

# Okabe and Ito's colours, which everyone can tell apart; the first for class 1.
COLOURS = (
    (230, 159, 0),
    (86, 180, 233),
    (0, 158, 115),
    (240, 228, 66),
    (0, 114, 178),
    (213, 94, 0),
    (204, 121, 167),
)


def class_colour(number: int) -> tuple[int, int, int]:
    """Return the colour of a class, from 1; colours repeat after the last one."""
    return COLOURS[(number - 1) % len(COLOURS)]


def overlay_mask(image: Array, mask: Array, *, opacity: float = 0.4) -> Array:
    """Return the image (H, W, 3) uint8, tinted by class, with class boundaries in full colour.

    Class 0, the background, and `IGNORED` pixels are unchanged.

    Args:
        image: (C, H, W), uint8, or float in [0, 1]; unless there are 3 channels, the first one is shown.
        mask: (H, W) classes.
        opacity: opacity of the colour inside a class.
    """
    check_number("opacity", opacity, least=0, most=1)
    if image.shape[1:] != mask.shape:
        raise ValueError(f"mask has shape {mask.shape}: must be {image.shape[1:]}, like the image")
    channels = image if len(image) == 3 else image[:1]
    pixels = channels.astype(np.float32) * (1 if image.dtype == np.uint8 else 255)
    shown = np.broadcast_to(pixels, (3, *mask.shape)).transpose(1, 2, 0)
    palette = np.zeros((256, 3), np.float32)
    palette[1:] = [class_colour(number) for number in range(1, 256)]
    edge = np.zeros(mask.shape, bool)
    for here, there in (((1, None), (None, -1)), ((None, -1), (1, None))):
        edge[slice(*here)] |= mask[slice(*here)] != mask[slice(*there)]
        edge[:, slice(*here)] |= mask[:, slice(*here)] != mask[:, slice(*there)]
    weight = np.where(edge, 1.0, opacity).astype(np.float32)
    weight[(mask == 0) | (mask == IGNORED)] = 0
    mixed = shown + weight[..., None] * (palette[mask] - shown)
    return np.rint(mixed.clip(0, 255)).astype(np.uint8)
