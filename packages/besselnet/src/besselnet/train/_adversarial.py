"""Adversarial training (Madry et al. 2018)."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from besselnet.robust import adversarial_batch
from besselnet.train._config import TrainConfig
from besselnet.train._tasks import LearningTask

# Of the gradient, for each batch: a training step takes about so many times longer, and one more.
STEPS = 5


def check_adversarial(config: TrainConfig, task: LearningTask) -> None:
    """Refuse adversarial training of what has no classes to be led astray to."""
    if config.adversarial and task.name != "classify":
        raise ValueError(f"adversarial={config.adversarial}: must be unset for {task.labels}")


def moved_against(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    config: TrainConfig,
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Tensor:
    """The images to learn from: within `config.adversarial` of those given, where the loss is high.

    The random start comes from torch's global generator, which `fit` seeds for every batch. Without
    `adversarial` the images are those given, and nothing is drawn.
    """
    if not config.adversarial:
        return images
    seed = int(torch.randint(2**62, ()))
    with autocast():
        return adversarial_batch(model, images, labels, config.adversarial, steps=STEPS, seed=seed)
