"""Split images, stratified by class, or by whole groups."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from besselnet._pixels import counted
from besselnet.checks import check_count, check_number
from besselnet.data._imageset import ImageSet, Provenance, Splits

# Of a sum of shares.
ROUNDING = 1e-9


def split_indices(
    labels: torch.Tensor,
    sizes: Sequence[int] | Sequence[float],
    seed: int,
    groups: torch.Tensor | None = None,
) -> tuple[torch.Tensor, ...]:
    """Return the indices of a stratified split, one part per entry of `sizes`.

    `labels` (N,) are class numbers. `sizes` are numbers of images (all int) or fractions (all float,
    sum <= 1); the remaining images are in no part. Each part has exactly its size, and per class the
    proportional number of images up to one. Indices are in ascending order.

    With `groups` (N,), every group is in one part (or in none). Sizes and proportions are then met as
    closely as whole groups allow.
    """
    wanted = _wanted_counts(sizes, len(labels))
    generator = np.random.default_rng(seed)
    if groups is None:
        part_of = _assign_images(labels.numpy(), wanted, generator)
    else:
        part_of = _assign_groups(labels.numpy(), groups.numpy(), wanted, generator)
    parts = [np.flatnonzero(part_of == part) for part in range(len(wanted))]
    if not all(map(len, parts)):
        part = list(map(len, parts)).index(0)
        raise ValueError(f"part {part} of {tuple(sizes)} would be empty: too few groups")
    return tuple(torch.from_numpy(indices) for indices in parts)


def stratified_split(
    imageset: ImageSet,
    sizes: Sequence[int] | Sequence[float],
    seed: int,
    by_group: bool = False,
) -> tuple[ImageSet, ...]:
    """Split an image set by `split_indices`; with `by_group`, groups of images stay together.

    Images with several classes, in masks or labels, count as their rarest class. Images with values are
    split at random.
    """
    groups = _groups_of(imageset, by_group)
    return tuple(map(imageset.select, split_indices(strata(imageset), sizes, seed, groups)))


def strata(imageset: ImageSet) -> torch.Tensor:
    """Return the class (N,) by which each image is stratified, so that no part lacks a rare class."""
    if imageset.task == "classify":
        return imageset.labels
    if imageset.task == "regress":
        return torch.zeros(len(imageset), dtype=torch.int64)
    has = imageset.labels
    if imageset.task == "segment":
        numbers = range(len(imageset.classes))
        has = torch.stack([(imageset.labels == n).flatten(1).any(1) for n in numbers], 1)
    images = has.sum(0).expand_as(has)
    rarest = images.masked_fill(~has, len(has) + 1).min(1).indices
    return torch.where(has.any(1), rarest, len(imageset.classes))


def _groups_of(imageset: ImageSet, by_group: bool) -> torch.Tensor | None:
    if by_group and imageset.groups is None:
        raise ValueError("by_group=True: must be False for an image set without groups")
    return imageset.groups if by_group else None


def check_shares(name: str, split: object) -> list[float]:
    """Three shares of the images, for train, val and test, that sum to at most 1."""
    try:
        shares = [check_number(name, s, above=0) for s in split]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        shares = []
    if len(shares) != 3 or sum(shares) > 1 + ROUNDING:
        raise ValueError(
            f"{name}={split!r}: must be three fractions (train, val, test) > 0 that sum to at most 1"
        )
    return shares


def _wanted_counts(sizes: Sequence[int] | Sequence[float], total: int) -> list[int]:
    """Numbers of images from numbers or shares; shares that sum to one leave no image over."""
    if not sizes or any(not size > 0 for size in sizes):
        raise ValueError(f"sizes={tuple(sizes)}: must be positive, for at least one part")
    if all(isinstance(size, int) for size in sizes):
        counts = [int(size) for size in sizes]
    elif all(isinstance(size, float) for size in sizes):
        edges = np.cumsum([0.0, *sizes])
        if edges[-1] > 1 + ROUNDING:
            raise ValueError(f"sizes={tuple(sizes)}: fractions must sum to at most 1")
        counts = np.diff(np.round(edges * total).astype(int)).tolist()
    else:
        raise ValueError(f"sizes={tuple(sizes)}: must be all int or all float")
    if sum(counts) > total:
        raise ValueError(f"sizes={tuple(sizes)}: must sum to at most {counted(total, 'image')}")
    if 0 in counts:
        empty = f"part {counts.index(0)} of {tuple(sizes)} would be empty"
        raise ValueError(f"{empty}: {counted(total, 'image')} in total")
    return counts


def _assign_images(
    labels: np.ndarray, wanted: list[int], generator: np.random.Generator
) -> np.ndarray:
    """The part of each image, -1 for none."""
    order = generator.permutation(len(labels))
    queues = [order[labels[order] == label] for label in np.unique(labels)]
    left = np.array([len(queue) for queue in queues])
    part_of = np.full(len(labels), -1)
    for part, size in enumerate(wanted):
        take = _apportion(size, left, generator)
        for queue, count, remaining in zip(queues, take, left):
            start = len(queue) - remaining
            part_of[queue[start : start + count]] = part
        left = left - take
    return part_of


def _apportion(size: int, left: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """`size` seats for classes in proportion to `left`: floors, then the largest remainders."""
    quota = size * left / left.sum()
    take = np.floor(quota).astype(int)
    # A random second key, so that equal remainders do not always favour the first class.
    rank = np.lexsort((generator.random(len(left)), take - quota))
    take[rank[: size - take.sum()]] += 1
    return take


def _assign_groups(
    labels: np.ndarray,
    groups: np.ndarray,
    wanted: list[int],
    generator: np.random.Generator,
) -> np.ndarray:
    """The part of each image, -1 for none, all images of a group alike.

    Large groups first, each to the part that stays nearest to its wanted class counts; distances
    are relative to the part's size, so that small parts count as much as large ones.
    """
    _, group_of = np.unique(groups, return_inverse=True)
    table = np.zeros((group_of.max() + 1, labels.max() + 1))
    np.add.at(table, (group_of, labels), 1)
    leftover = len(labels) - sum(wanted)
    targets = np.array([*wanted, *([leftover] if leftover else [])], dtype=float)
    goal = targets[:, None] * (table.sum(0) / len(labels))[None, :]
    filled = np.zeros_like(goal)
    group_part = np.zeros(len(table), dtype=int)
    order = generator.permutation(len(table))
    order = order[np.argsort(-table.sum(1)[order], kind="stable")]
    for group in order:
        before = ((filled - goal) ** 2).sum(1)
        after = ((filled + table[group] - goal) ** 2).sum(1)
        part = int(np.argmin((after - before) / targets))
        filled[part] += table[group]
        group_part[group] = part
    group_part[group_part == len(wanted)] = -1
    return group_part[group_of]


def divide(
    imageset: ImageSet,
    data_set: str,
    split: Sequence[float],
    seed: int,
    by_group: bool | None = None,
) -> Splits:
    """Split a data set without official splits into train, val and test.

    `data_set` describes the images in one line; `split` has the three fractions. `by_group=None` keeps
    groups together if there are groups: images of one slide or patient in both train and test make the
    test too easy.
    """
    shares = check_shares("split", split)
    whole_groups = imageset.groups is not None if by_group is None else by_group
    train, val, test = stratified_split(imageset, shares, seed, by_group=whole_groups)
    unit = _unit(whole_groups)
    shown = "/".join(f"{share:g}" for share in shares)
    how = f"{unit} split {shown}, seed {seed}"
    return Splits(train, val, test, Provenance(data_set, divided=how))


def hold_out(splits: Splits, share: float, seed: int, by_group: bool | None = None) -> Splits:
    """`splits` with a `share` of its training images as validation images; `by_group` as in `divide`."""
    check_number("val", share, above=0, below=1)
    whole_groups = splits.train.groups is not None if by_group is None else by_group
    shares = (1.0 - share, float(share))
    train, val = stratified_split(splits.train, shares, seed, by_group=whole_groups)
    how = f"{share:g} of the training {_unit(whole_groups)} for validation, seed {seed}"
    return replace(splits, train=train, val=val, provenance=replace(splits.provenance, divided=how))


def _unit(whole_groups: bool) -> str:
    return "groups" if whole_groups else "images"


def fold_splits(
    imageset: ImageSet,
    folds: int,
    seed: int,
    by_group: bool | None = None,
    *,
    val_share: float = 0.0,
    data_set: str = "",
) -> list[Splits]:
    """Return the `folds` splits of a cross-validation, stratified as in `stratified_split`.

    Each image is in the test set of exactly one fold. A fraction `val_share` of the others are validation
    images (0 for none), the rest are training images. `by_group` and `data_set` are as in `divide`.
    """
    check_count("folds", folds, least=2, most=len(imageset))
    check_number("val_share", val_share, least=0, below=1)
    whole_groups = imageset.groups is not None if by_group is None else by_group
    groups = _groups_of(imageset, whole_groups)
    parts = split_indices(strata(imageset), [1 / folds] * folds, seed, groups)
    found = []
    for number, tested in enumerate(parts, 1):
        outside = torch.ones(len(imageset), dtype=torch.bool)
        outside[tested] = False
        rest = imageset.select(outside.nonzero()[:, 0])
        splits = Splits(rest, test=imageset.select(tested))
        if val_share:
            splits = hold_out(splits, val_share, seed, whole_groups)
        how = f"fold {number} of {folds}, {_unit(whole_groups)} split, seed {seed}"
        found.append(replace(splits, provenance=Provenance(data_set, divided=how)))
    return found
