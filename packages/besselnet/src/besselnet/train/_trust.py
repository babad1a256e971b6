"""Trust in the predictions of a run: fitted on the validation images, tested by `evaluate`."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from besselnet.data import Batches, ImageSet, data_options
from besselnet.nn import fold_batch_norm
from besselnet.robust import (
    COVERAGE,
    Judgement,
    Limits,
    Trust,
    expected_calibration_error,
    fit_trust,
    reliability,
)
from besselnet.train._evaluate import device_of
from besselnet.train._sample import sample_images

# What `predict` writes about each image, and the type of each.
TRUST_COLUMNS: dict[str, type] = {"class": str, "probability": float, "sure": str, "set": str}
# Training images that are looked at, drawn at random: more of them change little, and cost time.
MOST_IMAGES = 2_000


def fit_run_trust(
    model: nn.Module, training: ImageSet, held_out: ImageSet, batch_size: int
) -> Trust:
    """The trust in a trained network; of the training images at most `MOST_IMAGES` are looked at."""
    network = fold_batch_norm(model)
    parts = sample_images(training, MOST_IMAGES), held_out
    batches = (Batches(part, batch_size, device=device_of(network)) for part in parts)
    return fit_trust(network, *batches)


def describe_trust(trust: Trust) -> str:
    """One line: what was fitted, and what it promises."""
    limits = trust.limits()
    count = len(trust.answer_right)
    sure = "are too few to call any answer sure"
    if limits.error_rate is not None:
        sure = f"promise at most {limits.error_rate:.0%} errors among the sure answers"
    return f"probabilities calibrated (temperature {trust.temperature:.2f}): {count} validation images {sure}"


def explain_no_trust(source: str) -> str:
    """One line: why there is none, and how to get one."""
    remedy = ""
    if source and "val" in data_options(source):
        remedy = "; hold some out with --set data.options.val=0.1"
    return f"no validation images: probabilities are not calibrated, and `sure` is not available{remedy}"


def find_limits(
    trust: Trust | None, coverage: float | None, error_rate: float | None
) -> Limits | None:
    """The limits that are asked for, else the usual ones; None where there is no trust."""
    if trust is not None:
        return trust.limits(COVERAGE if coverage is None else coverage, error_rate)
    asked = {"coverage": coverage, "error_rate": error_rate}
    for name, value in asked.items():
        if value is not None:
            raise ValueError(
                f"{name}={value!r}: must be unset for this run: it requires a run with classes and "
                "validation images"
            )
    return None


def trust_rows(found: Judgement, classes: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """For each image the columns of `predict`, by `TRUST_COLUMNS`."""
    best = found.probabilities.max(1)
    rows = zip(best.indices.tolist(), best.values.tolist(), found.words(), found.sets.tolist())
    for index, probability, sure, members in rows:
        likely = ";".join(name for name, inside in zip(classes, members) if inside)
        yield {"class": classes[index], "probability": probability, "sure": sure, "set": likely}


def evaluate_trust(
    trust: Trust,
    limits: Limits,
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    picture: Path,
) -> dict[str, Any]:
    """How trust in a network does on images with labels: JSON values, see `evaluate_run`.

    Draws probability against accuracy, before and after the calibration.
    """
    from besselnet.drawing import attempt, draw_reliability

    network = fold_batch_norm(model)
    device = device_of(network)
    judged, truths = [], []
    for images, labels in batches:
        judged.append(trust.judge(network, images.to(device), limits))
        truths.append(labels.cpu())
    labels = torch.cat(truths)

    def joined(name: str) -> Tensor:
        return torch.cat([getattr(found, name) for found in judged])

    after, sets, sure = joined("probabilities"), joined("sets"), joined("sure")
    before = (after.log() * trust.temperature).softmax(1)
    wrong = (after.argmax(1) != labels).double()
    true, in_set = (rows.gather(1, labels[:, None])[:, 0] for rows in (after, sets))
    bins = {"before": reliability(before, labels), "calibrated": reliability(after, labels)}
    drawn = attempt(draw_reliability, picture, bins)
    return {
        "temperature": trust.temperature,
        "held_out_images": len(trust.answer_right),
        "calibration_error_before": expected_calibration_error(before, labels),
        "calibration_error": expected_calibration_error(after, labels),
        "coverage": limits.coverage,
        "threshold_coverage": _mean(true >= limits.in_set),
        "set_coverage": _mean(in_set),
        "set_size": _mean(sets.sum(1)),
        "sure": _mean(sure),
        "unsure": _mean(joined("unsure") & ~joined("unlike")),
        "unlike": _mean(joined("unlike")),
        "error_rate": limits.error_rate,
        "error": _mean(wrong),
        "error_if_sure": _mean(wrong[sure]) if bool(sure.any()) else None,
        "picture": str(picture) if drawn else None,
    }


def _mean(values: Tensor) -> float:
    return values.double().mean().item()
