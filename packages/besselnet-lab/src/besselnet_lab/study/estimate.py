"""How long cells take: from measured steps, and from cells that are done."""

import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from besselnet.atomic import write_json
from besselnet.data import cache_folder
from besselnet.models import model_info
from besselnet.train import (
    Segment,
    TrainConfig,
    build_model,
    describe_environment,
    fit,
    recommended_epochs,
)
from besselnet.untrusted import read_json
from besselnet_lab.study.cells import Cell

__all__ = ["Estimate", "measure", "time_left"]

_STEPS = 2
# Adversarial training takes so many times as long, see docs/robustness.md.
_ADVERSARIAL = 6.0
# Of a training step: a pass without gradients.
_FORWARD = 1 / 3


def steps_of(cell: Cell) -> int:
    """Steps of the training; patches of images with masks are not counted."""
    train, epochs = cell.config.train, cell.config.train.epochs
    if cell.over_recommended is not None and "epochs" not in cell.over_recommended["train"]:
        epochs = recommended_epochs(cell.train_images, train.batch_size * train.accumulate)
    batches = math.ceil(cell.train_images / train.batch_size)
    return epochs * math.ceil(batches / train.accumulate)


class Estimate:
    """Seconds of cells, from a pace (seconds of an ordinary step) for each kind of cell.

    A kind is a model with its options, the shape of the images and the size of a batch.
    """

    def __init__(self) -> None:
        self.paces: dict[str, float] = {}

    def learn(self, cells: Sequence[Cell], results: Iterable[Mapping[str, Any] | None]) -> None:
        """Take the paces of cells that are done; `results` has None for the others."""
        found: dict[str, list[float]] = {}
        for cell, result in zip(cells, results):
            if result is not None:
                pace = result["seconds"]["training"] / result["curve"]["step"][-1]
                found.setdefault(_kind(cell), []).append(pace / _longer(cell))
        self.paces |= {kind: statistics.median(paces) for kind, paces in found.items()}

    def recall(self, cells: Sequence[Cell], threads: int) -> None:
        """Take the paces measured earlier on this machine for kinds that have none yet."""
        kept = _read_measured()
        for cell in cells:
            kind = _kind(cell)
            if kind not in self.paces and _place(kind, threads) in kept:
                self.paces[kind] = kept[_place(kind, threads)]

    def measure(self, cells: Sequence[Cell], threads: int, on_kind: Callable[[Cell], None]) -> None:
        """Measure some steps of every kind that has no pace yet, and keep the paces."""
        self.recall(cells, threads)
        for cell in cells:
            kind = _kind(cell)
            if kind not in self.paces:
                on_kind(cell)
                self.paces[kind] = measure(cell, threads)
                write_json(_file(), {**_read_measured(), _place(kind, threads): self.paces[kind]})

    def seconds(self, cell: Cell) -> float | None:
        """Of the whole cell: its steps, what it judges, and at most what corruptions and attacks take."""
        pace = self.paces.get(_kind(cell))
        if pace is None:
            return None
        forwards, gradients = cell.judged_images, 0
        if cell.robust is not None:
            further, gradients = cell.robust.passes(cell.judged_images)
            forwards += further
        passes = (gradients + _FORWARD * forwards) / _batch(cell)
        return pace * (steps_of(cell) * _longer(cell) + passes)


def time_left(estimate: Estimate, cells: Iterable[Cell]) -> tuple[float, int]:
    """(seconds of the cells that can be estimated, number of those that cannot)."""
    seconds = [estimate.seconds(cell) for cell in cells]
    return sum(s for s in seconds if s is not None), seconds.count(None)


def measure(cell: Cell, threads: int) -> float:
    """Seconds of a training step of the cell, on random images with so many threads.

    Of a batch with masks one image is measured, so that the whole need not fit into the memory.
    """
    info = model_info(cell.config.model.name)
    size = cell.images.image_size or info.default_size
    masks = info.answers == "pixels"
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        model = build_model(cell.config, cell.channels, cell.classes, size)
        count = 1 if masks else _batch(cell)
        generator = torch.Generator().manual_seed(0)
        images = torch.rand(count, cell.channels, size, size, generator=generator)
        shape = (count, size, size) if masks else (count,)
        labels = torch.randint(cell.classes, shape, generator=generator)
        task = Segment([str(number) for number in range(cell.classes)]) if masks else None
        # Two epochs: the first step of all has things to set up.
        settings = TrainConfig(epochs=2, batch_size=count, device=cell.config.train.device)
        history = fit(model, [(images, labels)] * _STEPS, None, settings, task=task, quiet=True)
        return history.rows[-1]["seconds"] / _STEPS * _batch(cell) / count
    finally:
        torch.set_num_threads(before)


def _kind(cell: Cell) -> str:
    model = cell.config.model
    shape = [cell.channels, cell.images.image_size, cell.classes]
    described = [model.name, model.options, shape, _batch(cell)]
    return json.dumps(described, sort_keys=True, allow_nan=False)


def _longer(cell: Cell) -> float:
    """How many times longer a step takes than an ordinary one."""
    return _ADVERSARIAL if cell.config.train.adversarial else 1.0


def _batch(cell: Cell) -> int:
    return min(cell.config.train.batch_size, cell.train_images)


def _place(kind: str, threads: int) -> str:
    machine = describe_environment()["machine"]
    return f"{kind} threads={threads} {machine['processor']} {machine['gpus']}"


def _file() -> Path:
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "step-seconds.json"


def _read_measured() -> dict[str, float]:
    try:
        kept = read_json(_file())
    except (FileNotFoundError, ValueError):
        return {}
    # What is no pace is measured again.
    return {key: pace for key, pace in kept.items() if type(pace) is float and 0 < pace < math.inf}
