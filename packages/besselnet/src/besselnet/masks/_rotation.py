"""Measure how masks change when images are rotated."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from besselnet._pixels import IGNORED
from besselnet.checks import check_choice, check_count
from besselnet.functional import (
    VIEWS,
    Interpolation,
    View,
    hidden_colour,
    rotate_images,
    show_rotated,
    soft_disc,
)
from besselnet.masks._scores import Array, class_mean, confusion_of_masks, dice, iou
from besselnet.nn import evaluating

# Every tenth of a degree.
MOST_ANGLES = 3600


@dataclass(frozen=True)
class MaskAgreement:
    """Result of `mask_agreement`, with one entry for each of A angles.

    Attributes:
        angles: angles in degrees, counter-clockwise; the first is 0.
        upright: (A, K, K) pixels of class i in the upright mask and class j in the mask rotated back.
        truth: (A, K, K) the same with the true mask instead of the upright one; None without true masks.
        border: content of the corners: "disc", "reflect" or "black".
    """

    angles: tuple[float, ...]
    upright: Array
    truth: Array | None
    border: View

    @property
    def agreement(self) -> Array:
        """IoU (A, K) per class of the upright mask and the mask rotated back."""
        return iou(self.upright)

    @property
    def dice(self) -> Array | None:
        """Dice (A, K) per class of the true mask and the mask rotated back."""
        return None if self.truth is None else dice(self.truth)

    def to_dict(self, classes: Sequence[str] | None = None) -> dict[str, Any]:
        """Convert to JSON values: the summary, per class and over the classes, then the curves.

        Means are over all angles except 0. An undefined score is None.
        """
        names = classes or [str(i) for i in range(self.upright.shape[-1])]
        agreement = class_mean(self.agreement)
        found: dict[str, Any] = {
            "border": self.border,
            "agreement": _number(class_mean(agreement[1:])),
            "worst_agreement": _least(agreement),
            "agreement_by_class": _by_class(self.agreement, names),
        }
        curves = {"angles": list(self.angles), "agreement_by_angle": _numbers(agreement)}
        if self.dice is not None:
            scores = class_mean(self.dice)
            least, most = _least(scores), _least(-scores)
            found |= {
                "upright_dice": _number(scores[0]),
                "rotated_dice": _number(class_mean(scores[1:])),
                "dice_spread": None if least is None or most is None else -most - least,
                "dice_by_class": _by_class(self.dice, names),
            }
            curves["dice"] = _numbers(scores)
        return {**found, **curves}


def mask_agreement(
    model: nn.Module,
    batches: Tensor | Iterable[tuple[Tensor, Tensor]],
    angles: int = 24,
    *,
    border: View = "disc",
    interpolation: Interpolation = "cubic",
    colour: Tensor | None = None,
) -> MaskAgreement:
    """Compare the mask of each image with the masks of its rotated copies, rotated back.

    The probabilities of the rotated image are rotated back; then the most probable class is taken, as for the
    upright image. For images that are not square, the network sees the central square, for which quarter
    turns are exact. Only pixels inside the disc that is visible at every angle count. Pixels that are
    `IGNORED` in the true masks are left out.

    Args:
        model: maps images (N, C, H, W) to logits (N, K, H, W).
        batches: images and true masks (N, H, W), or only images.
        angles: number of angles, equally spaced from 0.
        border: corners of upright and rotated images, see `besselnet.functional.show_rotated`.
        interpolation: interpolation of rotated images and probabilities.
        colour: colour (C,) of the pixels outside the disc. Default: the mean over all images of the hidden
            pixels, which requires a second pass over the batches.
    """
    check_count("angles", angles, least=2, most=MOST_ANGLES)
    check_choice("border", border, VIEWS)
    pairs: Iterable[tuple[Tensor, Tensor | None]]
    pairs = [(batches, None)] if isinstance(batches, Tensor) else batches
    if border == "disc" and colour is None:
        if iter(pairs) is pairs:
            raise ValueError(
                "batches is an iterator: must be readable twice (such as a list) for border='disc', "
                "unless colour is given"
            )
        colour = hidden_colour((_middle(images), None) for images, _ in pairs)
    parameter = next(model.parameters(), None)
    degrees = tuple((torch.arange(angles) * (360 / angles)).tolist())
    upright: list[Any] = [0] * angles
    truth: list[Any] = [0] * angles
    has_truth = False
    with evaluating(model):
        for images, masks in pairs:
            images = images if parameter is None else images.to(parameter.device)
            images = _middle(images)
            side = images.shape[-1]
            outside = soft_disc(side, side, fade=0).expand(len(images), -1, -1) == 0
            if masks is not None:
                has_truth, masks = True, _middle(masks.cpu())
                outside = outside | (masks == IGNORED)
            first: Tensor | None = None
            for number, angle in enumerate(degrees):
                logits = model(show_rotated(images, angle, border, interpolation, colour))
                likely = logits.float().softmax(1)
                if not bool(likely.isfinite().all()):
                    raise ValueError("the logits of the network are infinite or NaN")
                if angle:
                    likely = rotate_images(likely, -angle, interpolation, "reflect")
                mask = likely.argmax(1).cpu()
                first = mask if first is None else first
                classes = logits.shape[1]
                seen = first.masked_fill(outside, IGNORED)
                upright[number] = upright[number] + confusion_of_masks(mask, seen, classes)
                if masks is not None:
                    true = masks.long().masked_fill(outside, IGNORED)
                    truth[number] = truth[number] + confusion_of_masks(mask, true, classes)
    if isinstance(upright[0], int):
        raise ValueError("batches is empty: must have at least one batch")
    return MaskAgreement(degrees, np.stack(upright), np.stack(truth) if has_truth else None, border)


def _middle(pixels: Tensor) -> Tensor:
    """The largest square (..., S, S) in the middle of (..., H, W)."""
    height, width = pixels.shape[-2:]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return pixels[..., top : top + side, left : left + side]


def _by_class(scores: Array, classes: Sequence[str]) -> dict[str, float | None]:
    """Of (A, K) scores: the mean of each class over the rotated angles."""
    return dict(zip(classes, _numbers(class_mean(scores[1:].T))))


def _least(scores: Array) -> float | None:
    return None if np.isnan(scores).all() else float(np.nanmin(scores))


def _numbers(scores: Array) -> list[float | None]:
    return [_number(score) for score in scores]


def _number(value: Any) -> float | None:
    """A JSON value; None for a score of nothing."""
    return None if np.isnan(value) else float(value)
