"""The images of a cell: a data set divided, thinned and rotated as the cell says.

A fifth of the images, the same for every seed, is the validation pool: `judge="val"` judges on the pool
and trains outside it, and thinned test images are drawn outside it. So choices made on the pool never
rest on an image that such a test looks at. With whole groups the pool is set aside in any case, and
half of the rest is for training. With equal classes the test is outside the pool in any case, and a
further fifth, drawn outside it, never trains: of a small class some images are left to test.
"""

import functools
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch

from besselnet.data import (
    AugmentName,
    ImageSet,
    Splits,
    data_source,
    load_data,
    split_indices,
    strata,
)
from besselnet.functional import rotate_images
from besselnet.train import DataConfig

__all__ = [
    "ROOT_VARIABLE",
    "CellImages",
    "Judge",
    "Protocol",
    "check_root",
    "divide_images",
    "load_images",
    "spread",
]

# The folder with the published files. In the environment and not in the settings of a cell: a result is
# the same wherever its images lie, and names no folder of a machine.
ROOT_VARIABLE = "BESSELNET_DATA_ROOT"
_POOL_SHARE, _POOL_SEED = 0.2, 20230419
# With whole groups: the share of the images outside the pool whose groups are for training.
_SIDE_TO_TRAIN = 0.5
# With equal classes: the share of the images outside the pool that never trains, a fifth of all.
_KEPT_TO_TEST = _POOL_SHARE / (1 - _POOL_SHARE)
_PIECE = 1000

Protocol = Literal["paper", "standard"]
Judge = Literal["test", "val"]


@dataclass(frozen=True)
class CellImages:
    """Which images a cell trains on and is judged on.

    Attributes:
        source, file, options, classes_kept: as in `DataEntry`.
        train_images: how many train, as a number or a share of all images.
        image_size: side in pixels; None for the size that they have, or that the source chooses.
        equal_classes: every class has the same share of them; a class with too few gives what it has.
        protocol: "paper" divides all images anew, "standard" keeps the published parts.
        judge: "test", or "val" for the published validation part or else the validation pool.
        judge_images: judge on so many at most; None for all.
        rotate: rotate each judged image by a random angle.
        by_group: keep whole groups on one side of the division.
        seed: of the division.
        augment, interpolation, border, patch, patches_per_image: of the training images, as in `DataConfig`.
    """

    source: str
    train_images: int | float
    image_size: int | None = None
    file: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    classes_kept: tuple[str, ...] = ()
    equal_classes: bool = False
    protocol: Protocol = "paper"
    judge: Judge = "test"
    judge_images: int | None = None
    rotate: bool = False
    by_group: bool = False
    seed: int = 0
    augment: tuple[AugmentName, ...] = ()
    interpolation: Literal["cubic", "bilinear", "nearest"] = "cubic"
    border: Literal["zeros", "reflect"] = "zeros"
    patch: int | None = None
    patches_per_image: int = 1

    def data_config(self) -> DataConfig:
        """What `train_run` needs to know beside the images themselves."""
        return DataConfig(
            source=self.source,
            image_size=self.image_size,
            seed=self.seed,
            augment=self.augment,
            interpolation=self.interpolation,
            border=self.border,
            patch=self.patch,
            patches_per_image=self.patches_per_image,
            options=self.options,
        )


def load_images(images: CellImages) -> Splits:
    """Training images and, in the place of the test images, those that are judged."""
    place = os.environ.get(ROOT_VARIABLE)
    options = json.dumps({**images.options, "image_size": images.image_size}, allow_nan=False)
    whole = _load_whole(images.source, images.file, place, options)
    splits = divide_images(whole, images)
    if not images.rotate or splits.test is None:
        return splits
    divided = f"{splits.provenance.divided}, each rotated by a random angle"
    return replace(
        splits,
        test=_rotated(splits.test, images.seed),
        provenance=replace(splits.provenance, divided=divided),
    )


def check_root(root: Path | None, files: Iterable[str]) -> None:
    """Refuse a data root that is not there, or none where files are looked for in it.

    A file that is missing in it is a failure of the cells that need it, and of no others.
    """
    place = root or os.environ.get(ROOT_VARIABLE)
    if place is None:
        for file in files:
            raise ValueError(_no_root(file))
    elif not Path(place).is_dir():
        raise ValueError(f"{place}: no such data folder (--data-root or {ROOT_VARIABLE})")


def _no_root(file: str) -> str:
    return f"{file} must be in the data root: use --data-root, or set {ROOT_VARIABLE}"


@functools.lru_cache(maxsize=1)
def _load_whole(source: str, file: str | None, root: str | None, options: str) -> Splits:
    """The whole data set; kept, because the next cell of a worker is often of the same."""
    if file is not None:
        if root is None:
            raise ValueError(_no_root(file))
        root = str(Path(root) / file)
    settings = json.loads(options)
    if "by_group" in data_source(source).options:
        # The parts are merged again: with few groups, dividing them could fail for nothing.
        settings.setdefault("by_group", False)
    return load_data(source, root=root, **settings)


def divide_images(splits: Splits, images: CellImages) -> Splits:
    """The training images and, as `test`, the judged images, before they are rotated.

    "paper" draws from all images of `splits`. "standard" trains on images of its train part and judges
    on its test or val part, or on the pool of its train part where there is no val part.
    """
    _check_labels(splits.train, images)
    whole, official = _sides(splits, images)
    seed, by_group, kept = images.seed, images.by_group, images.classes_kept
    everything = _of_classes(whole, kept)
    # Of all classes: the pool is the same whichever of them are kept.
    pool = _draw(whole, torch.arange(len(whole)), _POOL_SHARE, _POOL_SEED, by_group)
    outside = _without(everything, pool)
    available, rest = everything, None
    if official is not None:
        rest = _of_classes(official, kept)
    elif images.judge == "val":
        available, rest = outside, _without(everything, outside)
    elif by_group:
        available = _draw(whole, outside, _SIDE_TO_TRAIN, seed, by_group)
        rest = _without(outside, available)
    elif images.equal_classes:
        available = _without(everything, _draw(whole, outside, _KEPT_TO_TEST, seed, False))
    chosen = _choose(whole, available, images, len(everything))
    if rest is None:
        test_outside = images.judge_images is not None or images.equal_classes
        rest = _without(outside if test_outside else everything, chosen)
    judged, judged_of = rest, whole if official is None else official
    if images.judge_images is not None and images.judge_images < len(rest):
        judged = _draw(judged_of, rest, images.judge_images, seed, False)
    thinned = f" (of {len(rest)})" if len(judged) < len(rest) else ""
    equal = " (classes equal where possible)" if images.equal_classes else ""
    divided = (
        f"protocol {images.protocol}, {'whole groups' if by_group else 'images'} divided with seed "
        f"{seed}: {len(chosen)} to train{equal}, {len(judged)}{thinned} "
        f"{'validation' if images.judge == 'val' else 'test'} images judged"
    )
    return Splits(
        _only_classes(whole.select(chosen), kept),
        None,
        _only_classes(judged_of.select(judged), kept),
        replace(splits.provenance, divided=divided),
    )


def spread(images: ImageSet, most: int) -> ImageSet:
    """At most so many of the images, at equal distances."""
    count = min(most, len(images))
    return images.select(torch.linspace(0, len(images) - 1, count).round().long())


def _check_labels(train: ImageSet, images: CellImages) -> None:
    """Refuse what a study has no scores for, and what needs images of one class each."""
    if train.task not in ("classify", "segment"):
        raise ValueError(f"{images.source}: labels must be classes or masks, not {train.task!r}")
    if train.task == "segment":
        for name in ("equal_classes", "classes_kept", "rotate"):
            if value := getattr(images, name):
                raise ValueError(f"{name}={value!r}: must be unset for masks")


def _sides(splits: Splits, images: CellImages) -> tuple[ImageSet, ImageSet | None]:
    """The images to train on, and the published part to judge on, where the protocol has one."""
    if images.protocol == "paper":
        return splits.merged(), None
    if splits.test is None:
        raise ValueError(
            'protocol "standard" requires a data set with official train and test splits'
        )
    if images.by_group:
        raise ValueError('protocol "standard" keeps the official splits: by_group must be false')
    return splits.train, splits.val if images.judge == "val" else splits.test


def _choose(
    whole: ImageSet, available: torch.Tensor, images: CellImages, total: int
) -> torch.Tensor:
    """Indices of the training images among the available ones; a share is one of `total`."""
    wanted = images.train_images
    count = wanted if isinstance(wanted, int) else int(wanted * total)
    if images.equal_classes:
        labels = whole.labels[available]
        each = count // len(labels.unique())
        if each < 1:
            raise ValueError(f"train_images={count}: must be at least one per class")
        parts = [available[labels == label] for label in labels.unique()]
        drawn = [_draw(whole, p, each, images.seed, False) if each < len(p) else p for p in parts]
        return torch.cat(drawn).sort().values
    if count > len(available):
        raise ValueError(
            f"train_images={count}: must be at most the {len(available)} available images"
        )
    if count == len(available):
        return available
    return _draw(whole, available, count, images.seed, False)


def _of_classes(images: ImageSet, kept: tuple[str, ...]) -> torch.Tensor:
    """Indices of the images of the classes `kept`, of all if none is named."""
    if not kept:
        return torch.arange(len(images))
    return torch.isin(images.labels, _numbers(images, kept)).nonzero()[:, 0]


def _only_classes(images: ImageSet, kept: tuple[str, ...]) -> ImageSet:
    """Images that are of the classes `kept` alone, with these as the classes."""
    if not kept:
        return images
    labels = (images.labels[:, None] == _numbers(images, kept)).long().argmax(1)
    return replace(images, labels=labels, classes=kept)


def _numbers(images: ImageSet, kept: tuple[str, ...]) -> torch.Tensor:
    for name in kept:
        if name not in images.classes:
            raise ValueError(
                f"classes_kept: {name!r} is not one of the classes {', '.join(images.classes)}"
            )
    return torch.tensor([images.classes.index(name) for name in kept])


def _draw(
    whole: ImageSet, among: torch.Tensor, size: int | float, seed: int, by_group: bool
) -> torch.Tensor:
    """Indices of a stratified part of the images `among`; whole groups if `by_group`."""
    if by_group and whole.groups is None:
        raise ValueError("by_group=true requires images with groups")
    groups = whole.groups[among] if by_group and whole.groups is not None else None
    sizes = (size,) if isinstance(size, int) else (float(size),)
    (part,) = split_indices(strata(whole)[among], sizes, seed, groups)
    return among[part]


def _without(indices: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    return indices[~torch.isin(indices, others)]


def _rotated(images: ImageSet, seed: int) -> ImageSet:
    """Each image rotated by an angle uniform in [0, 360), the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    angles = 360 * torch.rand(len(images), generator=generator)
    pieces = zip(images.images[:].split(_PIECE), angles.split(_PIECE))
    rotated = torch.cat([rotate_images(piece, angle) for piece, angle in pieces])
    if rotated.is_floating_point():
        rotated = rotated.clamp_(0, 1)
    return replace(images, images=rotated)
