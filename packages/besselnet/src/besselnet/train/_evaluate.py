"""How good a classifier is: accuracy, confusion, each class; and what rotating the images changes."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from besselnet.checks import check_choice, check_count
from besselnet.functional import VIEWS, Interpolation, View, hidden_colour, show_rotated
from besselnet.nn import evaluating

# torchmetrics takes longer to import than the rest of this package: only who evaluates pays for it.
if TYPE_CHECKING:
    from torchmetrics import Metric

Batches = Iterable[tuple[Tensor, Tensor]]

# Every tenth of a degree.
MOST_ANGLES = 3600


class NonFiniteLoss(ValueError):
    """The loss is infinite or not a number. In training, the weights have not taken that step."""


@dataclass(frozen=True)
class Evaluation:
    """Result of `evaluate`.

    Attributes:
        loss: mean cross-entropy.
        confusion: (K, K) counts; entry (i, j) counts images of class i taken for class j.
        metrics: values of the further metrics asked for; None where one is not a finite number.
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

    def per_class(self) -> list[dict[str, float]]:
        """Images, recall, precision and F1 of each class; a ratio of nothing counts as 0."""
        right = self.confusion.diagonal().tolist()
        true, guessed = self.confusion.sum(1).tolist(), self.confusion.sum(0).tolist()
        return [
            {
                "images": t,
                "recall": r / t if t else 0.0,
                "precision": r / g if g else 0.0,
                "f1": 2 * r / (t + g) if t + g else 0.0,
            }
            for r, t, g in zip(right, true, guessed)
        ]

    def to_dict(self, classes: Sequence[str] | None = None) -> dict[str, Any]:
        """JSON values, with the classes by name where names are given."""
        names = classes or [str(i) for i in range(len(self.confusion))]
        return {
            "images": self.images,
            "loss": self.loss,
            "accuracy": self.accuracy,
            **self.metrics,
            "classes": dict(zip(names, self.per_class())),
            "confusion": self.confusion.tolist(),
        }


def evaluate(
    model: nn.Module,
    batches: Batches,
    *,
    metrics: "Mapping[str, Metric] | None" = None,
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Evaluation:
    """Evaluate `model` on all of `batches` in eval mode, and leave its mode as it was.

    With several processes each takes its share of the batches; the result is that of all.

    Args:
        metrics: further torchmetrics, updated with (logits, labels).
        autocast: context of the forward pass, such as `fabric.autocast`.

    Raises:
        NonFiniteLoss: the network gives logits that are infinite or NaN.
    """
    from torchmetrics import MeanMetric
    from torchmetrics.classification import MulticlassConfusionMatrix

    device = device_of(model)
    extra = {name: metric.to(device) for name, metric in (metrics or {}).items()}
    loss = MeanMetric().to(device)
    confusion: MulticlassConfusionMatrix | None = None
    for metric in extra.values():
        metric.reset()
    with evaluating(model):
        for images, labels in batches:
            images, labels = images.to(device), labels.to(device)
            with autocast():
                logits = model(images).float()
            if confusion is None:
                classes = logits.shape[1]
                confusion = MulticlassConfusionMatrix(classes, validate_args=False).to(device)
            # The mean would leave NaN out; infinity stays in it.
            each = F.cross_entropy(logits, labels).nan_to_num(math.inf, posinf=math.inf)
            loss.update(each, weight=len(labels))
            confusion.update(logits, labels)
            for metric in extra.values():
                metric.update(logits, labels)
    if confusion is None:
        raise ValueError("cannot evaluate on no batches at all")
    mean = loss.compute().item()
    if not math.isfinite(mean):
        raise not_finite()
    found = {name: metric.compute().item() for name, metric in extra.items()}
    return Evaluation(
        loss=mean,
        confusion=confusion.compute().cpu(),
        metrics={name: value if math.isfinite(value) else None for name, value in found.items()},
    )


def not_finite() -> NonFiniteLoss:
    """What to say of a network that gives no numbers."""
    return NonFiniteLoss(
        "the network gives logits that are infinite or NaN for some of the images: look at its weights "
        "and at the images"
    )


@dataclass(frozen=True)
class RotatedEvaluation:
    """Result of `evaluate_rotated`: one entry per angle, and what they come to.

    Attributes:
        angles: degrees, counter-clockwise; the first is 0.
        accuracy: share of right answers at each angle.
        agreement: share of images given the same class as upright, at each angle.
        drift: mean length of the change of the logits against upright, divided by the mean length
            of the upright logits (both after subtracting the mean over classes, which
            classification ignores), at each angle.
        border: what the images had in their corners: "disc", "reflect" or "black".
    """

    angles: tuple[float, ...]
    accuracy: tuple[float, ...]
    agreement: tuple[float, ...]
    drift: tuple[float, ...]
    border: View

    def to_dict(self) -> dict[str, Any]:
        """JSON values: the summary, then the curves."""
        return {
            "border": self.border,
            "upright_accuracy": self.accuracy[0],
            "rotated_accuracy": fmean(self.accuracy[1:]),
            "accuracy_spread": max(self.accuracy) - min(self.accuracy),
            "agreement": fmean(self.agreement[1:]),
            "logit_drift": fmean(self.drift[1:]),
            "angles": list(self.angles),
            "accuracy": list(self.accuracy),
            "agreement_by_angle": list(self.agreement),
            "drift_by_angle": list(self.drift),
        }


def evaluate_rotated(
    model: nn.Module,
    batches: Batches,
    *,
    angles: int = 24,
    border: View = "disc",
    interpolation: Interpolation = "cubic",
    colour: Tensor | None = None,
) -> RotatedEvaluation:
    """Evaluate `model` on every image rotated by each of `angles` angles, equally spaced from 0.

    Args:
        angles: how many, 2 to 3600.
        border: "disc" measures the network and not the border: all copies, also the upright one, are
            seen through the inscribed disc, which every angle shows; its edge is two pixels soft.
            "reflect" mirrors the images at their edges; "black" leaves black corners.
        interpolation: how rotated images are sampled, see `besselnet.functional.rotate_images`.
        colour: (C,) for the pixels outside the disc. Unset, it is the mean over all images of what
            the disc hides, for which the batches are read once more.

    Raises:
        NonFiniteLoss: the network gives logits that are infinite or NaN.
    """
    check_count("angles", angles, least=2, most=MOST_ANGLES)
    check_choice("border", border, VIEWS)
    if border == "disc" and colour is None:
        if iter(batches) is batches:
            raise ValueError(
                "batches is an iterator: must be readable twice for border='disc', as a list is, "
                "unless colour is given"
            )
        colour = hidden_colour(batches)
    device = device_of(model)
    degrees = torch.arange(angles) * (360 / angles)
    right, agree = torch.zeros(angles), torch.zeros(angles)
    moved = torch.zeros(angles, dtype=torch.float64)
    images_seen, length = 0, 0.0
    with evaluating(model):
        for images, labels in batches:
            images, labels = images.to(device), labels.to(device)
            upright = _centred(model(show_rotated(images, 0.0, border, interpolation, colour)))
            images_seen += len(labels)
            length += upright.norm(dim=1).sum().item()
            for i, angle in enumerate(degrees.tolist()):
                logits = upright
                if i:
                    shown = show_rotated(images, angle, border, interpolation, colour)
                    logits = _centred(model(shown))
                right[i] += (logits.argmax(1) == labels).sum().item()
                agree[i] += (logits.argmax(1) == upright.argmax(1)).sum().item()
                moved[i] += (logits - upright).norm(dim=1).sum().item()
    if not images_seen:
        raise ValueError("cannot evaluate on no batches at all")
    if not (math.isfinite(length) and bool(moved.isfinite().all())):
        raise not_finite()
    return RotatedEvaluation(
        angles=tuple(degrees.tolist()),
        accuracy=tuple((right / images_seen).tolist()),
        agreement=tuple((agree / images_seen).tolist()),
        drift=tuple((moved / length).tolist()) if length else (0.0,) * angles,
        border=border,
    )


def device_of(model: nn.Module) -> torch.device:
    """Where the parameters are."""
    parameter = next(model.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device


def _centred(logits: Tensor) -> Tensor:
    logits = logits.float()
    return logits - logits.mean(1, keepdim=True)
