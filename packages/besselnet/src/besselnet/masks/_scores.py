"""How well masks agree, pixel by pixel and along their boundaries.

Masks are integer arrays (..., H, W), numpy's or torch's on the CPU. Pixels that are `IGNORED` in the truth
count nowhere. A class that neither mask has gets no score: NaN, which `class_mean` leaves out.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy import ndimage

from besselnet._pixels import IGNORED
from besselnet.checks import check_count, check_number

Array = np.ndarray


def confusion_of_masks(prediction: ArrayLike, truth: ArrayLike, num_classes: int) -> Array:
    """(K, K) int64; entry (i, j) counts pixels of class i taken for class j.

    Confusions of several images add up: scores of their sum are those of all pixels together.
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
    """(..., K): 2 |A and B| / (|A| + |B|) for each class, from (..., K, K) of `confusion_of_masks`.

    It is the F1 score of the pixels.
    """
    both, either = _overlap(confusion)
    return _ratio(2 * both, either + both)


def iou(confusion: ArrayLike) -> Array:
    """(..., K): |A and B| / |A or B| for each class, from (..., K, K) of `confusion_of_masks`."""
    return _ratio(*_overlap(confusion))


def class_mean(scores: ArrayLike) -> Array:
    """(...): the mean over the classes that have a score, of (..., K); NaN where none has."""
    scores = np.asarray(scores, np.float64)
    scored = ~np.isnan(scores)
    return _ratio(np.where(scored, scores, 0).sum(-1), scored.sum(-1))


def boundary_f1(
    prediction: ArrayLike, truth: ArrayLike, num_classes: int, *, tolerance: float = 2
) -> Array:
    """(K,): how well the boundaries of each class agree, for masks (H, W).

    A boundary pixel is one of the class beside a pixel that is not. It is right if the other mask has a
    boundary pixel within `tolerance` pixels. Precision is the share of right ones in the prediction, recall
    that in the truth, and F1 = 2 precision recall / (precision + recall). Neither the frame nor ignored
    pixels make a boundary.
    """
    return f1_of_boundaries(boundary_counts(prediction, truth, num_classes, tolerance=tolerance))


def boundary_counts(
    prediction: ArrayLike, truth: ArrayLike, num_classes: int, *, tolerance: float = 2
) -> Array:
    """(K, 4) int64, for masks (H, W): boundary pixels of each class, as `boundary_f1` explains.

    Right and all ones in the prediction, right and all ones in the truth. Counts of several images add up.
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
    """(..., K): F1 of the boundaries of each class, from (..., K, 4) of `boundary_counts`."""
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
        raise ValueError(f"prediction has shape {ours.shape}: must be {theirs.shape}, as the truth")
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
