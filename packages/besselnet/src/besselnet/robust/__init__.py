"""What makes a network fail: corruptions that happen, attacks that are made, gradients that hide.

A network is any callable from images (N, C, H, W) in [0, 1] to logits (N, K). Every attack takes
a network, images and their classes (N,), and returns images of the same shape in [0, 1]; those
bounded by `eps` change no pixel by more.

Only images that are answered right are attacked. An image leaves an attack with the first copy that
is answered wrongly; one that no copy breaks comes back as it was. So attacks can follow one another,
each on what the others have left. Modules are attacked in evaluation mode, and keep their mode.
"""

from besselnet.robust._apgd import apgd
from besselnet.robust._attacks import adversarial_batch, ensemble, fgsm, pgd, random_search
from besselnet.robust._corruptions import CORRUPTIONS, SEVERITIES, Corruption, corrupt
from besselnet.robust._masking import (
    LARGE_EPS,
    MaskingVerdict,
    judge_gradients,
    zero_gradients,
)
from besselnet.robust._spatial import spatial
from besselnet.robust._square import square

__all__ = [
    "CORRUPTIONS",
    "LARGE_EPS",
    "SEVERITIES",
    "Corruption",
    "MaskingVerdict",
    "adversarial_batch",
    "apgd",
    "corrupt",
    "ensemble",
    "fgsm",
    "judge_gradients",
    "pgd",
    "random_search",
    "spatial",
    "square",
    "zero_gradients",
]
