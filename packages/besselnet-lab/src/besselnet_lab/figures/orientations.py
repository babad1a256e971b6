"""One object at four angles: orientation does not matter in many images."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import Tensor

from besselnet.drawing import new_figure, show
from besselnet.testing import disc_window, turn_images

__all__ = ["Orientations", "draw_orientations", "orientations"]


@dataclass(frozen=True)
class Orientations:
    """One image at several angles: (angles, S, S)."""

    angles: tuple[float, ...]
    pictures: Tensor


def orientations(
    picture: Tensor, angles: Sequence[float] = (0.0, 70.0, 160.0, 250.0)
) -> Orientations:
    """Rotate a square image behind a round window."""
    seen = (picture * disc_window(picture.shape[-1]).to(picture))[None, None]
    turned = torch.cat([turn_images(seen, angle) for angle in angles])
    return Orientations(tuple(angles), turned[:, 0])


def draw_orientations(shown: Orientations) -> Figure:
    """Draw the images in a row."""
    figure = new_figure(2.6)
    figure.suptitle("The same object: a network should see it the same way each time")
    for axes, picture, angle in zip(
        figure.subplots(1, len(shown.angles)), shown.pictures, shown.angles
    ):
        show(axes, picture)
        axes.set_xlabel(f"rotated by {angle:g}°" if angle else "as it is")
    return figure
