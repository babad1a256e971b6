"""What one step of training needs: optimiser, learning rate, loss, and the average of the weights."""

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

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


class CrossEntropy:
    """`loss, weight = criterion(logits, labels)`; the mean loss is `loss / weight`.

    A sum and its weight, so that parts of a batch add up to the whole.

    Args:
        weights: "balanced", one weight per class, or None for equal weights.
        label_smoothing: share of each label spread over all classes.
        labels: all training labels, needed for "balanced": a class seen n times among N images of
            K classes weighs N / (K n).
    """

    def __init__(
        self,
        weights: str | tuple[float, ...] | None = None,
        label_smoothing: float = 0.0,
        labels: Tensor | None = None,
    ) -> None:
        if weights == "balanced" and labels is None:
            raise ValueError("class_weights='balanced' needs the training labels, got None")
        self._wanted, self._labels = weights, labels
        self._label_smoothing = label_smoothing
        self._weights: Tensor | None = None

    def __call__(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        if self._weights is None:
            self._weights = self._make_weights(logits)
        loss = F.cross_entropy(
            logits.float(),
            labels,
            weight=self._weights,
            reduction="sum",
            label_smoothing=self._label_smoothing,
        )
        return loss, self._weights[labels].sum()

    def _make_weights(self, logits: Tensor) -> Tensor:
        """Weights for the classes of the model, known only when it has given its first logits."""
        classes = logits.shape[1]
        if self._labels is not None and self._wanted == "balanced":
            # A class without training images gets the weight of a single image; it never counts.
            counts = torch.bincount(self._labels.cpu(), minlength=classes).clamp(min=1)
            weights = len(self._labels) / (classes * counts)
        else:
            weights = torch.tensor(self._wanted or [1.0] * classes)
        if len(weights) != classes:
            raise ValueError(
                f"class_weights has {len(weights)} weights, but the model has {classes} classes"
            )
        return weights.to(logits.device)
