"""Detect gradient masking, with which a network looks more robust than it is.

Gradients are misleading if a network rounds or saturates. Then attacks without gradients, or with fewer
steps, are stronger than many steps along the gradient. And these steps fail even if any change is allowed
(Athalye et al. 2018; Carlini et al. 2019).
"""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from besselnet.robust._attacks import fgsm, pgd, random_search
from besselnet.robust._square import square
from besselnet.robust._standing import Network, ascent, attacking, measuring

# In a ball of this size every image can be made uniformly grey, and any network can be led astray.
LARGE_EPS = 0.5
# Shares of the images: by so much another attack may be better than PGD by chance, ...
MARGIN = 0.02
# ... so many may stand in the large ball, and so many may have no gradient at all.
STANDING = ZERO_GRADIENTS = 0.05


@dataclass(frozen=True)
class MaskingVerdict:
    """Evidence for gradient masking: accuracies of the same images under attack.

    Attributes:
        pgd, fgsm, random_search, square: accuracy under these attacks, at the same eps.
        pgd_large_eps: accuracy under PGD with eps `LARGE_EPS`.
        zero_gradients: fraction of the correctly classified images whose gradient is exactly zero.
    """

    pgd: float
    fgsm: float
    random_search: float
    square: float
    pgd_large_eps: float
    zero_gradients: float

    @property
    def reasons(self) -> tuple[str, ...]:
        """Signs of gradient masking, in words; empty if there are none."""
        others = {
            "FGSM": self.fgsm,
            "random search": self.random_search,
            "the square attack": self.square,
        }
        found = [
            f"{name} is stronger than PGD (accuracy {accuracy:.1%} against {self.pgd:.1%})"
            for name, accuracy in others.items()
            if self.pgd - accuracy > MARGIN
        ]
        if self.pgd_large_eps > STANDING:
            found.append(
                f"PGD with eps {LARGE_EPS:g}, which can change everything, leaves an accuracy of "
                f"{self.pgd_large_eps:.1%}"
            )
        if self.zero_gradients > ZERO_GRADIENTS:
            found.append(
                f"the gradient is exactly zero for {self.zero_gradients:.1%} of the images"
            )
        return tuple(found)

    @property
    def suspicious(self) -> bool:
        """Whether the results of gradient attacks are not reliable."""
        return bool(self.reasons)

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON values: the verdict, then the numbers."""
        return {"suspicious": self.suspicious, "reasons": list(self.reasons), **asdict(self)}


def judge_gradients(
    network: Network,
    images: Tensor,
    labels: Tensor,
    eps: float,
    *,
    steps: int = 50,
    restarts: int = 5,
    tries: int = 100,
    queries: int = 500,
    seed: int = 0,
) -> MaskingVerdict:
    """Test for gradient masking: attack images (N, C, H, W) with and without gradients.

    Args:
        eps: choose it so that `pgd` leaves about half of the correct predictions.
        steps, restarts: of `pgd`; tries: of `random_search`; queries: of `square`.
    """
    attacked = network, images, labels

    def standing(found: Tensor) -> float:
        with measuring(network):
            return (network(found).argmax(1) == labels).float().mean().item()

    return MaskingVerdict(
        pgd=standing(pgd(*attacked, eps, steps=steps, restarts=restarts, seed=seed)),
        fgsm=standing(fgsm(*attacked, eps)),
        random_search=standing(random_search(*attacked, eps, tries=tries, seed=seed)),
        square=standing(square(*attacked, eps, queries=queries, seed=seed)),
        pgd_large_eps=standing(pgd(*attacked, LARGE_EPS, steps=steps, restarts=1, seed=seed)),
        zero_gradients=zero_gradients(*attacked).float().mean().item()
        / max(standing(images), 1 / len(images)),
    )


def zero_gradients(network: Network, images: Tensor, labels: Tensor) -> Tensor:
    """Return whether each image (N,) is correctly classified with a gradient of exactly zero."""
    without = torch.zeros(len(images), dtype=torch.bool, device=images.device)
    with attacking(network, images, labels) as standing:
        if standing:
            gradient, _ = ascent(network, standing.images, standing.labels)
            without[standing.left] = (gradient == 0).flatten(1).all(1)
    return without
