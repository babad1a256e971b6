"""Optimiser, learning rate schedule and moving average of the weights."""

import copy
import math
from typing import Any

import torch
from torch import nn

from besselnet.train._config import TrainConfig


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """The optimiser that `config` names, for the parameters that learn."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        raise ValueError("the model has no parameters to train")
    common: dict[str, Any] = {"lr": config.learning_rate, "weight_decay": config.weight_decay}
    if config.optimizer == "sgd":
        return torch.optim.SGD(parameters, momentum=config.momentum, **common)
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    return kinds[config.optimizer](parameters, **common)


def learning_rate(config: TrainConfig, step: int, total: int) -> float:
    """The learning rate used in `step` (0 ... total - 1).

    Rises linearly from 0 over the first `warmup` share of the steps, then falls to 0 along a half
    cosine (or stays, for `schedule="constant"`). The ends themselves, where it is 0, lie one step
    outside the training: the first step already learns and the last one still does.
    """
    rising = round(config.warmup * total)
    factor = 1.0
    if step < rising:
        factor = (step + 1) / (rising + 1)
    elif config.schedule == "cosine":
        factor = 0.5 * (1 + math.cos(math.pi * (step - rising) / (total - rising)))
    return config.learning_rate * factor


class MovingAverage:
    """`average.module` follows a module: parameters averaged exponentially, buffers copied.

    After t updates the decay is min(decay, (1 + t) / (10 + t)), so that the first, untrained
    weights are forgotten in a short training too.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.module = copy.deepcopy(module).requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, module: nn.Module, updates: int) -> None:
        """Follow `module`, for the time numbered `updates` (0 for the first)."""
        decay = min(self.decay, (1 + updates) / (10 + updates))
        for mine, theirs in zip(self.module.parameters(), module.parameters()):
            mine.lerp_(theirs, 1 - decay)
        for kept, current in zip(self.module.buffers(), module.buffers()):
            kept.copy_(current)
