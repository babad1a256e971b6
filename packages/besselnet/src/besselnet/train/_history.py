"""Position and history of a training."""

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from besselnet._progress import in_words
from besselnet.atomic import write_atomically
from besselnet.train._tasks import Classify, LearningTask
from besselnet.untrusted import check_keys, reading


@dataclass
class History:
    """Position and history of a training, as JSON values.

    Attributes:
        rows: one dict per finished epoch, as in `metrics.csv`; a metric that is not finite is None.
        epoch, batch: position of the next batch.
        step: number of optimiser steps.
        sums: loss, weight of the loss, tally of the score (`LearningTask.tally`; for classes, the correct
            predictions), images and seconds in the current epoch.
        best: best value of the monitored quantity; None before the first epoch.
        epochs_since_best: epochs since the best value, for early stopping.
        finished: whether training has finished.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    epoch: int = 0
    batch: int = 0
    step: int = 0
    sums: list[float] = field(default_factory=lambda: [0.0] * 5)
    best: float | None = None
    epochs_since_best: int = 0
    finished: bool = False


def read_history(
    where: str, values: Mapping[str, Any], epochs: int, batches: int, steps: int, sums: int
) -> History:
    """The history in the checkpoint `where`, if a training of this length, with so many sums, can have
    come there."""
    with reading(f"{where}: 'history'"):
        history = History(**values)
    found = {str(i): value for i, value in enumerate(history.sums)}
    number = (int | float, "a finite number")
    check_keys(f"{where}: 'history.sums'", found, dict.fromkeys(map(str, range(sums)), number))
    if len(found) > sums:
        raise ValueError(f"{where}: 'history.sums' has {len(found)} numbers: must have {sums}")
    most = {
        "epoch": epochs,
        "batch": batches,
        "step": steps,
        "epochs_since_best": history.epoch,
    }
    for key, limit in most.items():
        value = getattr(history, key)
        if not 0 <= value <= limit:
            raise ValueError(f"{where}: 'history.{key}' is {value}: must be 0 to {limit}")
    rows = history.rows
    if len(rows) != history.epoch or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{where}: 'history.rows' must be an object for each epoch")
    return history


def write_metrics(path: Path, history: History) -> None:
    """Write metrics.csv anew from the history, so that it never disagrees with the state."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(history.rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(history.rows)
    write_atomically(path, text.getvalue())


def describe_epoch(
    row: Mapping[str, float], epochs: int, time_left: str, task: LearningTask | None = None
) -> str:
    """One line about a finished epoch, for a terminal of 80 columns; metrics.csv has more digits."""
    task = task or Classify()
    name = {"accuracy": "acc"}.get(task.score, task.score)
    parts = [f"epoch {int(row['epoch'])}/{epochs}"]
    for split in ("train", "val"):
        if f"{split}_loss" in row:
            loss, score = row[f"{split}_loss"], row[f"{split}_{task.score}"]
            shown = f"{100 * score:.3g}%" if task.is_share else f"{score:.3f}"
            parts.append(f"{split} loss {loss:.{3 if loss < 9 else 0}f} {name} {shown}")
    return "  ".join([*parts, time_left or in_words(row["seconds"])])
