"""What arrays of labels mean: classes, masks, values, or several labels for each image."""

from collections.abc import Mapping, Sequence
from typing import get_args

import numpy as np
import torch
from torch import Tensor

from besselnet._pixels import option_hint
from besselnet.checks import check_choice
from besselnet.data._imageset import Task
from besselnet.data._masks import UNLABELLED

# Of a file without names of the classes: each number up to the largest label becomes a class.
_LARGEST_LABEL = 9_999


def array_task(targets: Mapping[str, np.ndarray], task: Task | None = None) -> Task:
    """What the labels in `targets`, by the name of their array, are; or `task`, where they can be that.

    | labels | task |
    |---|---|
    | (N,), whole numbers or names | `"classify"` |
    | (N,) of other numbers, (N, K) floats | `"regress"` |
    | (N, K) bool | `"multilabel"` |
    | (N, H, W), whole numbers | `"segment"` |
    """
    if task is not None:
        check_choice("task", task, get_args(Task))
    found = {_task(name, y, task) for name, y in targets.items()}
    if found == {"classify", "regress"}:
        # Values of a small part may happen to be whole.
        found = {"regress"}
    if len(found) > 1:
        raise ValueError(f"{' and '.join(targets)} must have labels of the same kind")
    return found.pop()


def _task(name: str, y: np.ndarray, task: Task | None) -> Task:
    several = y.ndim == 2 and y.shape[1] != 1
    if (task == "segment") != (y.ndim > 2) and task is not None:
        raise ValueError(f"task={task!r}: {name} has shape {y.shape}")
    if task == "classify" and several:
        raise ValueError(f"task={task!r}: {name} has {y.shape[1]} columns, must have one")
    if task is not None or y.ndim > 2:
        return task or "segment"
    if several:
        if y.dtype.kind == "f":
            return "regress"
        if y.dtype.kind == "b":
            return "multilabel"
        hint = option_hint("task", "multilabel")
        raise ValueError(f"{name} has {y.shape[1]} columns of {y.dtype}: {hint}, or regress")
    fractions = y.dtype.kind == "f" and np.any(y != np.round(y))
    return "regress" if fractions else "classify"


def array_labels(
    targets: Sequence[np.ndarray], task: Task, classes: tuple[str, ...] | None
) -> tuple[Tensor, tuple[str, ...]]:
    """The labels of all arrays, one after the other, as `ImageSet` has them, and the names of classes.

    For tasks without masks.
    """
    if task == "classify":
        names, numbers = _number(np.concatenate([y.reshape(-1) for y in targets]), classes)
        return torch.from_numpy(numbers), names
    columns = {y[:1].size for y in targets if len(y)}
    if len(columns) != 1:
        raise ValueError(f"all labels must have the same number of columns, got {sorted(columns)}")
    table = np.concatenate([y.reshape(len(y), -1) for y in targets])
    if table.dtype.kind not in "iufb":
        raise ValueError(f"labels must be numbers, got {table.dtype}")
    width = table.shape[1]
    if task == "multilabel":
        if not np.isin(table, (0, 1)).all():
            raise ValueError("several labels per image must be 0 or 1")
        return torch.from_numpy(table.astype(bool)), classes or tuple(map(str, range(width)))
    # Larger numbers become infinite, which `ImageSet` refuses.
    with np.errstate(over="ignore"):
        values = torch.from_numpy(table.astype(np.float32))
    return values, classes or (
        ("value",) if width == 1 else tuple(f"value {i + 1}" for i in range(width))
    )


def _number(
    labels: np.ndarray, names: tuple[str, ...] | None
) -> tuple[tuple[str, ...], np.ndarray]:
    """Class names, and the labels as indices into them."""
    if labels.dtype.kind in "US":
        text = labels.astype(str).tolist()
        names = names or tuple(sorted(set(text)))
        unknown = sorted(set(text) - set(names))
        if unknown:
            raise ValueError(f"label {unknown[0]!r} is not one of the classes {names}")
        place = {name: number for number, name in enumerate(names)}
        return names, np.array([place[name] for name in text], dtype=np.int64)
    if labels.dtype.kind not in "iufb" or np.any(labels != np.round(labels)):
        raise ValueError(f"labels must be integers or names, got {labels.dtype}")
    if names is None:
        most = int(labels.max(initial=0))
        if most > _LARGEST_LABEL:
            hint = option_hint("task", "regress")
            raise ValueError(
                f"has the label {most}, must be at most {_LARGEST_LABEL}; for values, {hint}"
            )
        names = tuple(str(number) for number in range(most + 1))
    return names, labels.astype(np.int64)


def array_masks(
    name: str, y: np.ndarray, field: np.ndarray | None, size: tuple[int, ...]
) -> np.ndarray:
    """(N, H, W) whole numbers of the masks in an array, `UNLABELLED` where `field` is 0.

    `size` is (N, H, W) of the images; an axis of length 1 for channels may be there.
    """
    masks = _without_channels(name, y, size)
    if masks.dtype.kind not in "iufb" or np.any(masks != np.round(masks)):
        raise ValueError(f"{name}: masks must have integers, got {masks.dtype}; was it resized?")
    low, high = (masks.min(), masks.max()) if masks.size else (0, 0)
    if low < -(2**31) or high >= 2**31:
        raise ValueError(f"{name}: numbers in masks must be below 2^31, got {low} to {high}")
    if masks.dtype.kind == "b":
        masks = masks.astype(np.uint8)
    elif masks.dtype.itemsize > 2:
        masks = masks.astype(np.int32)
    if field is None:
        return masks
    seen = _without_channels(name.replace("y", "fov", 1), field, size)
    return np.where(seen != 0, masks, np.int32(UNLABELLED))


def _without_channels(name: str, masks: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    count, height, width = size
    if masks.shape not in ((*size,), (*size, 1), (count, 1, height, width)):
        raise ValueError(f"{name} has shape {masks.shape}, but the images have {(*size,)}")
    return masks.reshape(size)
