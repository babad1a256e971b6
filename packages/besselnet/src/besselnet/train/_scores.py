"""Results of evaluation for each task: the loss, the score, and values per class."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from besselnet.data import IGNORED
from besselnet.masks import InstanceScores, class_mean, f1_of_boundaries


class Result(Protocol):
    """Result of `evaluate`."""

    @property
    def loss(self) -> float: ...
    @property
    def score(self) -> float: ...
    @property
    def metrics(self) -> dict[str, float | None]: ...
    def to_dict(self, classes: Sequence[str] | None = None) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Evaluation:
    """Result of `evaluate` for classes.

    Attributes:
        loss: mean cross-entropy.
        confusion: (K, K) counts; entry (i, j) counts images of class i predicted as class j.
        metrics: values of the additional metrics; None if a value is not finite.
    """

    loss: float
    confusion: Tensor
    metrics: dict[str, float | None] = field(default_factory=dict)

    @property
    def images(self) -> int:
        return int(self.confusion.sum())

    @property
    def accuracy(self) -> float:
        return self.confusion.diagonal().sum().item() / self.images

    @property
    def score(self) -> float:
        """The accuracy."""
        return self.accuracy

    def per_class(self) -> list[dict[str, float]]:
        """Return images, recall, precision and F1 of each class; 0 / 0 counts as 0."""
        return _class_rows(_counts(self.confusion))

    def to_dict(self, classes: Sequence[str] | None = None) -> dict[str, Any]:
        """Convert to JSON values, by the names of the classes if given."""
        return {
            "images": self.images,
            "loss": self.loss,
            "accuracy": self.accuracy,
            **self.metrics,
            "classes": _named(self.per_class(), classes),
            "confusion": self.confusion.tolist(),
        }


@dataclass(frozen=True)
class MaskEvaluation:
    """Result of `evaluate` for masks. Pixels without a label are ignored.

    Attributes:
        loss: mean over the batches, weighted by their labelled pixels.
        confusion: (K, K) counts; entry (i, j) counts pixels of class i predicted as class j.
        images: number of images.
        metrics: as in `Evaluation`.
        boundaries: (K, 4) counts of `besselnet.masks.boundary_counts`, with a tolerance of 2 pixels.
        objects: counts of predicted and true objects, if the images have instance numbers.
    """

    loss: float
    confusion: Tensor
    images: int
    metrics: dict[str, float | None] = field(default_factory=dict)
    boundaries: Tensor | None = None
    objects: InstanceScores | None = None

    @property
    def iou(self) -> float:
        """Mean intersection over union of the classes that occur in a true or predicted mask."""
        return self._mean("iou")

    @property
    def dice(self) -> float:
        """Mean Dice coefficient of the classes that occur in a true or predicted mask."""
        return self._mean("dice")

    @property
    def boundary_f1(self) -> float | None:
        """Mean boundary F1 of the classes that have boundaries; None if they were not counted."""
        if self.boundaries is None:
            return None
        mean = class_mean(f1_of_boundaries(self.boundaries))
        return 0.0 if np.isnan(mean) else float(mean)

    @property
    def accuracy(self) -> float:
        """Fraction of the labelled pixels with the correct class."""
        return ratio(self.confusion.diagonal().sum().item(), self.confusion.sum().item())

    @property
    def score(self) -> float:
        """The mean intersection over union."""
        return self.iou

    def _mean(self, name: str) -> float:
        seen = (self.confusion.sum(0) + self.confusion.sum(1) > 0).tolist()
        found = [row[name] for row, one in zip(self.per_class(), seen) if one]
        return fmean(found) if found else 0.0

    def per_class(self) -> list[dict[str, float]]:
        """Return pixels, Dice, IoU, recall, precision and boundary F1 of each class; 0 / 0 counts as 0."""
        rows: list[dict[str, float]] = [
            {
                "pixels": true,
                "dice": ratio(2 * right, true + guessed),
                "iou": ratio(right, true + guessed - right),
                "recall": ratio(right, true),
                "precision": ratio(right, guessed),
            }
            for right, true, guessed in _counts(self.confusion)
        ]
        if self.boundaries is not None:
            for row, f1 in zip(rows, np.nan_to_num(f1_of_boundaries(self.boundaries)).tolist()):
                row["boundary_f1"] = f1
        return rows

    def to_dict(self, classes: Sequence[str] | None = None) -> dict[str, Any]:
        """Convert to JSON values, by the names of the classes if given."""
        return {
            "images": self.images,
            "loss": self.loss,
            "iou": self.iou,
            "dice": self.dice,
            "boundary_f1": self.boundary_f1,
            "accuracy": self.accuracy,
            **self.metrics,
            "classes": _named(self.per_class(), classes),
            **({} if self.objects is None else {"objects": self.objects.to_dict()}),
            "confusion": self.confusion.tolist(),
        }


@dataclass(frozen=True)
class ValueEvaluation:
    """Result of `evaluate` for values.

    Attributes:
        loss: mean smooth L1 loss, in standard deviations of the training values.
        answers, values: (N, K), predicted and true values, in the units of the values.
        metrics: as in `Evaluation`.
    """

    loss: float
    answers: Tensor
    values: Tensor
    metrics: dict[str, float | None] = field(default_factory=dict)

    @property
    def images(self) -> int:
        return len(self.values)

    @property
    def score(self) -> float:
        """Mean of the coefficients of determination R^2."""
        return fmean(row["r2"] for row in self.per_value())

    def per_value(self) -> list[dict[str, float]]:
        """Return R^2, mean absolute error and root mean square error of each value.

        R^2 = 1 - sum (value - answer)^2 / sum (value - mean)^2; 0 if all values are equal.
        """
        error = self.answers.double() - self.values.double()
        spread = self.values.double() - self.values.double().mean(0)
        wrong, total = error.square().sum(0).tolist(), spread.square().sum(0).tolist()
        return [
            {"r2": 1 - w / t if t else 0.0, "mean_error": e, "rms_error": (w / self.images) ** 0.5}
            for w, t, e in zip(wrong, total, error.abs().mean(0).tolist())
        ]

    def to_dict(self, classes: Sequence[str] | None = None) -> dict[str, Any]:
        """Convert to JSON values, by the names of the values if given."""
        return {
            "images": self.images,
            "loss": self.loss,
            "r2": self.score,
            **self.metrics,
            "values": _named(self.per_value(), classes),
        }


@dataclass(frozen=True)
class LabelsEvaluation:
    """Result of `evaluate` for several labels.

    Attributes:
        loss: mean binary cross-entropy.
        answers, labels: (N, K) bool, predicted and true labels.
        metrics: as in `Evaluation`.
    """

    loss: float
    answers: Tensor
    labels: Tensor
    metrics: dict[str, float | None] = field(default_factory=dict)

    @property
    def images(self) -> int:
        return len(self.labels)

    @property
    def score(self) -> float:
        """Mean F1 of the labels that are true or predicted for some image."""
        seen = (self.answers | self.labels).any(0).tolist()
        found = [row["f1"] for row, one in zip(self.per_class(), seen) if one]
        return fmean(found) if found else 0.0

    def per_class(self) -> list[dict[str, float]]:
        """Return images with the label, recall, precision and F1 of each label; 0 / 0 counts as 0."""
        both = self.answers & self.labels
        sums = (part.sum(0).tolist() for part in (both, self.labels, self.answers))
        return _class_rows(zip(*sums))

    def to_dict(self, classes: Sequence[str] | None = None) -> dict[str, Any]:
        """Convert to JSON values, by the names of the labels if given."""
        return {
            "images": self.images,
            "loss": self.loss,
            "f1": self.score,
            "accuracy": (self.answers == self.labels).double().mean().item(),
            **self.metrics,
            "classes": _named(self.per_class(), classes),
        }


def count_pixels(answers: Tensor, masks: Tensor, classes: int) -> Tensor:
    """(K, K) int64: entry (i, j) counts pixels of class i in `masks` that are j in `answers`."""
    labelled = masks != IGNORED
    pairs = masks[labelled] * classes + answers[labelled]
    return torch.bincount(pairs, minlength=classes**2).view(classes, classes)


def ratio(part: float, whole: float) -> float:
    """part / whole, and 0 of nothing."""
    return part / whole if whole else 0.0


def _class_rows(counts: Iterable[tuple[int, int, int]]) -> list[dict[str, float]]:
    """Recall, precision and F1 from right answers, images of the class, images taken for it."""
    return [
        {
            "images": true,
            "recall": ratio(right, true),
            "precision": ratio(right, guessed),
            "f1": ratio(2 * right, true + guessed),
        }
        for right, true, guessed in counts
    ]


def _counts(confusion: Tensor) -> Iterator[tuple[int, int, int]]:
    """For each class: right answers, those of the class, those taken for it."""
    yield from zip(
        confusion.diagonal().tolist(), confusion.sum(1).tolist(), confusion.sum(0).tolist()
    )


def _named(
    rows: Sequence[Mapping[str, float]], names: Sequence[str] | None
) -> dict[str, Mapping[str, float]]:
    return dict(zip(names or map(str, range(len(rows))), rows))
