"""Labelled images in memory."""

from dataclasses import dataclass, replace

import torch
from torch.utils.data import Dataset


@dataclass(frozen=True, repr=False)
class ImageSet(Dataset[tuple[torch.Tensor, int]]):
    """Images, their labels, and optionally the group (slide, patient, field of view) of each.

    A `torch.utils.data.Dataset`: item i is (image, label), float32 (C, H, W) in [0, 1] and an int, so a
    `DataLoader` takes it as it is. `Batches` is faster, since it does not go image by image.

    - `images`: (N, C, H, W) uint8, or float32 in [0, 1] where the source has more than 8 bits;
    - `labels`: (N,) int64, indices into `classes`;
    - `groups`: (N,) int64 or None. Images of one group are not independent, so splits can keep
      them together.
    """

    images: torch.Tensor
    labels: torch.Tensor
    classes: tuple[str, ...]
    groups: torch.Tensor | None = None

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.images.shape[1] < 1 or min(self.images.shape[2:]) < 1:
            raise ValueError(f"images must be (N, C, H, W), got {tuple(self.images.shape)}")
        if self.images.dtype not in (torch.uint8, torch.float32):
            raise ValueError(f"images must be uint8 or float32, got {self.images.dtype}")
        for name, column in (("labels", self.labels), ("groups", self.groups)):
            if column is None:
                continue
            if column.shape != (len(self.images),) or column.dtype != torch.int64:
                raise ValueError(
                    f"{name} must be int64 and one per image ({len(self.images)}), "
                    f"got {column.dtype} {tuple(column.shape)}"
                )
        out_of_range = (self.labels < 0) | (self.labels >= len(self.classes))
        if out_of_range.any():
            where = int(out_of_range.nonzero()[0])
            raise ValueError(
                f"label out of range: image {where} has label {int(self.labels[where])}, "
                f"but there are {len(self.classes)} classes (0 to {len(self.classes) - 1})"
            )
        if self.images.dtype == torch.float32 and len(self.images):
            low, high = (float(v) for v in torch.aminmax(self.images))
            if not (low >= 0 and high <= 1):
                raise ValueError(f"float images must lie in [0, 1], got {low:g} to {high:g}")

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return as_floats(self.images[index]), int(self.labels[index])

    def __repr__(self) -> str:
        shape, kind = tuple(self.images.shape), str(self.images.dtype).removeprefix("torch.")
        groups = "" if self.groups is None else f", {len(self.groups.unique())} groups"
        return f"ImageSet({shape} {kind}, {len(self.classes)} classes{groups})"

    @property
    def channels(self) -> int:
        """Number of channels C."""
        return self.images.shape[1]

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return self.images.shape[2], self.images.shape[3]

    def class_counts(self) -> torch.Tensor:
        """(number of classes,) images of each class."""
        return torch.bincount(self.labels, minlength=len(self.classes))

    def select(self, indices: torch.Tensor) -> "ImageSet":
        """The images at `indices`, in that order."""
        groups = None if self.groups is None else self.groups[indices]
        return replace(
            self, images=self.images[indices], labels=self.labels[indices], groups=groups
        )


def as_floats(images: torch.Tensor) -> torch.Tensor:
    """uint8 -> float32 in [0, 1]; floats as they are."""
    return images.float().div_(255) if images.dtype == torch.uint8 else images


@dataclass(frozen=True)
class Provenance:
    """Where images come from. `str()` is one line for a log or the caption of a table.

    - `data_set`: what the images are, and whether their parts are official;
    - `recreated`: made here from other images, because the published files are not available;
    - `divided`: how they were divided into parts, "" where the parts came with the images;
    - `fitted`: which size they were brought to, and how, where that was chosen for them.
    """

    data_set: str = ""
    recreated: bool = False
    divided: str = ""
    fitted: str = ""

    def __str__(self) -> str:
        return "; ".join(filter(None, (self.data_set, self.divided, self.fitted)))


@dataclass(frozen=True)
class Splits:
    """A data set as loaded: `train`, and `val` and `test` where there are such, and its provenance."""

    train: ImageSet
    val: ImageSet | None = None
    test: ImageSet | None = None
    provenance: Provenance = Provenance()

    def __post_init__(self) -> None:
        classes, shape = self.train.classes, tuple(self.train.images.shape[1:])
        for name, other in self.parts().items():
            if other.classes != classes:
                raise ValueError(
                    f"{name} and train must have the same classes, got {other.classes} and {classes}"
                )
            if tuple(other.images.shape[1:]) != shape:
                raise ValueError(
                    f"{name} and train must have images of one shape, "
                    f"got {tuple(other.images.shape[1:])} and {shape}"
                )

    def parts(self) -> dict[str, ImageSet]:
        """The parts that exist, by name."""
        found = {"train": self.train, "val": self.val, "test": self.test}
        return {name: part for name, part in found.items() if part is not None}

    def merged(self) -> ImageSet:
        """Every image of every part: what the paper's regimes are drawn from.

        Groups are kept when every part has them.
        """
        parts = list(self.parts().values())
        groups = [part.groups for part in parts if part.groups is not None]
        return ImageSet(
            torch.cat([part.images for part in parts]),
            torch.cat([part.labels for part in parts]),
            self.train.classes,
            torch.cat(groups) if len(groups) == len(parts) else None,
        )
