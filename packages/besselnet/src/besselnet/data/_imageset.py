"""Labelled images, in memory or on disk."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch.utils.data import Dataset

from besselnet._pixels import IGNORED
from besselnet.data._stored import Pixels, StoredImages, join_rows, select_rows

# What the labels of images can be; the task of a training follows from them.
Task = Literal["classify", "segment", "regress", "multilabel"]


@dataclass(frozen=True, repr=False)
class ImageSet(Dataset[tuple[torch.Tensor, Any]]):
    """Images with labels, and optionally the group (slide, patient, field of view) of each image.

    A `torch.utils.data.Dataset`: item i is (image, label). The image is float32 (C, H, W) in [0, 1]. The
    label is an int, or a tensor for other tasks than classification. It works with a `DataLoader`.
    `Batches` is faster, because it does not process single images.

    - `images`: (N, C, H, W) uint8, or float32 in [0, 1] if the source has more than 8 bits; a tensor, or
      `StoredImages` on disk, whose `images[rows]` is a tensor;
    - `labels`: their dtype and shape determine the `task`:

      | task | labels | `classes` |
      |---|---|---|
      | `"classify"` | (N,) int64, indices into `classes` | names of the classes |
      | `"segment"` | (N, H, W) uint8, the class of each pixel, or `IGNORED` | names of the classes |
      | `"regress"` | (N, K) float32 | names of the K values |
      | `"multilabel"` | (N, K) bool, whether each of `classes` is in the image | names of the classes |

    - `groups`: (N,) int64 or None. Images of one group are not independent, so splits can keep
      them together;
    - `instances`: with masks, (N, H, W) int32 instance numbers, 0 for none, or None. They are used for
      evaluation, not for training.
    """

    images: Pixels
    labels: torch.Tensor
    classes: tuple[str, ...]
    groups: torch.Tensor | None = None
    instances: torch.Tensor | None = None

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.images.shape[1] < 1 or min(self.images.shape[2:]) < 1:
            raise ValueError(f"images must be (N, C, H, W), got {tuple(self.images.shape)}")
        if self.images.dtype not in (torch.uint8, torch.float32):
            raise ValueError(f"images must be uint8 or float32, got {self.images.dtype}")
        _check_column("groups", self.groups, len(self.images))
        _LABELS_OF[_kind(self.labels)](self)
        if self.instances is not None and (
            self.instances.shape != self.labels.shape or self.instances.dtype != torch.int32
        ):
            raise ValueError(
                f"instances must be int32 with the shape of the masks, got {self.instances.dtype} "
                f"{tuple(self.instances.shape)}"
            )
        # Images on disk were decoded into that range.
        in_memory = not isinstance(self.images, StoredImages)
        if in_memory and self.images.dtype == torch.float32 and len(self.images):
            low, high = (float(v) for v in torch.aminmax(self.images[:]))
            if not (low >= 0 and high <= 1):
                raise ValueError(f"float images must be in [0, 1], got {low:g} to {high:g}")

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, Any]:
        label = self.labels[index]
        return as_floats(self.images[index]), int(label) if label.ndim == 0 else label

    def __repr__(self) -> str:
        shape, kind = tuple(self.images.shape), str(self.images.dtype).removeprefix("torch.")
        named = "values" if self.task == "regress" else "classes"
        task = "" if self.task == "classify" else f"{self.task}, "
        groups = "" if self.groups is None else f", {len(self.groups.unique())} groups"
        return f"ImageSet({task}{shape} {kind}, {len(self.classes)} {named}{groups})"

    @property
    def task(self) -> Task:
        """The task that the labels are for."""
        return _kind(self.labels)

    @property
    def channels(self) -> int:
        """Number of channels C."""
        return self.images.shape[1]

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return self.images.shape[2], self.images.shape[3]

    def class_counts(self) -> torch.Tensor:
        """Return the number of images per class, or of pixels per class for masks: (number of classes,)."""
        if self.task == "regress":
            raise ValueError("class_counts: these images have values, not classes")
        if self.task == "multilabel":
            return self.labels.sum(0)
        counts = torch.bincount(self.labels.flatten(), minlength=len(self.classes))
        return counts[: len(self.classes)]

    def select(self, indices: torch.Tensor) -> "ImageSet":
        """Return the images at `indices`, in that order."""

        def chosen(column: torch.Tensor | None) -> torch.Tensor | None:
            return None if column is None else column[indices]

        return replace(
            self,
            images=select_rows(self.images, indices),
            labels=self.labels[indices],
            groups=chosen(self.groups),
            instances=chosen(self.instances),
        )


def _kind(labels: torch.Tensor) -> Task:
    """What `labels` are, by their type and number of dimensions."""
    kinds: dict[tuple[torch.dtype, int], Task] = {
        (torch.int64, 1): "classify",
        (torch.uint8, 3): "segment",
        (torch.float32, 2): "regress",
        (torch.bool, 2): "multilabel",
    }
    if (labels.dtype, labels.ndim) not in kinds:
        known = ", ".join(f"{dtype} with {ndim}" for dtype, ndim in kinds)
        raise ValueError(
            f"labels are {labels.dtype} with {labels.ndim} dimensions: must be one of {known}"
        )
    return kinds[labels.dtype, labels.ndim]


def _check_column(name: str, column: torch.Tensor | None, images: int) -> None:
    if column is not None and (column.shape != (images,) or column.dtype != torch.int64):
        raise ValueError(
            f"{name} must be int64 and one per image ({images}), "
            f"got {column.dtype} {tuple(column.shape)}"
        )


def _check_classes(found: ImageSet) -> None:
    _check_column("labels", found.labels, len(found))
    out_of_range = (found.labels < 0) | (found.labels >= len(found.classes))
    if out_of_range.any():
        where = int(out_of_range.nonzero()[0])
        raise ValueError(
            f"label out of range: image {where} has label {int(found.labels[where])}, "
            f"but there are {len(found.classes)} classes (0 to {len(found.classes) - 1})"
        )


def _check_masks(found: ImageSet) -> None:
    expected = (len(found), *found.image_size)
    if tuple(found.labels.shape) != expected:
        raise ValueError(
            f"masks must be {expected}, like the images, got {tuple(found.labels.shape)}"
        )
    if not 1 <= len(found.classes) < IGNORED:
        raise ValueError(f"masks must have 1 to {IGNORED - 1} classes, got {len(found.classes)}")
    out_of_range = (found.labels >= len(found.classes)) & (found.labels != IGNORED)
    if out_of_range.any():
        image, row, column = out_of_range.nonzero()[0].tolist()
        raise ValueError(
            f"class out of range: mask {image} has {int(found.labels[image, row, column])} in row {row}, "
            f"column {column}, but there are {len(found.classes)} classes (0 to "
            f"{len(found.classes) - 1}; {IGNORED} for pixels without a label)"
        )


def _check_rows(found: ImageSet) -> None:
    expected = (len(found), len(found.classes))
    if tuple(found.labels.shape) != expected:
        raise ValueError(
            f"labels must be {expected}, one row per image and one column per name, "
            f"got {tuple(found.labels.shape)}"
        )
    if not bool(found.labels.isfinite().all()):
        where = int((~found.labels.isfinite()).nonzero()[0][0])
        raise ValueError(f"values must be finite: image {where} has {found.labels[where].tolist()}")


_LABELS_OF: dict[Task, Callable[[ImageSet], None]] = {
    "classify": _check_classes,
    "segment": _check_masks,
    "regress": _check_rows,
    "multilabel": _check_rows,
}


def as_floats(images: torch.Tensor) -> torch.Tensor:
    """Convert uint8 to float32 in [0, 1]; floats are unchanged."""
    return images.float().div_(255) if images.dtype == torch.uint8 else images


@dataclass(frozen=True)
class Provenance:
    """Origin of images. `str()` returns one line for a log or a caption.

    - `data_set`: name of the data set, and whether its splits are official;
    - `recreated`: whether it was re-created from other images, because the published files are not available;
    - `divided`: how the images were split, "" if the splits came with the images;
    - `fitted`: the size that besselnet chose, and how images were resized;
    - `stored`: why and where images are stored on disk, "" in memory. It is not part of `str()`, because the
      images are the same.
    """

    data_set: str = ""
    recreated: bool = False
    divided: str = ""
    fitted: str = ""
    stored: str = ""

    def __str__(self) -> str:
        return "; ".join(filter(None, (self.data_set, self.divided, self.fitted)))


@dataclass(frozen=True)
class Splits:
    """A loaded data set: `train`, and `val` and `test` if they exist, and its `provenance`."""

    train: ImageSet
    val: ImageSet | None = None
    test: ImageSet | None = None
    provenance: Provenance = Provenance()

    def __post_init__(self) -> None:
        classes, shape = self.train.classes, tuple(self.train.images.shape[1:])
        for name, other in self.parts().items():
            if other.task != self.train.task:
                raise ValueError(
                    f"{name} and train must have the same task, got {other.task} and {self.train.task}"
                )
            if other.classes != classes:
                raise ValueError(
                    f"{name} and train must have the same classes, got {other.classes} and {classes}"
                )
            if tuple(other.images.shape[1:]) != shape:
                raise ValueError(
                    f"{name} and train must have images of the same shape, "
                    f"got {tuple(other.images.shape[1:])} and {shape}"
                )

    def parts(self) -> dict[str, ImageSet]:
        """Return the existing splits by name."""
        found = {"train": self.train, "val": self.val, "test": self.test}
        return {name: part for name, part in found.items() if part is not None}

    def merged(self) -> ImageSet:
        """Return the images of all splits in one set, from which the paper's regimes are sampled.

        Groups and instances are kept if every split has them.
        """
        parts = list(self.parts().values())

        def joined(name: str) -> torch.Tensor | None:
            columns = [getattr(part, name) for part in parts]
            return None if any(column is None for column in columns) else torch.cat(columns)

        return replace(
            self.train,
            images=join_rows([part.images for part in parts]),
            labels=torch.cat([part.labels for part in parts]),
            groups=joined("groups"),
            instances=joined("instances"),
        )
