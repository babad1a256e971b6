"""What a training would do, and how long it would take, before anything is trained."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from besselnet.data import Splits
from besselnet.models import count_parameters
from besselnet.train._config import RunConfig
from besselnet.train._mirror import trial_steps
from besselnet.train._pace import training_pace
from besselnet.train._process import launch
from besselnet.train._progress import in_words
from besselnet.train._recommend import recommend_config
from besselnet.train._run import first_division, make_batches, prepare
from besselnet.train._tasks import task_of


@dataclass(frozen=True)
class Preview:
    """What `besselnet train` would do with images.

    Attributes:
        config: the settings that the images and the user choose.
        images: as they would be divided and brought to one size.
        reason: what was chosen from the images and why, in one line.
        parameters: of the network.
        steps: what would be done and how long that takes on this machine, a line each.
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
    """Look at images as `besselnet train` does, and time two steps of a network that is then forgotten.

    The arguments are those of `recommend_config`. Nothing is written. Of several processes that the settings
    ask for, one is timed.
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
        steps.append(f"this for each of {config.data.folds} folds")
    return Preview(config, images, found.reason, count_parameters(network), tuple(steps))
