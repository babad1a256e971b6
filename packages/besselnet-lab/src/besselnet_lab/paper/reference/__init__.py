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
    rows = _read("accuracy.csv")
    return tuple(
        Published(
            table=row["table"],
            data_set=row["data_set"],
            augmentation=row["augmentation"],
            regime=row["regime"],
            method=row["method"],
            group=row["group"],
            accuracy=float(row["accuracy"]),
            std=float(row["std"]),
        )
        for row in rows
    )


@functools.cache
def training_images() -> dict[tuple[str, str], int]:
    """How many images train for (data set, regime), from the captions of the tables."""
    rows = _read("training_images.csv")
    return {(row["data_set"], row["regime"]): int(row["images"]) for row in rows}


def _read(name: str) -> list[dict[str, str]]:
    text = (files(__name__) / name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
