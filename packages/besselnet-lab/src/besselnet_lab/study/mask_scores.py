"""How good the masks of a trained network are: by class, along boundaries, and by single objects."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from torch import nn

from besselnet.data import IGNORED, ImageSet
from besselnet.masks import (
    InstanceScores,
    boundary_f1,
    class_mean,
    confusion_of_masks,
    dice,
    iou,
    label_instances,
    match_instances,
    probabilities_of,
)

__all__ = ["background_class", "mask_scores"]


def mask_scores(model: nn.Module, judged: ImageSet) -> dict[str, Any]:
    """Scores of the masks that `model` gives to images with masks: JSON values, null for none.

    `dice` and `iou` are of all labelled pixels together, means over the classes. `boundary_f1` is the mean
    over the images, and over the classes without the background. `f1`, where there are two classes, is the
    Dice of the one that is not background. `classes` has the three scores of each class. `instances`, where
    the images have them, are those of `match_instances` over all objects, with an IoU above 0.5.
    """
    count, forward = len(judged.classes), probabilities_of(model)
    confusion = np.zeros((count, count), np.int64)
    boundaries, objects = [], InstanceScores()
    for number in range(len(judged)):
        image, label = judged[number]
        found, truth = forward(image.numpy()).argmax(0), label.numpy()
        confusion += confusion_of_masks(found, truth, count)
        boundaries.append(boundary_f1(found, truth, count))
        if judged.instances is not None:
            true = judged.instances[number].numpy()
            numbered = _instances(found, judged.classes)
            objects += match_instances(numbered, true, ignored=truth == IGNORED)
    by_class = {
        "dice": dice(confusion),
        "iou": iou(confusion),
        "boundary_f1": class_mean(np.transpose(boundaries)),
    }
    background = background_class(judged.classes)
    scores: dict[str, Any] = {
        "dice": _number(class_mean(by_class["dice"])),
        "iou": _number(class_mean(by_class["iou"])),
        "boundary_f1": _number(class_mean(np.delete(by_class["boundary_f1"], background))),
        "classes": {
            name: {score: _number(values[i]) for score, values in by_class.items()}
            for i, name in enumerate(judged.classes)
        },
    }
    if count == 2:
        scores["f1"] = _number(by_class["dice"][1 - background])
    if judged.instances is not None:
        scores["instances"] = objects.to_dict()
    return scores


def background_class(classes: Iterable[str]) -> int:
    """The number of the class "background"; of the first, where none is called so."""
    names = list(classes)
    return names.index("background") if "background" in names else 0


def _instances(mask: np.ndarray, classes: tuple[str, ...]) -> np.ndarray:
    border = classes.index("border") if "border" in classes else None
    return label_instances(mask, border=border, background=(background_class(classes),))


def _number(value: Any) -> float | None:
    return None if np.isnan(value) else float(value)
