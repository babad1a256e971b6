"""Preview a training: its settings and the estimated time."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from besselnet._progress import in_words
from besselnet.data import Splits
from besselnet.models import count_parameters
from besselnet.train._config import RunConfig
from besselnet.train._images import first_division, make_batches
from besselnet.train._mirror import trial_steps
from besselnet.train._pace import training_pace
from besselnet.train._process import launch
from besselnet.train._recommend import recommend_config
from besselnet.train._run import prepare
from besselnet.train._tasks import task_of


@dataclass(frozen=True)
class Preview:
    """Preview of `besselnet train`; from `preview_run`.

    Attributes:
        config: the settings, chosen from the images or by the user.
        images: the images after splitting and resizing.
        reason: the chosen settings and the reasons, in one line.
        parameters: number of parameters of the network.
        steps: the steps with estimated times on this machine, one line each.
    """

    config: RunConfig
    images: Splits
    reason: str
    parameters: int
    steps: tuple[str, ...]


def preview_run(
    *values: RunConfig | Mapping[str, Any] | str | Path,
    settings: Iterable[str] = (),
    images: Splits | None = None,
) -> Preview:
    """Load images like `besselnet train`, choose the settings, and time two training steps.

    The arguments are those of `recommend_config`. Nothing is written. If the settings require several
    processes, one is timed.
    """
    config, images, found = recommend_config(*values, settings=settings, images=images)
    alone = replace(config, train=replace(config.train, devices=1, nodes=1))
    seen, network = prepare(alone, first_division(images, config.data))
    fabric = launch(alone.train)
    batches = make_batches(alone, seen.train, training=True, device=fabric.device)
    pace = training_pace(
        network.to(fabric.device),
        batches,
        None if seen.val is None else make_batches(alone, seen.val, device=fabric.device),
        config.train,
        task_of(seen.train).criterion(config.train, seen.train.labels),
        autocast=fabric.autocast,
    )
    steps = []
    if pace is not None:
        epochs = config.train.epochs
        total = epochs * math.ceil(len(batches) / config.train.accumulate)
        if found.trial:
            count = trial_steps(config, seen.train)
            steps.append(
                f"a trial, do mirror images stay in their class? At most {count:,} steps: about "
                f"{in_words(max(1, count * pace.batch))}"
            )
        steps.append(pace.describe(epochs, epochs * len(batches), total))
    if config.data.folds is not None and config.data.fold is None:
        steps.append(f"repeated for each of {config.data.folds} folds")
    return Preview(config, images, found.reason, count_parameters(network), tuple(steps))
