"""Losses: `loss, weight = criterion(outputs, labels)`; the mean loss is `loss / weight`.

A sum and its weight, so that parts of a batch add up to the whole.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from besselnet.data import IGNORED


class Criterion(Protocol):
    """The loss of a batch and its weight, from what the network gives and the labels."""

    def __call__(self, outputs: Tensor, labels: Tensor, /) -> tuple[Tensor, Tensor]: ...


class CrossEntropy:
    """`loss, weight = criterion(logits, labels)`; the mean loss is `loss / weight`.

    A sum and its weight, so that parts of a batch add up to the whole.

    Args:
        weights: "balanced", one weight per class, or None for equal weights.
        label_smoothing: share of each label spread over all classes.
        labels: all training labels, needed for "balanced": a class seen n times among N images of
            K classes weighs N / (K n). With masks (N, H, W), pixels are counted in place of images.
        ignored: a label that does not count.
    """

    def __init__(
        self,
        weights: str | tuple[float, ...] | None = None,
        label_smoothing: float = 0.0,
        labels: Tensor | None = None,
        ignored: int = -100,
    ) -> None:
        if weights == "balanced" and labels is None:
            raise ValueError("class_weights='balanced' requires the training labels, got None")
        self._wanted, self._labels = weights, labels
        self._label_smoothing, self._ignored = label_smoothing, ignored
        self._weights: Tensor | None = None

    def __call__(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        if self._weights is None:
            self._weights = self._make_weights(logits)
        loss = F.cross_entropy(
            logits.float(),
            labels,
            weight=self._weights,
            ignore_index=self._ignored,
            reduction="sum",
            label_smoothing=self._label_smoothing,
        )
        return loss, self._weights[labels[labels != self._ignored]].sum()

    def _make_weights(self, logits: Tensor) -> Tensor:
        """Weights for the classes of the model, known only when it has given its first logits."""
        classes = logits.shape[1]
        if self._labels is not None and self._wanted == "balanced":
            # A class without training images gets the weight of a single image; it never counts.
            seen = self._labels.cpu()
            seen = seen[seen != self._ignored]
            counts = torch.bincount(seen, minlength=classes).clamp(min=1)
            weights = len(seen) / (classes * counts)
        else:
            weights = torch.tensor(self._wanted or [1.0] * classes)
        if len(weights) != classes:
            raise ValueError(
                f"class_weights has {len(weights)} weights, but the model has {classes} classes"
            )
        return weights.to(logits.device)


class MaskLoss:
    """Cross-entropy of the labelled pixels plus soft Dice, for logits (N, K, H, W) and masks (N, H, W).

    Cross-entropy asks for each pixel, Dice for each class, whatever its size. The arguments are
    `CrossEntropy`'s.
    """

    def __init__(
        self,
        weights: str | tuple[float, ...] | None = None,
        label_smoothing: float = 0.0,
        labels: Tensor | None = None,
    ) -> None:
        self._cross_entropy = CrossEntropy(weights, label_smoothing, labels, IGNORED)

    def __call__(self, logits: Tensor, masks: Tensor) -> tuple[Tensor, Tensor]:
        _check_shape(logits, (len(masks), *logits.shape[1:2], *masks.shape[1:]), "masks")
        loss, weight = self._cross_entropy(logits, masks)
        # A batch without any label has no loss, and no weight to divide by.
        weight = torch.where(weight > 0, weight, 1)
        return loss + weight * soft_dice(logits.float(), masks), weight


def soft_dice(logits: Tensor, masks: Tensor) -> Tensor:
    """1 - mean over the classes in `masks` of 2 |P Y| / (|P| + |Y|), with probabilities P and truth Y.

    Sums run over all labelled pixels of the batch. Classes that the batch does not show are left out: their
    share would be noise.
    """
    classes = torch.arange(logits.shape[1], device=logits.device)
    truth = (masks[:, None] == classes[:, None, None]).to(logits)
    chance = logits.softmax(1) * (masks != IGNORED)[:, None]
    shared, both = (pixels.sum((0, 2, 3)) for pixels in (chance * truth, chance + truth))
    shown = truth.sum((0, 2, 3)) > 0
    return (1 - 2 * shared / both.clamp(min=1e-12))[shown].sum() / shown.sum().clamp(min=1)


class ValueLoss:
    """Smooth L1 of values (N, K) in deviations from their mean; each image weighs 1.

    Args:
        mean, deviation: (K,) of the training values. The network gives (value - mean) / deviation.
    """

    def __init__(self, mean: Tensor, deviation: Tensor) -> None:
        self._mean, self._deviation = mean, deviation

    def __call__(self, outputs: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        _check_shape(outputs, values.shape, "values")
        wanted = (values - self._mean.to(values)) / self._deviation.to(values)
        loss = F.smooth_l1_loss(outputs.float(), wanted, reduction="none").mean(1).sum()
        return loss, torch.tensor(float(len(values)), device=loss.device)


class LabelLoss:
    """Binary cross-entropy of logits (N, K) for labels (N, K) of 0 and 1; each image weighs 1.

    Args:
        label_smoothing: share of each label that is undecided between 0 and 1.
    """

    def __init__(self, label_smoothing: float = 0.0) -> None:
        self._label_smoothing = label_smoothing

    def __call__(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        _check_shape(logits, labels.shape, "labels")
        wanted = torch.lerp(labels, torch.full_like(labels, 0.5), self._label_smoothing)
        loss = F.binary_cross_entropy_with_logits(logits.float(), wanted, reduction="none")
        return loss.mean(1).sum(), torch.tensor(float(len(labels)), device=loss.device)


def _check_shape(outputs: Tensor, wanted: Sequence[int], labels: str) -> None:
    """Refuse outputs that torch would stretch over the labels, or compare with others."""
    if tuple(outputs.shape) != tuple(wanted):
        raise ValueError(
            f"the network returns outputs {tuple(outputs.shape)}: must be {tuple(wanted)} for these {labels}"
        )
