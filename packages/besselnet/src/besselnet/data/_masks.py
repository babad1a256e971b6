"""Masks of class numbers and of instance numbers."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor

from besselnet._pixels import IGNORED, option_hint
from besselnet.checks import check_count

MaskKind = Literal["classes", "colours", "instances"]
# A pixel without a label, in masks of any numbers: outside the frame, or of no class in the legend.
UNLABELLED = -1
INSTANCE_CLASSES = ("background", "object", "border")
# Pixels from another object within which a pixel of an object is border.
_REACH = 2
# Of masks whose classes nobody has named; more numbers, or larger ones, mean something else.
_MOST_UNNAMED = 32
_LARGEST_INSTANCE = 65_535


def check_ignore(ignore: object) -> tuple[int, ...]:
    """Numbers in masks that stand for no label, from an integer or a list of them."""
    numbers = ignore if isinstance(ignore, list | tuple) else [ignore]
    return tuple(check_count("ignore", number, least=-(2**31)) for number in numbers)


def label_masks(
    masks: Sequence[np.ndarray],
    places: Sequence[str],
    *,
    instances: bool = False,
    names: tuple[str, ...] | None = None,
    ignore: tuple[int, ...] = (),
) -> tuple[Tensor, Tensor | None, tuple[str, ...]]:
    """Labels (N, H, W) uint8, numbers of objects (N, H, W) int32 or None, and the names of the classes.

    - `masks`: (H, W) whole numbers each, all masks of a set; `places` is what each is called in an error;
    - `instances`: whether the numbers are those of objects, 0 for none;
    - `names`: of the classes 0, 1, ...; unset: their numbers, which are below 32;
    - `ignore`: numbers that become `IGNORED`, as `UNLABELLED` does.
    """
    ignore = (*ignore, UNLABELLED)
    if not instances:
        labels, names = _class_masks(masks, places, names, ignore)
        return torch.from_numpy(np.stack(labels)), None, names
    numbers = np.stack([_objects(*pair, ignore) for pair in zip(masks, places)])
    pairs = zip(masks, numbers)
    labels = [
        np.where(np.isin(mask, ignore), IGNORED, instance_classes(objects)).astype(np.uint8)
        for mask, objects in pairs
    ]
    return torch.from_numpy(np.stack(labels)), torch.from_numpy(numbers), INSTANCE_CLASSES


def _class_masks(
    masks: Sequence[np.ndarray],
    places: Sequence[str],
    names: tuple[str, ...] | None,
    ignore: tuple[int, ...],
) -> tuple[list[np.ndarray], tuple[str, ...]]:
    """(H, W) uint8 classes of each mask.

    255 is `IGNORED`. Where no other number than 0 and 255 occurs, 255 is class 1: so masks of one class
    are mostly stored.
    """
    used = [np.setdiff1d(np.unique(mask), ignore) for mask in masks]
    together = set(np.concatenate(used).tolist())
    two = {IGNORED} <= together <= {0, IGNORED} and (names is None or len(names) == 2)
    most = _MOST_UNNAMED if names is None else len(names)
    found = []
    for mask, place, values in zip(masks, places, used):
        if not two:
            _check_classes(mask, place, values, most, names)
        classes = mask == IGNORED if two else mask
        found.append(np.where(np.isin(mask, ignore), IGNORED, classes).astype(np.uint8))
    if names is None:
        largest = 1 if two else max(together - {IGNORED}, default=0)
        names = tuple(map(str, range(int(largest) + 1)))
    if len(names) < 2:
        raise ValueError(
            f"{places[0]}: masks have only one class ({names[0]}); must have at least two"
        )
    return found, names


def _check_classes(
    mask: np.ndarray,
    place: str,
    values: np.ndarray,
    most: int,
    names: tuple[str, ...] | None,
) -> None:
    wrong = values[(values < 0) | ((values >= most) & (values != IGNORED))]
    if not len(wrong):
        return
    row, column = np.argwhere(mask == wrong[0])[0]
    advice = ""
    if names is None:
        advice = (
            f". It has {len(values)} different values. If they are instance numbers, "
            f"{option_hint('masks', 'instances')}; if they are classes, add a legend. Interpolation also "
            "creates such values: resize masks by nearest-neighbour interpolation"
        )
    raise ValueError(
        f"{place}: has {wrong[0]} in row {row}, column {column}: must be a class (0 to {most - 1}), or "
        f"{IGNORED} for pixels without a label{advice}"
    )


def _objects(mask: np.ndarray, place: str, ignore: tuple[int, ...]) -> np.ndarray:
    """(H, W) int32 numbers of objects, 0 where there is none."""
    numbers = np.where(np.isin(mask, ignore), 0, mask)
    if numbers.min() < 0 or numbers.max() > _LARGEST_INSTANCE:
        raise ValueError(
            f"{place}: instance numbers must be 1 to {_LARGEST_INSTANCE}, got {numbers.min()} to "
            f"{numbers.max()}"
        )
    return numbers.astype(np.int32)


def instance_classes(instances: np.ndarray) -> np.ndarray:
    """Convert instance numbers (H, W) to classes (H, W) uint8: "background", "object", "border".

    Object pixels within two pixels of another object are border. It separates touching objects.
    """
    steps = np.arange(-_REACH, _REACH + 1)
    disc = steps[:, None] ** 2 + steps**2 <= _REACH**2
    inside = instances > 0
    # Outside the frame there is no object; no number is as large as the last one.
    most = ndimage.maximum_filter(instances, footprint=disc, mode="constant", cval=0)
    absent = np.int32(_LARGEST_INSTANCE + 1)
    numbers = np.where(inside, instances, absent)
    least = ndimage.minimum_filter(numbers, footprint=disc, mode="constant", cval=absent)
    border = inside & ((most != instances) | (least != instances))
    return inside.astype(np.uint8) + border
