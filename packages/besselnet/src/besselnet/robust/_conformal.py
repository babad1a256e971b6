"""Guarantees for new images from held-out images: prediction sets, and sure predictions.

They hold for images from the same distribution as the held-out ones, not for those of another microscope.
"""

import math

import numpy as np
from scipy.special import betaincinv
from torch import Tensor

from besselnet.checks import check_number
from besselnet.robust._calibration import check_labels

# Shares of the images, surest first, at which `answer_threshold` begins.
STARTS = (1 / 8, 1 / 2)


def conformal_threshold(probabilities: Tensor, labels: Tensor, coverage: float) -> float:
    """Return the probability that the true class of a new image reaches with chance `coverage` or more.

    Split conformal prediction: the k-th largest probability of the true classes of held-out images, with
    k = ceil((N + 1) coverage); 0 if k > N, because so few images guarantee nothing. If no two probabilities
    are equal, the chance is at most coverage + 1 / (N + 1).

    Args:
        probabilities: (N, K) of held-out images.
        labels: (N,) integers.
        coverage: between 0 and 1.
    """
    check_labels("probabilities", probabilities, labels)
    return reached(probabilities.gather(1, labels[:, None])[:, 0], coverage)


def reached(probabilities: Tensor, coverage: float) -> float:
    """`conformal_threshold` of the probabilities (N,) of the right classes alone."""
    check_number("coverage", coverage, above=0, below=1)
    rank = quantile_rank(len(probabilities), coverage)
    if rank > len(probabilities):
        return 0.0
    return probabilities.double().sort(descending=True).values[rank - 1].item()


def quantile_rank(count: int, coverage: float) -> int:
    """The k for which a new number is, with the chance `coverage`, at most the k-th smallest of `count`."""
    # 0.9 x 10 is 9 on paper, and may be a little more in floating point.
    return max(1, math.ceil((count + 1) * coverage - 1e-9))


def prediction_sets(probabilities: Tensor, threshold: float) -> Tensor:
    """Return prediction sets (N, K) bool: classes that reach the threshold, and always the most probable one.

    Without the most probable class, sets of networks that are more accurate than the coverage would sometimes
    be empty. With it, they contain the true class more often than requested.
    """
    likeliest = probabilities.argmax(1, keepdim=True)
    return (probabilities >= threshold).scatter(1, likeliest, True)


def answer_threshold(
    probabilities: Tensor, right: Tensor, error_rate: float, *, confidence: float = 0.9
) -> float:
    """Return the lowest probability above which the error rate is at most `error_rate`.

    The guarantee has the given confidence over the choice of the held-out images. For the k images with the
    highest probability, the upper Clopper-Pearson bound of the error rate must not exceed `error_rate`. k
    grows from an eighth, and from a half, of the images (at least as many as suffice without errors), until
    the bound exceeds it. Each of the two searches tests in a fixed order ("fixed sequence testing") and uses
    half of the probability 1 - confidence.

    Args:
        probabilities: (N,) of the predictions for held-out images.
        right: (N,) whether they are correct.
        error_rate: between 0 and 1.
        confidence: between 0 and 1.

    Returns:
        The threshold; infinity if there are too few images for such a guarantee.
    """
    check_number("error_rate", error_rate, above=0, below=1)
    check_number("confidence", confidence, above=0, below=1)
    if probabilities.ndim != 1 or not len(probabilities) or right.shape != probabilities.shape:
        raise ValueError(
            f"probabilities of shape {tuple(probabilities.shape)} with right of shape "
            f"{tuple(right.shape)}: must both be (N,) with N >= 1"
        )
    level = 1 - (1 - confidence) / len(STARTS)
    order = np.argsort(-probabilities.double().numpy(), kind="stable")
    found, wrong = probabilities.double().numpy()[order], np.cumsum(~right.bool().numpy()[order])
    answered = np.arange(1, len(found) + 1)
    # Where all are wrong, the formula has no value, and the bound is 1.
    bound = betaincinv(wrong + 1, np.maximum(answered - wrong, 1), level)
    kept = np.where(wrong < answered, bound, 1.0) <= error_rate
    # Equal probabilities are answered together.
    ends = np.append(found[1:] < found[:-1], True)
    fewest = math.log(1 - level) / math.log(1 - error_rate)
    threshold = math.inf
    for start in STARTS:
        for passes, count, value in zip(kept[ends], answered[ends], found[ends]):
            if count < max(fewest, start * len(found)):
                continue
            if not passes:
                break
            threshold = min(threshold, float(value))
    return threshold
