"""How often a trained network gives the same answer for an image and its rotated copies."""

from statistics import fmean
from typing import Any, Literal

import torch
from torch import nn

from besselnet.data import Batches, ImageSet
from besselnet.train import evaluate_rotated

__all__ = ["rotation_agreement"]

_MOST_IMAGES = 500
_BATCH = 50
# Steps of 30 degrees: quarter turns among them, and angles that are no symmetry of C8 as well.
_ANGLES = 12


def rotation_agreement(model: nn.Module, judged: ImageSet) -> dict[str, Any]:
    """Shares of rotated images that get the class of the image as it is: JSON values.

    `black_corners` and `reflected_borders` are means over the angles 30, 60, ..., 330 degrees, with
    zeros or the reflected image outside of the frame; `quarter_turns` is the mean over 90, 180 and 270
    degrees, where nothing comes from outside. At most 500 images, spread over all that are judged.
    """
    count = min(_MOST_IMAGES, len(judged))
    few = judged.select(torch.linspace(0, len(judged) - 1, count).round().long())
    black = _agreement(model, few, "black")
    reflected = _agreement(model, few, "reflect")
    quarters = [share for i, share in enumerate(black) if i and i % (_ANGLES // 4) == 0]
    return {
        "images": count,
        "black_corners": fmean(black[1:]),
        "reflected_borders": fmean(reflected[1:]),
        "quarter_turns": fmean(quarters),
        "angles": [i * 360 / _ANGLES for i in range(_ANGLES)],
        "black_corners_by_angle": black,
        "reflected_borders_by_angle": reflected,
    }


def _agreement(
    model: nn.Module, images: ImageSet, border: Literal["black", "reflect"]
) -> list[float]:
    found = evaluate_rotated(model, Batches(images, _BATCH), angles=_ANGLES, border=border)
    return [round(share, 6) for share in found.agreement]
