"""Cross-entropy as a sum and its weight, so that parts of a batch add up to the whole."""

import torch
from torch import Tensor
from torch.nn import functional as F


class CrossEntropy:
    """`loss, weight = criterion(logits, labels)`; the mean loss is `loss / weight`.

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
        self._wanted = torch.tensor(weights) if isinstance(weights, tuple) else None
        self._counts: Tensor | None = None
        if weights == "balanced":
            if labels is None:
                raise ValueError("class_weights='balanced' needs the training labels, got None")
            self._counts = torch.bincount(labels.cpu())
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
        if self._weights is None:
            return loss, torch.tensor(float(len(labels)), device=logits.device)
        return loss, self._weights[labels].sum()

    def _make_weights(self, logits: Tensor) -> Tensor | None:
        """Weights for the classes of the model, known only when it has given its first logits."""
        classes = logits.shape[1]
        weights = self._wanted
        if self._counts is not None:
            # A class without training images gets the weight of a single image; it never counts.
            counts = F.pad(self._counts, (0, classes - len(self._counts))).clamp(min=1)
            weights = self._counts.sum() / (classes * counts)
        if weights is None:
            return None
        if len(weights) != classes:
            raise ValueError(
                f"class_weights has {len(weights)} weights, but the model has {classes} classes"
            )
        return weights.to(logits.device)
