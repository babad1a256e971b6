"""``SymmetryGate``: which of several branches do held-out images speak for?

Judged on images that a branch has learned from, the branch with the fewest constraints wins. Judged on
other images it wins only where the constraints of the others are wrong; where they are right all do about
equally well, and chance would decide. So a branch pays for the symmetries that it gives up,

    cost = share of held-out images it gets wrong + price,

and what the images cannot decide is decided for the larger symmetry: the held-out images are drawn anew
many times (bootstrap), the *weight* of a branch is the share of drawings in which its cost is the lowest,
and of the branches with a weight of at least 1/6 the gate opens for the one with the lowest price. For two
branches that is the one-standard-error rule of Breiman et al., *Classification and Regression Trees* (1984).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn

__all__ = ["GateReport", "SymmetryGate", "held_out_share", "image_keys"]

# The last answers that are remembered.
WINDOW = 1024
DRAWINGS = 500
# One standard error above the lowest cost, a branch is the better one in about this share of drawings.
LEAST_WEIGHT = 1 / 6


@dataclass(frozen=True)
class GateReport:
    """What the gate knows; ``print`` shows it as a table.

    Attributes:
        names: of the branches.
        chosen: the branch that the gate opens for.
        images: number of different held-out images that the choice rests on.
        errors: share of them that each branch gets wrong; NaN before the first image.
        prices: what is added for the symmetries that a branch gives up.
        weights: share of drawings in which each branch has the lowest cost. They add up to 1, and a branch
            that is out of the question has 0.
    """

    names: tuple[str, ...]
    chosen: str
    images: int
    errors: tuple[float, ...]
    prices: tuple[float, ...]
    weights: tuple[float, ...]

    def __str__(self) -> str:
        lines = [f"{'branch':<10}{'error':>8}{'price':>8}{'weight':>8}"]
        for name, error, price, weight in zip(self.names, self.errors, self.prices, self.weights):
            mark = "  chosen" if name == self.chosen else ""
            lines.append(f"{name:<10}{error:>8.1%}{price:>8.1%}{weight:>8.2f}{mark}")
        return "\n".join([*lines, f"judged on {self.images} held-out images"])


class SymmetryGate(nn.Module):
    """Remembers which held-out images each branch got wrong, and chooses a branch.

    It looks at the last quarter of the answers that it was shown, at most 1024: the branches improve while
    it watches. Answers to the same image count as one, their mean. Before it was shown any, it chooses the
    branch with the lowest price.

    Args:
        names: of the branches.
        prices: of each branch, as a share of images, >= 0.
    """

    wrong: Tensor
    keys: Tensor
    seen: Tensor

    def __init__(self, names: Sequence[str], prices: Sequence[float]) -> None:
        super().__init__()
        self.names = tuple(names)
        self.prices = tuple(prices)
        self.register_buffer("wrong", torch.zeros(WINDOW, len(names), dtype=torch.bool))
        self.register_buffer("keys", torch.zeros(WINDOW, dtype=torch.int64))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def observe(self, keys: Tensor, wrong: Tensor) -> None:
        """Remember which branches were wrong, (images, branches), on the images of these keys, (images,)."""
        count = len(keys)
        places = (torch.arange(count, device=self.keys.device) + self.seen)[-WINDOW:] % WINDOW
        self.keys[places] = keys[-WINDOW:]
        self.wrong[places] = wrong[-WINDOW:]
        self.seen += count

    def errors(self) -> Tensor:
        """How often each branch is wrong on each of the images that count, (images, branches)."""
        count = min(WINDOW, (int(self.seen) + 3) // 4)
        places = (torch.arange(count, device=self.keys.device) + (self.seen - count)) % WINDOW
        _, image, answers = self.keys[places].unique(return_inverse=True, return_counts=True)
        total = torch.zeros(len(answers), len(self.names), device=self.keys.device)
        total.index_add_(0, image, self.wrong[places].float())
        return total / answers[:, None]

    def weights(self) -> Tensor:
        """The share of drawings of the held-out images in which each branch has the lowest cost."""
        errors = self.errors().cpu()
        draws = _draws()[:, : len(errors)]
        mean = draws @ errors / draws.sum(1, keepdim=True).clamp(min=1)
        best = (mean + torch.tensor(self.prices)).argmin(1)
        return best.bincount(minlength=len(self.names)) / DRAWINGS

    def choice(self) -> int:
        """The number of the branch that the gate opens for."""
        weights = self.weights().tolist()
        return min(
            range(len(self.names)),
            key=lambda i: (weights[i] < LEAST_WEIGHT, self.prices[i], -weights[i]),
        )

    def report(self) -> GateReport:
        """Errors, prices and weights of all branches."""
        errors = self.errors()
        return GateReport(
            names=self.names,
            chosen=self.names[self.choice()],
            images=len(errors),
            errors=tuple(errors.mean(0).tolist()),
            prices=self.prices,
            weights=tuple(self.weights().tolist()),
        )


@lru_cache(maxsize=1)
def _draws() -> Tensor:
    """How often each image is drawn in each drawing: the Poisson form of the bootstrap."""
    return torch.poisson(torch.ones(DRAWINGS, WINDOW), generator=torch.Generator().manual_seed(0))


def image_keys(images: Tensor) -> Tensor:
    """A number for each image (N, ...), from 0 to 2^31 - 1: a hash of its pixels.

    It is the same in every epoch, in every order, in every process and after every restart.
    """
    pixels = images.detach().float().flatten(1).contiguous().view(torch.int32).long()
    generator = torch.Generator().manual_seed(0)
    factors = torch.randint(-(2**62), 2**62, pixels.shape[1:], generator=generator)
    # Sums of products modulo 2^64; the upper bits depend on all bits of all pixels.
    return (pixels * factors.to(pixels.device)).sum(1) >> 32 & 0x7FFFFFFF


def held_out_share(keys: Tensor, share: float) -> Tensor:
    """Which keys belong to the given share of all images."""
    return keys < share * 2**31
