"""Scores of masks: Dice, IoU and boundary F1.

Masks are integer arrays (..., H, W) of numpy, or of torch on the CPU. Pixels that are `IGNORED` in the truth
are left out. A class that occurs in neither mask has the score NaN, which `class_mean` leaves out.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy import ndimage

from besselnet._pixels import IGNORED
from besselnet.checks import check_count, check_number

Array = np.ndarray


def confusion_of_masks(prediction: ArrayLike, truth: ArrayLike, num_classes: int) -> Array:
    """Return the confusion matrix (K, K) int64; entry (i, j) counts pixels of class i predicted as class j.

    Add the matrices of several images to get the scores of all their pixels.
    """
    check_count("num_classes", num_classes, most=IGNORED)
    prediction, truth = same_shape(prediction, truth)
    known = truth != IGNORED
    guessed, true = prediction[known].astype(np.int64), truth[known].astype(np.int64)
    for name, classes in (("prediction", guessed), ("truth", true)):
        if classes.size and not (classes.min() >= 0 and classes.max() < num_classes):
            raise ValueError(
                f"{name} has classes from {classes.min()} to {classes.max()}: must be 0 to "
                f"{num_classes - 1}"
            )
    counts = np.bincount(true * num_classes + guessed, minlength=num_classes**2)
    return counts.reshape(num_classes, num_classes)


def dice(confusion: ArrayLike) -> Array:
    """Return the Dice score (..., K) of each class, from confusion matrices (..., K, K).

    It is 2 |A and B| / (|A| + |B|), the F1 score of the pixels.
    """
    both, either = _overlap(confusion)
    return _ratio(2 * both, either + both)


def iou(confusion: ArrayLike) -> Array:
    """Return the IoU |A and B| / |A or B| (..., K) of each class, from confusion matrices (..., K, K)."""
    return _ratio(*_overlap(confusion))


def class_mean(scores: ArrayLike) -> Array:
    """Return the mean (...) of scores (..., K) over the classes, without NaN; NaN if all are NaN."""
    scores = np.asarray(scores, np.float64)
    scored = ~np.isnan(scores)
    return _ratio(np.where(scored, scores, 0).sum(-1), scored.sum(-1))


def boundary_f1(
    prediction: ArrayLike, truth: ArrayLike, num_classes: int, *, tolerance: float = 2
) -> Array:
    """Return the boundary F1 (K,) of each class, for masks (H, W).

    A boundary pixel of a class has a neighbour of another class. It is correct if the other mask has a
    boundary pixel within `tolerance` pixels. Precision is the fraction of correct boundary pixels in the
    prediction, recall that in the truth, and F1 = 2 precision recall / (precision + recall). The image frame
    and ignored pixels do not form boundaries.
    """
    return f1_of_boundaries(boundary_counts(prediction, truth, num_classes, tolerance=tolerance))


def boundary_counts(
    prediction: ArrayLike, truth: ArrayLike, num_classes: int, *, tolerance: float = 2
) -> Array:
    """Return counts (K, 4) int64 of boundary pixels of each class, for masks (H, W); see `boundary_f1`.

    The columns are: correct and all in the prediction, correct and all in the truth. Add the counts of
    several images.
    """
    check_count("num_classes", num_classes, most=IGNORED)
    check_number("tolerance", tolerance, least=0)
    prediction, truth = same_shape(prediction, truth)
    if truth.ndim != 2:
        raise ValueError(f"truth has shape {truth.shape}: must be (H, W)")
    known = truth != IGNORED
    counts = np.zeros((num_classes, 4), np.int64)
    for number in range(num_classes):
        ours = _boundary(prediction == number, known)
        theirs = _boundary(truth == number, known)
        counts[number] = (
            *(_count_near(ours, theirs, tolerance), np.count_nonzero(ours)),
            *(_count_near(theirs, ours, tolerance), np.count_nonzero(theirs)),
        )
    return counts


def f1_of_boundaries(counts: ArrayLike) -> Array:
    """Return the boundary F1 (..., K) of each class, from `boundary_counts` (..., K, 4)."""
    near_ours, ours, near_theirs, theirs = np.moveaxis(np.asarray(counts, np.float64), -1, 0)
    precision, recall = (
        near / np.maximum(pixels, 1) for near, pixels in ((near_ours, ours), (near_theirs, theirs))
    )
    scores = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
    return np.where(ours + theirs > 0, scores, np.nan)


def same_shape(prediction: ArrayLike, truth: ArrayLike) -> tuple[Array, Array]:
    """Both as arrays; refused if their shapes differ."""
    ours, theirs = np.asarray(prediction), np.asarray(truth)
    if ours.shape != theirs.shape:
        raise ValueError(
            f"prediction has shape {ours.shape}: must be {theirs.shape}, like the truth"
        )
    return ours, theirs


def _overlap(confusion: ArrayLike) -> tuple[Array, Array]:
    """Pixels of each class in both masks, and in at least one."""
    counts = np.asarray(confusion)
    both = np.diagonal(counts, axis1=-2, axis2=-1)
    return both, counts.sum(-1) + counts.sum(-2) - both


def _ratio(part: Array, whole: Array) -> Array:
    return np.divide(part, whole, out=np.full(np.shape(part), np.nan), where=whole > 0)


def _boundary(inside: Array, known: Array) -> Array:
    """Pixels inside with a known neighbour, of four, outside."""
    kept = ndimage.binary_erosion(inside | ~known, border_value=1)
    return inside & known & ~kept


def _count_near(pixels: Array, others: Array, tolerance: float) -> int:
    if not (pixels.any() and others.any()):
        return 0
    return np.count_nonzero(ndimage.distance_transform_edt(~others)[pixels] <= tolerance)
