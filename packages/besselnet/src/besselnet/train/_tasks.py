"""The learning tasks: one class per kind of labels, all with the same methods.

| task | outputs of the network | loss | score |
|---|---|---|---|
| `Classify` | logits (N, K) | cross-entropy | accuracy |
| `Segment` | logits (N, K, H, W) | cross-entropy + soft Dice | mean IoU |
| `Regress` | (value - mean) / deviation, (N, K) | smooth L1 | mean R^2 |
| `Multilabel` | logits (N, K) | binary cross-entropy | mean F1 |
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from besselnet.checks import check_number
from besselnet.data import ImageSet, Task
from besselnet.masks import IGNORED, boundary_counts
from besselnet.nn import evaluating
from besselnet.train._config import TrainConfig
from besselnet.train._losses import Criterion, CrossEntropy, LabelLoss, MaskLoss, ValueLoss
from besselnet.train._scores import (
    Evaluation,
    LabelsEvaluation,
    MaskEvaluation,
    Result,
    ValueEvaluation,
    count_pixels,
)

# torchmetrics takes longer to import than the rest of this package: only who evaluates pays for it.
if TYPE_CHECKING:
    from torchmetrics import Metric

# Columns of `predict` beside those of the classes and values.
_OWN_COLUMNS = ("image", "labels", "error")
# Images of which the masks are drawn.
SHOWN = 4


class LearningTask(ABC):
    """Base class of tasks: loss, score and output of `fit`, `evaluate` and `predict`.

    Attributes:
        classes: names of the classes, or of the values.
        name: name of the task.
        labels: kind of the labels, in words.
        answers: "image" for one prediction per image, "pixels" for one per pixel.
        score: name of the score, as in the column `val_SCORE` of metrics.csv; title: its title.
        table: key of the report of `evaluate` with a row per class or value.
        is_share: whether the score is a fraction, shown in per cent.
    """

    name: ClassVar[Task]
    labels: ClassVar[str]
    answers: ClassVar[str] = "image"
    score: ClassVar[str]
    title: ClassVar[str]
    table: ClassVar[str] = "classes"
    is_share: ClassVar[bool] = True

    def __init__(self, classes: Sequence[str] = ()) -> None:
        self.classes = tuple(classes)

    @property
    def rotated_score(self) -> tuple[str, str]:
        """Name and title of the score for rotated images."""
        return self.score, self.title

    @abstractmethod
    def criterion(self, config: TrainConfig, labels: Tensor | None = None) -> Criterion:
        """Return the training loss; `labels` are all training labels, for balanced class weights."""

    @property
    @abstractmethod
    def tally_size(self) -> int:
        """Number of values of `tally`."""

    @abstractmethod
    def tally(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return numbers (tally_size,) whose sums over batches give the score."""

    @abstractmethod
    def score_of(self, tally: Tensor, images: float) -> float:
        """Return the score of a number of images from the sum of their tallies."""

    @abstractmethod
    def meter(self, outputs: Tensor) -> "Metric":
        """Return a torchmetrics metric that collects the input of `result` over batches and processes."""

    @abstractmethod
    def test_loss(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, float]:
        """Return the mean loss of a batch, as reported, and the weight of the batch."""

    @abstractmethod
    def result(
        self, loss: float, found: Tensor, images: int, metrics: dict[str, float | None]
    ) -> Result:
        """Return the result of `evaluate` from the value `found` by the meter."""

    @abstractmethod
    def answer(self, outputs: Tensor) -> Tensor:
        """Convert outputs to predictions, in the shape and units of the labels."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of `predict`, with one per class or value.

        A name that all rows have, such as "image", gets an underscore.
        """
        return tuple(f"{name}_" if name in _OWN_COLUMNS else name for name in self.classes)

    @abstractmethod
    def rows(self, outputs: Tensor) -> list[dict[str, Any]]:
        """Return the row of `predict` for each image, by `columns`."""

    def update(self, meter: "Metric", outputs: Tensor, labels: Tensor) -> None:
        """Update the meter with a batch."""
        meter.update(outputs, labels)

    def about(self) -> dict[str, Any]:
        """Return the JSON values that the network folder stores for `read_task`."""
        return {"task": self.name}

    def centred(self, outputs: Tensor) -> Tensor:
        """Return outputs without the part that does not affect predictions."""
        return outputs.float()

    def draw(self, folder: Path, result: Any, model: nn.Module, images: ImageSet) -> None:
        """Draw the results on `images` in a run folder; for classes, the confusion matrix."""
        # matplotlib takes half a second to import.
        from besselnet.drawing import attempt, draw_confusion

        if hasattr(result, "confusion"):
            attempt(draw_confusion, folder / "confusion.png", result.confusion, self.classes)

    def summary(self, result: Mapping[str, Any]) -> str:
        """Return score and loss in one line, from the JSON values of a result."""
        return f"{self.title} {self.in_words(result[self.score])}  loss {result['loss']:.4f}"

    def in_words(self, score: float, digits: int = 2) -> str:
        """Format a score: 91.50%, or 0.9150 if it is not a fraction."""
        return f"{score:.{digits}%}" if self.is_share else f"{score:.{digits + 2}f}"


class Classify(LearningTask):
    """Classification, one class per image: logits (N, K), labels (N,)."""

    name, labels, score, title = "classify", "classes", "accuracy", "accuracy"

    @property
    def tally_size(self) -> int:
        return 1

    def criterion(self, config: TrainConfig, labels: Tensor | None = None) -> Criterion:
        return CrossEntropy(config.class_weights, config.label_smoothing, labels)

    def tally(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return (outputs.argmax(1) == labels).sum()[None]

    def score_of(self, tally: Tensor, images: float) -> float:
        return (tally[0] / images).item()

    def meter(self, outputs: Tensor) -> "Metric":
        from torchmetrics.classification import MulticlassConfusionMatrix

        return MulticlassConfusionMatrix(outputs.shape[1], validate_args=False)

    def test_loss(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, float]:
        return F.cross_entropy(outputs, labels), len(labels)

    def result(
        self, loss: float, found: Tensor, images: int, metrics: dict[str, float | None]
    ) -> Evaluation:
        return Evaluation(loss=loss, confusion=found, metrics=metrics)

    def answer(self, outputs: Tensor) -> Tensor:
        return outputs.argmax(1)

    @property
    def columns(self) -> tuple[str, ...]:
        return "class", "probability"

    def rows(self, outputs: Tensor) -> list[dict[str, Any]]:
        best = outputs.softmax(1).max(1)
        found = zip(best.values.tolist(), best.indices.tolist())
        return [{"class": self.classes[index], "probability": share} for share, index in found]

    def about(self) -> dict[str, Any]:
        return {}

    def centred(self, outputs: Tensor) -> Tensor:
        outputs = outputs.float()
        return outputs - outputs.mean(1, keepdim=True)


class Segment(LearningTask):
    """Segmentation, one class per pixel: logits (N, K, H, W), masks (N, H, W) with `IGNORED` pixels."""

    name, labels, answers = "segment", "masks", "pixels"
    score, title = "iou", "mean IoU"

    def criterion(self, config: TrainConfig, labels: Tensor | None = None) -> Criterion:
        return MaskLoss(config.class_weights, config.label_smoothing, labels)

    @property
    def tally_size(self) -> int:
        return 2 * len(self.classes)

    def tally(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return intersection and union of each class, in pixels."""
        counts = count_pixels(outputs.argmax(1), labels, len(self.classes))
        shared = counts.diagonal()
        return torch.cat([shared, counts.sum(0) + counts.sum(1) - shared])

    def score_of(self, tally: Tensor, images: float) -> float:
        return _mean_ratio(*tally.chunk(2))

    def meter(self, outputs: Tensor) -> "Metric":
        from besselnet.train._metrics import Counts

        # Those of the confusion, and of the boundaries of each class.
        return Counts(outputs.shape[1] * (outputs.shape[1] + 4))

    def update(self, meter: "Metric", outputs: Tensor, labels: Tensor) -> None:
        classes, masks = outputs.shape[1], self.answer(outputs)
        confusion = count_pixels(masks, labels, classes)
        pairs = zip(masks.cpu().numpy(), labels.cpu().numpy())
        boundaries = torch.from_numpy(sum(boundary_counts(*pair, classes) for pair in pairs))
        meter.update(torch.cat([confusion.flatten(), boundaries.flatten().to(confusion)]))

    def test_loss(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, float]:
        loss, weight = MaskLoss()(outputs, labels)
        return loss / weight, weight.item()

    def result(
        self, loss: float, found: Tensor, images: int, metrics: dict[str, float | None]
    ) -> MaskEvaluation:
        classes = len(self.classes)
        confusion, boundaries = found.split([classes**2, 4 * classes])
        counts = confusion.view(classes, classes), boundaries.view(classes, 4)
        return MaskEvaluation(loss, counts[0], images, metrics, counts[1])

    def answer(self, outputs: Tensor) -> Tensor:
        return outputs.argmax(1)

    def rows(self, outputs: Tensor) -> list[dict[str, Any]]:
        """Return the fraction of pixels of each class."""
        masks = F.one_hot(self.answer(outputs), len(self.classes)).double().mean((1, 2))
        return [dict(zip(self.columns, shares)) for shares in masks.tolist()]

    @property
    def rotated_score(self) -> tuple[str, str]:
        return "dice", "mean Dice"

    def draw(self, folder: Path, result: Any, model: nn.Module, images: ImageSet) -> None:
        super().draw(folder, result, model, images)
        from besselnet.drawing import attempt, draw_overlays

        chosen = torch.linspace(0, len(images) - 1, min(len(images), SHOWN)).round().long()
        examples, parameter = images.select(chosen), next(model.parameters())
        with evaluating(model):
            # One by one: images can be large.
            shown = (examples[number][0] for number in range(len(examples)))
            answers = [self.answer(model(image.to(parameter)[None])) for image in shown]
        # What was predicted for a pixel without a label counts nowhere.
        masks = torch.cat(answers).cpu().masked_fill(examples.labels == IGNORED, IGNORED)
        pictures = examples.images[:], masks, examples.labels
        attempt(draw_overlays, folder / "overlays.png", *pictures, self.classes)


class _Rows(LearningTask):
    """What tasks share whose outputs and labels are (N, K): both are kept until the end."""

    def meter(self, outputs: Tensor) -> "Metric":
        from torchmetrics import CatMetric

        # What is not a number spoils the loss, which says so.
        return CatMetric(nan_strategy=math.inf)

    def update(self, meter: "Metric", outputs: Tensor, labels: Tensor) -> None:
        meter.update(torch.cat([outputs, labels], dim=1))


class Regress(_Rows):
    """Regression: outputs (N, K) are standardised, values (N, K) are in their own units.

    Args:
        classes: names of the values.
        mean, deviation: mean and standard deviation (K,) of the training values. Default: 0 and 1.
    """

    name, labels, score, title = "regress", "values", "r2", "R²"
    table, is_share = "values", False

    def __init__(
        self,
        classes: Sequence[str],
        mean: Tensor | None = None,
        deviation: Tensor | None = None,
    ) -> None:
        super().__init__(classes)
        count = len(self.classes)
        self.mean = torch.zeros(count) if mean is None else mean.float()
        self.deviation = torch.ones(count) if deviation is None else deviation.float()

    @classmethod
    def of_values(cls, classes: Sequence[str], values: Tensor) -> "Regress":
        """Return the task with mean and deviation of values (N, K); if all are equal, the deviation is 1."""
        exact = values.double()
        deviation = exact.std(0, correction=0)
        return cls(classes, exact.mean(0), torch.where(deviation > 0, deviation, 1))

    def criterion(self, config: TrainConfig, labels: Tensor | None = None) -> Criterion:
        _refuse_weights(config, self.labels)
        if config.label_smoothing:
            raise ValueError(f"label_smoothing={config.label_smoothing}: must be 0 for values")
        return ValueLoss(self.mean, self.deviation)

    @property
    def tally_size(self) -> int:
        return 3 * len(self.classes)

    def tally(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return squared errors, values and squared values, standardised as the training values."""
        wanted = (labels - self.mean.to(labels)) / self.deviation.to(labels)
        parts = (outputs - wanted).square(), wanted, wanted.square()
        return torch.cat([part.sum(0) for part in parts])

    def score_of(self, tally: Tensor, images: float) -> float:
        wrong, total, squares = tally.chunk(3)
        spread = squares - total.square() / images
        # Of equal values nothing can be explained; rounding can leave a spread.
        some = spread > 1e-6 * squares
        return torch.where(some, 1 - wrong / torch.where(some, spread, 1), 0).mean().item()

    def test_loss(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, float]:
        loss, weight = ValueLoss(self.mean, self.deviation)(outputs, labels)
        return loss / weight, weight.item()

    def result(
        self, loss: float, found: Tensor, images: int, metrics: dict[str, float | None]
    ) -> ValueEvaluation:
        outputs, values = found.chunk(2, dim=1)
        return ValueEvaluation(loss, self.answer(outputs), values, metrics)

    def draw(self, folder: Path, result: Any, model: nn.Module, images: ImageSet) -> None:
        """Draw predicted against true values."""
        from besselnet.drawing import attempt, draw_values

        attempt(draw_values, folder / "values.png", result.values, result.answers, self.classes)

    def answer(self, outputs: Tensor) -> Tensor:
        return outputs * self.deviation.to(outputs) + self.mean.to(outputs)

    def rows(self, outputs: Tensor) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, values)) for values in self.answer(outputs).tolist()]

    def about(self) -> dict[str, Any]:
        spread = {"mean": self.mean.tolist(), "deviation": self.deviation.tolist()}
        return {**super().about(), **spread}


class Multilabel(_Rows):
    """Multi-label classification: logits (N, K), labels (N, K) of 0 and 1."""

    name, labels, score, title = "multilabel", "several labels", "f1", "mean F1"

    def criterion(self, config: TrainConfig, labels: Tensor | None = None) -> Criterion:
        _refuse_weights(config, self.labels)
        return LabelLoss(config.label_smoothing)

    @property
    def tally_size(self) -> int:
        return 2 * len(self.classes)

    def tally(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return 2 x correct, and true + predicted, for each label."""
        answers = self.answer(outputs)
        return torch.cat([2 * (answers * labels).sum(0), (answers + labels).sum(0)])

    def score_of(self, tally: Tensor, images: float) -> float:
        return _mean_ratio(*tally.chunk(2))

    def test_loss(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, float]:
        return F.binary_cross_entropy_with_logits(outputs, labels), len(labels)

    def result(
        self, loss: float, found: Tensor, images: int, metrics: dict[str, float | None]
    ) -> LabelsEvaluation:
        outputs, labels = found.chunk(2, dim=1)
        return LabelsEvaluation(loss, outputs > 0, labels > 0, metrics)

    def answer(self, outputs: Tensor) -> Tensor:
        return (outputs > 0).float()

    @property
    def columns(self) -> tuple[str, ...]:
        return "labels", *super().columns

    def rows(self, outputs: Tensor) -> list[dict[str, Any]]:
        """Return the predicted labels, separated by semicolons, and the probability of each."""
        rows = []
        for likely, shares in zip(self.answer(outputs).tolist(), outputs.sigmoid().tolist()):
            names = ";".join(name for name, there in zip(self.classes, likely) if there)
            rows.append(dict(zip(self.columns, [names, *shares])))
        return rows


_TASKS: dict[str, type[LearningTask]] = {
    kind.name: kind for kind in (Classify, Segment, Regress, Multilabel)
}


def task_of(images: ImageSet) -> LearningTask:
    """Return the task for the labels of (training) images."""
    if images.task == "regress":
        return Regress.of_values(images.classes, images.labels)
    return _TASKS[images.task](images.classes)


def read_task(where: object, classes: Sequence[str], about: Mapping[str, Any]) -> LearningTask:
    """The task that a network's folder tells of (`LearningTask.about`); `where` is that folder."""
    name = about.get("task", Classify.name)
    if not isinstance(name, str) or name not in _TASKS:
        raise ValueError(f"{where}: 'task' is {name!r}: must be one of {', '.join(_TASKS)}")
    if name != Regress.name:
        return _TASKS[name](classes)
    found = {}
    for key in ("mean", "deviation"):
        numbers = about.get(key)
        if not isinstance(numbers, list) or len(numbers) != len(classes):
            raise ValueError(f"{where}: {key!r} must be {len(classes)} numbers")
        least = {"above": 0} if key == "deviation" else {}
        checked = [check_number(f"{where}: {key!r}", number, **least) for number in numbers]
        found[key] = torch.tensor(checked)
    return Regress(classes, **found)


def _refuse_weights(config: TrainConfig, labels: str) -> None:
    if config.class_weights is not None:
        raise ValueError(f"class_weights={config.class_weights!r}: must be unset for {labels}")


def _mean_ratio(parts: Tensor, wholes: Tensor) -> float:
    """The mean of parts / wholes, of those wholes that are not 0."""
    some = wholes > 0
    return ((parts / wholes.clamp(min=1))[some].sum() / some.sum().clamp(min=1)).item()
