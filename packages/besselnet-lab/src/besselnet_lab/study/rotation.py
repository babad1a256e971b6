"""How often a trained network gives the same answer for an image and its rotated copies."""

from collections.abc import Iterable
from statistics import fmean
from typing import Any, Literal

import numpy as np
from torch import nn

from besselnet.data import Batches, ImageSet
from besselnet.masks import class_mean, mask_agreement, roles_of
from besselnet.nn import evaluating
from besselnet.train import evaluate_rotated
from besselnet_lab.study.images import spread

__all__ = ["background_class", "mask_rotation_agreement", "rotation_agreement"]

_MOST_IMAGES = 500
_BATCH = 50
# Of masks: nine images of 584 x 565 pixels, or 48 of 256 x 256.
_MOST_PIXELS = 3_200_000
# Steps of 30 degrees: quarter turns among them, and angles that are no symmetry of C8 as well.
_ANGLES = 12
Border = Literal["black", "reflect"]


def rotation_agreement(model: nn.Module, judged: ImageSet) -> dict[str, Any]:
    """Shares of rotated images that get the class of the image as it is: JSON values.

    `black_corners` and `reflected_borders` are means over the angles 30, 60, ..., 330 degrees, with
    zeros or the reflected image outside of the frame; `quarter_turns` is the mean over 90, 180 and 270
    degrees, where nothing comes from outside. At most 500 images, spread over all that are judged.
    """
    few = spread(judged, _MOST_IMAGES)
    return _summary(len(few), _agreement(model, few, "black"), _agreement(model, few, "reflect"))


def mask_rotation_agreement(model: nn.Module, judged: ImageSet) -> dict[str, Any]:
    """IoU of the masks of rotated images, rotated back, with those of the images as they are: JSON values.

    As `rotation_agreement`, with `besselnet.masks.mask_agreement`: means over the classes, inside the disc
    that every angle shows. `foreground` has the means over the classes without the background.
    `quarter_turns_changed` is the share of all pixels, of whole images, whose class changes under a quarter
    turn, and `quarter_turns_identical` whether there is none. At most 3.2 million pixels of images.
    """
    height, width = judged.image_size
    few = spread(judged, max(1, _MOST_PIXELS // (height * width)))
    background = background_class(judged.classes)
    means: dict[str, list[float]] = {}
    foreground = {}
    borders: dict[str, Border] = {"black_corners": "black", "reflected_borders": "reflect"}
    for name, border in borders.items():
        found = mask_agreement(model, Batches(few, 1), angles=_ANGLES, border=border).agreement
        means[name] = [round(float(share), 6) for share in class_mean(found)]
        others = class_mean(np.delete(found, background, axis=1))[1:]
        # Where no mask has anything but background, nothing can disagree.
        foreground[name] = fmean(np.where(np.isnan(others), 1.0, others).tolist())
    changed = _changed_by_quarter_turns(model, few)
    return {
        **_summary(len(few), *means.values()),
        "foreground": foreground,
        "quarter_turns_changed": changed,
        "quarter_turns_identical": changed == 0,
    }


def background_class(classes: Iterable[str]) -> int:
    """The number of the class "background"; of the first, where none is called so."""
    (number,) = roles_of(tuple(classes))["background"]
    return number


def _summary(images: int, black: list[float], reflected: list[float]) -> dict[str, Any]:
    quarters = [share for i, share in enumerate(black) if i and i % (_ANGLES // 4) == 0]
    return {
        "images": images,
        "black_corners": fmean(black[1:]),
        "reflected_borders": fmean(reflected[1:]),
        "quarter_turns": fmean(quarters),
        "angles": [i * 360 / _ANGLES for i in range(_ANGLES)],
        "black_corners_by_angle": black,
        "reflected_borders_by_angle": reflected,
    }


def _agreement(model: nn.Module, images: ImageSet, border: Border) -> list[float]:
    found = evaluate_rotated(model, Batches(images, _BATCH), angles=_ANGLES, border=border)
    return [round(share, 6) for share in found.agreement]


def _changed_by_quarter_turns(model: nn.Module, images: ImageSet) -> float:
    """Share of the pixels whose class is another after 90, 180 or 270 degrees."""
    device = next((parameter.device for parameter in model.parameters()), None)
    shares = []
    with evaluating(model):
        for image, _ in Batches(images, 1):
            shown = image.to(device)
            upright = model(shown).argmax(1)
            for turns in (1, 2, 3):
                rotated = model(shown.rot90(turns, (2, 3))).argmax(1).rot90(-turns, (1, 2))
                shares.append((rotated != upright).double().mean().item())
    return fmean(shares)
