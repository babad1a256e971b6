"""The images of a cell: a data set divided, thinned and turned as the cell says.

It is a data set called "study" for `besselnet.data.load_data`, so that a cell is an ordinary run. A
fifth of the images, the same for every seed, is the validation pool: `judge="val"` judges on the pool
and trains outside it, and thinned test images are drawn outside it. So choices made on the pool never
rest on an image that such a test looks at. With whole groups the pool is set aside in any case, and
half of the rest is for training.
"""

import functools
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from besselnet.data import ImageSet, Splits, data_source, load_data, register_data, stratified_split
from besselnet.functional import rotate_images

__all__ = ["ROOT_VARIABLE", "cell_images", "check_root"]

# The folder with the published files. In the environment and not in the configuration of a cell: a
# result is the same wherever its images lie, and names no folder of a machine.
ROOT_VARIABLE = "BESSELNET_DATA_ROOT"
SOURCE = "study"
_POOL_SHARE, _POOL_SEED = 0.2, 20230419
# With whole groups: the share of the images outside the pool whose groups are for training.
_SIDE_TO_TRAIN = 0.5
_PIECE = 1000


@register_data(
    SOURCE,
    summary="a data set divided as a cell of a study says",
    obtain="it is for `besselnet study`",
    listed=False,
)
def load_study(
    *,
    root: Path | None,
    image_size: int | None = None,
    seed: int = 0,
    base: str,
    file: str | None = None,
    base_options: dict[str, Any] | None = None,
    protocol: str = "paper",
    train_images: int | float,
    judge: str = "test",
    judge_images: int | None = None,
    turn: bool = False,
    by_group: bool = False,
) -> Splits:
    """Training images and, in the place of the test images, those that are judged."""
    place = root or os.environ.get(ROOT_VARIABLE)
    options = {**(base_options or {}), "image_size": image_size}
    whole = _load_base(base, file, None if place is None else str(place), json.dumps(options))
    train, judged, how = cell_images(
        whole,
        protocol=protocol,
        train_images=train_images,
        judge=judge,
        judge_images=judge_images,
        by_group=by_group,
        seed=seed,
    )
    if turn:
        judged = _turned(judged, seed)
        how += ", each turned by a random angle"
    source = whole.source.split("; images divided")[0].split("; groups divided")[0]
    return Splits(train, None, judged, f"{source}; {how}")


def check_root(root: Path | None, files: Iterable[str]) -> None:
    """Refuse a data root that is not there, or none where files are looked for in it.

    A file that is missing in it is a failure of the cells that need it, and of no others.
    """
    place = root or os.environ.get(ROOT_VARIABLE)
    if place is None:
        for file in files:
            raise ValueError(_no_root(file))
    elif not Path(place).is_dir():
        raise ValueError(f"{place}: no such folder of data (--data-root, or {ROOT_VARIABLE})")


def _no_root(file: str) -> str:
    return f"{file} is looked for in the data root: give --data-root, or set {ROOT_VARIABLE}"


@functools.lru_cache(maxsize=1)
def _load_base(base: str, file: str | None, root: str | None, options: str) -> Splits:
    """The whole data set; kept, because one cell asks for it twice."""
    if file is not None:
        if root is None:
            raise ValueError(_no_root(file))
        root = str(Path(root) / file)
    settings = json.loads(options)
    if "by_group" in data_source(base).options:
        # The parts are merged again: with few groups, dividing them could fail for nothing.
        settings.setdefault("by_group", False)
    return load_data(base, root=root, **settings)


def cell_images(
    splits: Splits,
    *,
    protocol: str,
    train_images: int | float,
    judge: str,
    judge_images: int | None,
    by_group: bool,
    seed: int,
) -> tuple[ImageSet, ImageSet, str]:
    """(training images, judged images, how they were divided in words).

    "paper" draws from all images of `splits`, "standard" trains on images of its train part and tests
    on its test part.
    """
    if protocol == "standard":
        if splits.test is None or splits.val is not None:
            raise ValueError(
                'protocol "standard" needs a data set with official train and test parts'
            )
        if by_group:
            raise ValueError('protocol "standard" keeps the official parts: by_group must be false')
        whole, official = splits.train, splits.test
    else:
        whole, official = splits.merged(), None
    everything = torch.arange(len(whole))
    (pool,) = _draw(whole, everything, (_POOL_SHARE,), _POOL_SEED, by_group)
    outside = _without(everything, pool)
    judged_of, rest = whole, None
    if judge == "val":
        available, rest = outside, pool
    elif by_group:
        (available,) = _draw(whole, outside, (_SIDE_TO_TRAIN,), seed, by_group)
        rest = _without(outside, available)
    else:
        available = everything
    count = train_images if isinstance(train_images, int) else int(train_images * len(whole))
    if count > len(available):
        raise ValueError(f"train_images={count}: there are {len(available)} to draw from")
    chosen = available
    if count < len(available):
        (chosen,) = _draw(whole, available, (count,), seed, False)
    if rest is None and official is not None:
        judged_of, rest = official, torch.arange(len(official))
    elif rest is None:
        rest = _without(outside if judge_images is not None else everything, chosen)
    kept = rest
    if judge_images is not None and judge_images < len(rest):
        (kept,) = _draw(judged_of, rest, (judge_images,), seed, False)
    thinned = f" (of {len(rest)})" if len(kept) < len(rest) else ""
    unit = "whole groups" if by_group else "images"
    how = (
        f"protocol {protocol}, {unit} divided with seed {seed}: {len(chosen)} to train, "
        f"{len(kept)}{thinned} {'validation' if judge == 'val' else 'test'} images judged"
    )
    return whole.select(chosen), judged_of.select(kept), how


def _draw(
    whole: ImageSet,
    among: torch.Tensor,
    sizes: tuple[int] | tuple[float],
    seed: int,
    by_group: bool,
) -> tuple[torch.Tensor, ...]:
    """Indices of stratified parts of the images `among`; whole groups if `by_group`."""
    if by_group and whole.groups is None:
        raise ValueError("by_group=true needs images with groups, and these have none")
    groups = whole.groups[among] if by_group and whole.groups is not None else None
    # Only labels and groups matter for a division: the images themselves stay where they are. Without
    # groups to keep together, the group of an image is its index, which comes back with the part.
    labels = whole.labels[among]
    blank = torch.zeros(len(among), 1, 1, 1, dtype=torch.uint8)
    keys = ImageSet(blank, labels, whole.classes, among if groups is None else groups)
    parts = stratified_split(keys, sizes, seed, by_group=by_group)
    found = [part.groups for part in parts if part.groups is not None]
    if groups is None:
        return tuple(part.sort().values for part in found)
    return tuple(among[torch.isin(groups, part)] for part in found)


def _without(indices: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    return indices[~torch.isin(indices, others)]


def _turned(images: ImageSet, seed: int) -> ImageSet:
    """Each image turned by an angle uniform in [0, 360), the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    angles = 360 * torch.rand(len(images), generator=generator)
    pieces = zip(images.images.split(_PIECE), angles.split(_PIECE))
    turned = torch.cat([rotate_images(piece, angle) for piece, angle in pieces])
    if turned.is_floating_point():
        turned = turned.clamp_(0, 1)
    return ImageSet(turned, images.labels, images.classes, images.groups)
