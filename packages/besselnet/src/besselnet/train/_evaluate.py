"""Evaluate a network on upright and on rotated images."""

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any, overload

import torch
from torch import Tensor, nn

from besselnet.checks import check_choice, check_count
from besselnet.data import IGNORED
from besselnet.data import Batches as ImageBatches
from besselnet.functional import VIEWS, Interpolation, View, hidden_colour, show_rotated
from besselnet.masks import InstanceScores, label_instances, match_instances, roles_of
from besselnet.nn import evaluating
from besselnet.train._scores import Evaluation, MaskEvaluation, Result
from besselnet.train._tasks import Classify, LearningTask

# torchmetrics takes longer to import than the rest of this package: only who evaluates pays for it.
if TYPE_CHECKING:
    from torchmetrics import Metric

Batches = Iterable[tuple[Tensor, Tensor]]

# Every tenth of a degree.
MOST_ANGLES = 3600


class NonFiniteLoss(ValueError):
    """The loss is infinite or NaN. In training, the weights were not updated by that step."""


@overload
def evaluate(
    model: nn.Module,
    batches: Batches,
    *,
    task: None = None,
    metrics: "Mapping[str, Metric] | None" = None,
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Evaluation: ...
@overload
def evaluate(
    model: nn.Module,
    batches: Batches,
    *,
    task: LearningTask,
    metrics: "Mapping[str, Metric] | None" = None,
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Result: ...
def evaluate(
    model: nn.Module,
    batches: Batches,
    *,
    task: LearningTask | None = None,
    metrics: "Mapping[str, Metric] | None" = None,
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Result:
    """Evaluate `model` on all of `batches` in eval mode; its mode is restored afterwards.

    With several processes, each evaluates its part of the batches, and the result is that of all.

    Args:
        model: the network.
        batches: iterable of (images, labels).
        task: the task, such as `Segment(classes)`. Default: classification.
        metrics: additional torchmetrics, updated with (outputs, labels).
        autocast: context manager of the forward pass, such as `fabric.autocast`.

    Returns:
        `Evaluation` for classes, `MaskEvaluation`, `ValueEvaluation` or `LabelsEvaluation`.

    Raises:
        NonFiniteLoss: if logits are infinite or NaN.
    """
    from torchmetrics import MeanMetric, SumMetric

    task = task or Classify()
    device = device_of(model)
    extra = {name: metric.to(device) for name, metric in (metrics or {}).items()}
    loss, seen = MeanMetric().to(device), SumMetric().to(device)
    meter: Metric | None = None
    for metric in extra.values():
        metric.reset()
    with evaluating(model):
        for images, labels in batches:
            if not len(labels):
                # The share of a process in a last batch that is too small for all.
                continue
            images, labels = images.to(device), labels.to(device)
            with autocast():
                outputs = model(images).float()
            if meter is None:
                meter = task.meter(outputs).to(device)
            each, weight = task.test_loss(outputs, labels)
            # The mean would leave NaN out; infinity stays in it.
            loss.update(each.nan_to_num(math.inf, posinf=math.inf), weight=weight)
            seen.update(len(labels))
            task.update(meter, outputs, labels)
            for metric in extra.values():
                metric.update(outputs, labels)
    if meter is None:
        raise ValueError("batches is empty: must have at least one batch")
    mean = loss.compute().item()
    if not math.isfinite(mean):
        raise not_finite()
    found = {name: metric.compute().item() for name, metric in extra.items()}
    finite = {name: value if math.isfinite(value) else None for name, value in found.items()}
    return task.result(mean, meter.compute().cpu(), int(seen.compute()), finite)


def with_objects(
    result: Result,
    model: nn.Module,
    batches: ImageBatches,
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Result:
    """`result`, for masks with the scores of single objects where the images have their numbers.

    Objects are found by `besselnet.masks.label_instances`, a pair of objects has an IoU above 0.5.
    """
    imageset, device = batches.imageset, device_of(model)
    if imageset.instances is None or not isinstance(result, MaskEvaluation):
        return result
    roles, total = roles_of(imageset.classes), InstanceScores()
    with evaluating(model):
        for number, (images, labels) in enumerate(batches):
            with autocast():
                masks = model(images.to(device)).argmax(1).cpu().numpy()
            truths = imageset.instances[batches.indices(number)].numpy()
            for mask, truth, unknown in zip(masks, truths, (labels == IGNORED).cpu().numpy()):
                total += match_instances(label_instances(mask, **roles), truth, ignored=unknown)
    return replace(result, objects=total)


def not_finite() -> NonFiniteLoss:
    """What to say of a network that gives no numbers."""
    return NonFiniteLoss(
        "the logits of the network are infinite or NaN for some images: check its weights and the images"
    )


@dataclass(frozen=True)
class RotatedEvaluation:
    """Result of `evaluate_rotated`, with one entry per angle.

    Attributes:
        angles: angles in degrees, counter-clockwise; the first is 0.
        scores: the score at each angle; for classes, the accuracy.
        agreement: the score at each angle with the predictions for the upright images as ground truth; for
            classes, the fraction of images with the same prediction.
        drift: mean norm of the change of the outputs at each angle, divided by the mean norm of the upright
            outputs (for logits, both after subtracting the mean over classes, which does not affect the
            prediction).
        border: content of the corners: "disc", "reflect" or "black".
        score: name of the score.
    """

    angles: tuple[float, ...]
    scores: tuple[float, ...]
    agreement: tuple[float, ...]
    drift: tuple[float, ...]
    border: View
    score: str = "accuracy"

    @property
    def accuracy(self) -> tuple[float, ...]:
        """The scores, if they are the accuracy."""
        if self.score != "accuracy":
            raise AttributeError(
                f"accuracy is not available: the score is {self.score!r}, see `scores`"
            )
        return self.scores

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON values: the summary, then the curves."""
        return {
            "border": self.border,
            f"upright_{self.score}": self.scores[0],
            f"rotated_{self.score}": fmean(self.scores[1:]),
            f"{self.score}_spread": max(self.scores) - min(self.scores),
            "agreement": fmean(self.agreement[1:]),
            "logit_drift": fmean(self.drift[1:]),
            "angles": list(self.angles),
            self.score: list(self.scores),
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
    task: LearningTask | None = None,
) -> RotatedEvaluation:
    """Evaluate `model` on every image rotated by each of `angles` angles, equally spaced from 0.

    Args:
        model: the network.
        batches: iterable of (images, labels).
        angles: number of angles, 2 to 3600.
        border: with "disc", all copies, including the upright one, show only the inscribed disc, which is
            visible at every angle. So the corners do not affect the result. The edge of the disc fades over
            two pixels. "reflect" mirrors the images at their edges; "black" leaves black corners.
        interpolation: interpolation of rotated images, see `besselnet.functional.rotate_images`.
        colour: colour (C,) of the pixels outside the disc. Default: the mean over all images of the hidden
            pixels, which requires a second pass over the batches.
        task: as for `evaluate`; for masks, use `besselnet.masks.mask_agreement`.

    Raises:
        NonFiniteLoss: if logits are infinite or NaN.
    """
    check_count("angles", angles, least=2, most=MOST_ANGLES)
    check_choice("border", border, VIEWS)
    task = task or Classify()
    if task.answers == "pixels":
        raise ValueError(f"task is {task.name!r}: use besselnet.masks.mask_agreement for masks")
    if border == "disc" and colour is None:
        if iter(batches) is batches:
            raise ValueError(
                "batches is an iterator: must be readable twice (such as a list) for border='disc', "
                "unless colour is given"
            )
        colour = hidden_colour(batches)
    device = device_of(model)
    degrees = torch.arange(angles) * (360 / angles)
    right, agree = (torch.zeros(angles, task.tally_size, dtype=torch.float64) for _ in range(2))
    moved = torch.zeros(angles, dtype=torch.float64)
    images_seen, length = 0, 0.0
    with evaluating(model):
        for images, labels in batches:
            images, labels = images.to(device), labels.to(device)
            upright = task.centred(model(show_rotated(images, 0.0, border, interpolation, colour)))
            answers = task.answer(upright)
            images_seen += len(labels)
            length += upright.flatten(1).norm(dim=1).sum().item()
            for i, angle in enumerate(degrees.tolist()):
                outputs = upright
                if i:
                    shown = show_rotated(images, angle, border, interpolation, colour)
                    outputs = task.centred(model(shown))
                right[i] += task.tally(outputs, labels).cpu()
                agree[i] += task.tally(outputs, answers).cpu()
                moved[i] += (outputs - upright).flatten(1).norm(dim=1).sum().item()
    if not images_seen:
        raise ValueError("batches is empty: must have at least one batch")
    if not (math.isfinite(length) and bool(moved.isfinite().all())):
        raise not_finite()
    return RotatedEvaluation(
        angles=tuple(degrees.tolist()),
        scores=tuple(task.score_of(tally, images_seen) for tally in right.float()),
        agreement=tuple(task.score_of(tally, images_seen) for tally in agree.float()),
        drift=tuple((moved / length).tolist()) if length else (0.0,) * angles,
        border=border,
        score=task.score,
    )


def device_of(model: nn.Module) -> torch.device:
    """Where the parameters are."""
    parameter = next(model.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device
