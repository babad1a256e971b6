"""Calibration: of the predictions with probability p, a fraction p should be correct.

Guo et al., On Calibration of Modern Neural Networks, 2017.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from besselnet.checks import check_count

# Where the temperature is looked for, and in how many halvings of the logarithm.
LOWEST, HIGHEST, HALVINGS = 1e-3, 1e3, 60


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """Return the temperature T for which ``softmax(logits / T)`` has the lowest cross-entropy.

    The loss is convex in 1 / T, so its minimum is found by bisection, in float64. Labels are smoothed with
    e = 1 / (N + 1); otherwise the temperature would be 0 if all predictions are correct. The result is
    between 0.001 and 1000; it is 1 if the logits have no information.

    Args:
        logits: (N, K), of images that were not used for training.
        labels: (N,) integers.
    """
    check_labels("logits", logits, labels)
    # The softmax does not depend on what all logits of an image share.
    values = logits.double() - logits.double().mean(1, keepdim=True)
    if not bool(values.any()):
        return 1.0
    # After centring, "any class alike" adds 0 to the wanted mean.
    share = len(labels) / (len(labels) + 1)
    wanted = share * values.gather(1, labels[:, None]).mean()
    low, high = math.log(LOWEST), math.log(HIGHEST)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        expected = ((values / math.exp(middle)).softmax(1) * values).sum(1).mean()
        # More than wanted: the probabilities are too sure, and the temperature too low.
        low, high = (middle, high) if expected > wanted else (low, middle)
    return math.exp((low + high) / 2)


@dataclass(frozen=True)
class Reliability:
    """Accuracy of predictions in bins of probability; an empty bin has 0 everywhere.

    Attributes:
        images: (bins,) number of images with a probability in each of the equal intervals of [0, 1].
        probability: (bins,) their mean probability.
        accuracy: (bins,) their accuracy.
    """

    images: Tensor
    probability: Tensor
    accuracy: Tensor

    @property
    def error(self) -> float:
        """Expected calibration error: mean of abs(accuracy - probability) over bins, weighted by images."""
        gaps = (self.accuracy - self.probability).abs() * self.images
        return (gaps.sum() / self.images.sum()).item()


def reliability(probabilities: Tensor, labels: Tensor, bins: int = 15) -> Reliability:
    """Sort predictions (the most probable classes) into `bins` by their probability.

    Args:
        probabilities: (N, K), rows sum to 1.
        labels: (N,) integers.
        bins: number of equal intervals of [0, 1]; each includes its upper end.
    """
    check_labels("probabilities", probabilities, labels)
    check_count("bins", bins)
    best = probabilities.double().max(1)
    place = (best.values * bins).ceil().long().sub(1).clamp(0, bins - 1)
    columns = torch.ones_like(best.values), best.values, (best.indices == labels).double()
    images, total, right = (
        torch.zeros(bins, dtype=torch.float64).index_add_(0, place.cpu(), column.cpu())
        for column in columns
    )
    some = images.clamp(min=1)
    return Reliability(images, total / some, right / some)


def expected_calibration_error(probabilities: Tensor, labels: Tensor, bins: int = 15) -> float:
    """Return the expected calibration error, in [0, 1]; see `Reliability.error` and `reliability`."""
    return reliability(probabilities, labels, bins).error


def check_labels(name: str, rows: Tensor, labels: Tensor) -> None:
    """Refuse anything but finite rows (N, K) and labels (N,), N >= 1."""
    if rows.ndim != 2 or not len(rows) or labels.shape != rows.shape[:1]:
        raise ValueError(
            f"{name} of shape {tuple(rows.shape)} with labels of shape {tuple(labels.shape)}: must be "
            "(N, K) and (N,) with N >= 1"
        )
    if not bool(rows.isfinite().all()):
        raise ValueError(f"{name} has values that are infinite or NaN: must be finite")
