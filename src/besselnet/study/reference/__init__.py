"""The published numbers: accuracy and standard deviation of every cell of the paper's four tables."""

import csv
import functools
from importlib.resources import files
from typing import NamedTuple

__all__ = ["Published", "published", "training_images"]


class Published(NamedTuple):
    """One number of the paper, in per cent, over three runs."""

    table: str
    data_set: str
    augmentation: str
    regime: str
    method: str
    group: str
    accuracy: float
    std: float


@functools.cache
def published() -> tuple[Published, ...]:
    """All 450 of them, table by table."""
    names = ("table", "data_set", "augmentation", "regime", "method", "group")
    return tuple(
        Published(*(row[name] for name in names), float(row["accuracy"]), float(row["std"]))
        for row in _read("accuracy.csv")
    )


@functools.cache
def training_images() -> dict[tuple[str, str], int]:
    """How many images train for (data set, regime), from the captions of the tables."""
    rows = _read("training_images.csv")
    return {(row["data_set"], row["regime"]): int(row["images"]) for row in rows}


def _read(name: str) -> list[dict[str, str]]:
    text = (files(__name__) / name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
