"""Robustness and trust: corruptions, adversarial attacks, calibration, prediction sets.

A network is any callable from images (N, C, H, W) in [0, 1] to logits (N, K).

Every attack accepts a network, images and their classes (N,), and returns images of the same shape in
[0, 1]. Attacks with a bound `eps` change no pixel by more. Only correctly classified images are attacked. The
result has the first misclassified copy of each image, or the image itself if no copy is misclassified. So
attacks can be chained, each on the images that the others have not broken. Modules are attacked in eval mode,
and their mode is restored.

Trust is about single predictions: calibrated probabilities, prediction sets, and images unlike the training
images (out of distribution).
"""

from besselnet.robust._apgd import apgd
from besselnet.robust._attacks import adversarial_batch, ensemble, fgsm, pgd, random_search
from besselnet.robust._calibration import (
    Reliability,
    expected_calibration_error,
    fit_temperature,
    reliability,
)
from besselnet.robust._conformal import answer_threshold, conformal_threshold, prediction_sets
from besselnet.robust._corruptions import CORRUPTIONS, SEVERITIES, Corruption, corrupt
from besselnet.robust._masking import (
    LARGE_EPS,
    MaskingVerdict,
    judge_gradients,
    zero_gradients,
)
from besselnet.robust._spatial import spatial
from besselnet.robust._square import square
from besselnet.robust._trust import (
    COVERAGE,
    TRUST_FILE,
    Judgement,
    Limits,
    Trust,
    fit_trust,
    load_trust,
    save_trust,
)
from besselnet.robust._unlike import Likeness, describe_images, fit_likeness

__all__ = [
    "CORRUPTIONS",
    "COVERAGE",
    "LARGE_EPS",
    "SEVERITIES",
    "TRUST_FILE",
    "Corruption",
    "Judgement",
    "Likeness",
    "Limits",
    "MaskingVerdict",
    "Reliability",
    "Trust",
    "adversarial_batch",
    "answer_threshold",
    "apgd",
    "conformal_threshold",
    "corrupt",
    "describe_images",
    "ensemble",
    "expected_calibration_error",
    "fgsm",
    "fit_likeness",
    "fit_temperature",
    "fit_trust",
    "judge_gradients",
    "load_trust",
    "pgd",
    "prediction_sets",
    "random_search",
    "reliability",
    "save_trust",
    "spatial",
    "square",
    "zero_gradients",
]
