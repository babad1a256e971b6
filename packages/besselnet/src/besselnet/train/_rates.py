"""A learning-rate finder: Smith's range test (Cyclical learning rates, WACV 2017)."""

import copy
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from besselnet.atomic import write_json
from besselnet.checks import check_count, check_number
from besselnet.data import Splits
from besselnet.locking import hold_folder
from besselnet.train._config import RunConfig, TrainConfig
from besselnet.train._evaluate import NonFiniteLoss, device_of
from besselnet.train._images import make_batches
from besselnet.train._optimise import make_optimizer
from besselnet.train._process import choose_device
from besselnet.train._run import prepare
from besselnet.train._sized import SizedBatches
from besselnet.train._tasks import Classify, LearningTask, task_of

LOWEST, HIGHEST, STEPS = 1e-6, 1.0, 100
# Weight of the past in the smoothed loss; the first steps are too noisy for a slope.
SMOOTHING, SKIPPED = 0.9, 5
# A loss that has grown by this factor over its lowest has diverged.
DIVERGED = 4.0


@dataclass(frozen=True)
class RateCurve:
    """Result of `find_learning_rate`.

    Attributes:
        rates: learning rate of each step, growing by a constant factor.
        losses: smoothed loss before each step.
        suggestion: rate at which the loss falls most steeply, at most a tenth of `diverged`.
        diverged: rate at which the loss had grown fourfold or was not finite; None if it did neither.
    """

    rates: tuple[float, ...]
    losses: tuple[float, ...]
    suggestion: float
    diverged: float | None

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON values."""
        return {**asdict(self), "rates": list(self.rates), "losses": list(self.losses)}


def find_learning_rate(
    model: nn.Module,
    batches: SizedBatches,
    config: TrainConfig,
    *,
    labels: Tensor | None = None,
    lowest: float = LOWEST,
    highest: float = HIGHEST,
    steps: int = STEPS,
    task: LearningTask | None = None,
) -> RateCurve:
    """Suggest a learning rate: train a copy of `model` with a learning rate that grows at every step.

    The model and the random state of torch are not changed. The same arguments give the same curve.

    Args:
        model: maps images to logits (N, K), on the device to compute on.
        batches: as for `fit`; repeated as often as needed.
        config: optimiser, weight decay, label smoothing, class weights and seed are used.
        labels: all training labels, required for `class_weights="balanced"`.
        lowest, highest: learning rates of the first and the last step.
        steps: maximum number of steps, at least 20; fewer if the loss diverges.
        task: as for `fit`.
    """
    check_number("lowest", lowest, above=0)
    check_number("highest", highest, above=lowest)
    check_count("steps", steps, least=20)
    trial = copy.deepcopy(model).train()
    optimizer = make_optimizer(trial, config)
    criterion = (task or Classify()).criterion(config, labels)
    rates = np.geomspace(lowest, highest, steps)
    device = device_of(model)
    losses: list[float] = []
    mean, diverged = 0.0, None
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        for step, (images, targets) in enumerate(islice(_endless(batches), steps)):
            loss, weight = criterion(trial(images.to(device)), targets.to(device))
            loss = loss / weight
            value = loss.item()
            if not math.isfinite(value):
                diverged = float(rates[step])
                break
            mean = SMOOTHING * mean + (1 - SMOOTHING) * value
            losses.append(mean / (1 - SMOOTHING ** (step + 1)))
            if losses[-1] > DIVERGED * min(losses):
                diverged = float(rates[step])
                break
            for group in optimizer.param_groups:
                group["lr"] = float(rates[step])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    if len(losses) < 2 * SKIPPED:
        raise NonFiniteLoss(
            f"the loss is infinite or NaN at the lowest learning rate {lowest:g}: check the images and the "
            "weights"
        )
    suggestion = float(rates[_steepest(losses, rates)])
    if diverged is not None:
        suggestion = min(suggestion, diverged / 10)
    tried = tuple(rates[: len(losses)].tolist())
    return RateCurve(tried, tuple(losses), float(f"{suggestion:.1e}"), diverged)


def _steepest(losses: list[float], rates: np.ndarray) -> int:
    """The step at which the loss falls most against the logarithm of the rate."""
    slopes = np.gradient(losses, np.log(rates[: len(losses)]))
    return SKIPPED + int(np.argmin(slopes[SKIPPED:]))


def _endless(batches: SizedBatches) -> Iterator[tuple[Tensor, Tensor]]:
    for epoch in count():
        if hasattr(batches, "set_epoch"):
            batches.set_epoch(epoch)
        yield from batches


def find_run_rate(
    config: RunConfig, folder: str | Path, *, images: Splits | None = None
) -> RateCurve:
    """Run `find_learning_rate` for a configuration, and write rates.json and rates.png to `folder`.

    The folder can be a run folder, which is not changed otherwise.
    """
    folder = Path(folder)
    with hold_folder(folder):
        splits, model = prepare(config, images)
        device = choose_device(config.train.device)
        batches = make_batches(config, splits.train, training=True, device=device)
        labels, task = splits.train.labels, task_of(splits.train)
        curve = find_learning_rate(
            model.to(device), batches, config.train, labels=labels, task=task
        )
        write_json(folder / "rates.json", curve.to_dict())
        from besselnet.drawing import attempt, draw_rates

        attempt(draw_rates, folder / "rates.png", curve.rates, curve.losses, curve.suggestion)
    return curve
