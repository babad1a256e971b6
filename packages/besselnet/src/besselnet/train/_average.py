"""A moving average of the weights of a module while it is being trained."""

import copy

import torch
from torch import nn


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
