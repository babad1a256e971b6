"""Estimate the training time from a few steps of a copy of the network."""

import copy
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from torch import nn

from besselnet._progress import in_words
from besselnet.nn import evaluating
from besselnet.train._adversarial import moved_against
from besselnet.train._config import TrainConfig
from besselnet.train._evaluate import device_of
from besselnet.train._losses import Criterion
from besselnet.train._optimise import make_optimizer
from besselnet.train._sized import SizedBatches

# Seconds. The first step also plans and allocates: it counts only where a second one would take too long.
LONG = 10.0
# Of every epoch, to evaluate and save, whatever the network.
EPOCH = 0.03


@dataclass(frozen=True)
class Pace:
    """Seconds that a training spends on one of its batches, and on one validation."""

    batch: float
    validation: float

    def describe(self, epochs: int, batches: int, steps: int) -> str:
        """What is still to do, and how long that takes: one line."""
        seconds = batches * self.batch + epochs * (self.validation + EPOCH)
        plural = "s" if epochs > 1 else ""
        return (
            f"training {epochs} epoch{plural}, {steps:,} steps: about {in_words(max(1, seconds))}"
        )


def training_pace(
    model: nn.Module,
    train_batches: SizedBatches,
    val_batches: SizedBatches | None,
    config: TrainConfig,
    criterion: Criterion,
    *,
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Pace | None:
    """Time two steps and a forward pass of a copy of `model`, which stays as it is.

    None for batches without an index, which could not be drawn without a trace, and for a network that cannot
    be copied. torch's global random generator moves on.
    """
    pick = getattr(train_batches, "__getitem__", None)
    if pick is None:
        return None
    try:
        trial = copy.deepcopy(model)
    except Exception:  # Whatever a module holds that has no copy: it can be trained nevertheless.
        return None
    optimizer, device = make_optimizer(trial, config), device_of(trial)
    numbers = getattr(train_batches, "indices", None)
    announce = getattr(trial, "begin_batch", None)
    trial.train()
    seconds = 0.0
    for _ in range(2):
        started = time.perf_counter()
        images, labels = (part.to(device) for part in pick(0))
        if announce is not None and numbers is not None:
            announce(numbers(0))
        shown = moved_against(trial, images, labels, config, autocast)
        with autocast():
            outputs = trial(shown)
        loss, weight = criterion(outputs, labels)
        (loss / weight).backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()  # waits for a GPU
        seconds = time.perf_counter() - started
        if seconds > LONG:
            break
    validation = 0.0
    if val_batches is not None:
        started = time.perf_counter()
        with evaluating(trial), autocast():
            trial(images).sum().item()
        validation = (time.perf_counter() - started) * len(val_batches)
    return Pace(seconds, validation)
