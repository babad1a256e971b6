"""The images of a configuration: loaded, divided, in batches."""

from dataclasses import replace

import torch

from besselnet.checks import check_count
from besselnet.data import (
    Batches,
    ImageSet,
    Splits,
    data_options,
    fold_splits,
    load_data,
    make_augmentation,
)
from besselnet.train._config import DataConfig, RunConfig


def load_images(config: DataConfig) -> Splits:
    """Load the images of `config`; with a `fold`, split for it.

    `task` is passed to sources with such an option, because some labels are ambiguous.
    """
    options = dict(config.options)
    if config.task is not None and "task" in data_options(config.source):
        options.setdefault("task", config.task)
    if config.cache is not None and "cache" in data_options(config.source):
        options["cache"] = config.cache
    elif config.cache == "always":
        raise ValueError(
            f"data.cache='always': must be unset for {config.source}, which is always in memory"
        )
    splits = load_data(
        config.source,
        root=config.root,
        image_size=config.image_size,
        seed=config.seed,
        **options,
    )
    return splits if config.fold is None else divide_in_folds(splits, config)[config.fold - 1]


def check_source(config: DataConfig) -> None:
    """Refuse a configuration that names no images."""
    if not config.source:
        raise ValueError(
            "data.source='': must be a data set, a folder of images, or an .npz or .csv file"
        )


def divide_in_folds(splits: Splits, config: DataConfig) -> list[Splits]:
    """All images of `splits` divided into `config.folds` parts, each tested by one of the results."""
    folds = check_count("folds", config.folds, least=2)
    stored = splits.provenance.stored
    return [
        replace(fold, provenance=replace(fold.provenance, stored=stored))
        for fold in fold_splits(splits.merged(), folds, config.seed)
    ]


def first_division(splits: Splits, config: DataConfig) -> Splits:
    """The images as the first training of `config` sees them: a fold, where it is to cross-validate."""
    divided = config.folds is not None and config.fold is None
    return divide_in_folds(splits, config)[0] if divided else splits


def make_batches(
    config: RunConfig,
    part: ImageSet,
    *,
    training: bool = False,
    device: torch.device | str = "cpu",
    rank: int = 0,
    world_size: int = 1,
) -> Batches:
    """The batches of a part: shuffled and augmented for `training`, in order and as they are for testing."""
    data, size = config.data, config.train.batch_size
    augment = make_augmentation(data.augment, data.interpolation, data.border)
    patch = None if data.patch is None else (data.patch, data.patch)
    if data.patch is not None and not training:
        # Whole images, and as much memory as patches take.
        pixels = part.image_size[0] * part.image_size[1]
        size = min(size, max(world_size, size * data.patch**2 // pixels))
    return Batches(
        part,
        size if training else _even_batch_size(len(part), size, world_size),
        shuffle=training,
        balance=training and data.balance,
        seed=config.train.seed,
        augment=augment if training else None,
        device=device,
        rank=rank,
        world_size=world_size,
        patch=patch if training else None,
        patches_per_image=data.patches_per_image,
    )


def _even_batch_size(images: int, wanted: int, processes: int) -> int:
    """The size nearest below `wanted` that leaves every process a share of the last batch."""
    for size in range(wanted - wanted % processes, 0, -processes):
        if images % size == 0 or images % size >= processes:
            return size
    raise ValueError(f"{images} images cannot be split among {processes} processes")
