"""The square attack: random search with squares, without gradients (Andriushchenko et al. 2020)."""

import math

import torch
from torch import Generator, Tensor

from besselnet.checks import check_count, check_seed
from besselnet.robust._standing import (
    Network,
    Standing,
    attacking,
    ball,
    check_eps,
    margins,
)

# The first squares cover this share of the image. It is halved after each of these shares of the queries.
_FIRST_SHARE = 0.8
_HALVINGS = (0.001, 0.005, 0.02, 0.1, 0.2, 0.4, 0.6, 0.8)


def square(
    network: Network,
    images: Tensor,
    labels: Tensor,
    eps: float,
    *,
    queries: int = 1000,
    seed: int = 0,
) -> Tensor:
    """Attack images by random search with squares, without gradients.

    It changes squares at random positions by plus or minus `eps`, and keeps changes that lower the margin of
    the true class. It starts with vertical stripes. `queries` is the number of forward passes per image.
    """
    check_eps(eps)
    check_count("queries", queries)
    generator = Generator().manual_seed(check_seed(seed))
    with attacking(network, images, labels) as standing:
        if standing:
            _search(network, standing, eps, queries, generator)
    return standing.found


def _search(
    network: Network, standing: Standing, eps: float, queries: int, generator: Generator
) -> None:
    height, width = standing.images.shape[2:]
    lowest, highest = ball(standing.images, eps)
    best = torch.where(_coins(standing.images, (1, width), generator), highest, lowest)
    tried = best
    logits = network(tried).float()
    least = margins(logits, standing.labels)
    for query in range(1, queries + 1):
        stands = standing.note(tried, logits)
        best, least, lowest, highest = (t[stands] for t in (best, least, lowest, highest))
        if not standing or query == queries:
            return
        side = _side(query / queries, height, width)
        window = _windows(len(best), side, height, width, generator).to(best.device)
        changed = torch.where(_coins(best, (1, 1), generator), highest, lowest)
        tried = torch.where(window, changed, best)
        logits = network(tried).float()
        margin = margins(logits, standing.labels)
        lower = margin < least
        best = torch.where(lower[:, None, None, None], tried, best)
        least = torch.where(lower, margin, least)


def _coins(like: Tensor, shape: tuple[int, int], generator: Generator) -> Tensor:
    """(M, C, *shape): heads or tails."""
    return (torch.rand(*like.shape[:2], *shape, generator=generator) < 0.5).to(like.device)


def _side(done: float, height: int, width: int) -> int:
    """Of a square, when this share of the queries is done."""
    share = _FIRST_SHARE / 2 ** sum(done > end for end in _HALVINGS)
    return max(1, min(round(math.sqrt(share * height * width)), height, width))


def _windows(count: int, side: int, height: int, width: int, generator: Generator) -> Tensor:
    """(M, 1, H, W): true in a square of each image."""
    inside = []
    for size in (height, width):
        start = torch.randint(size - side + 1, (count, 1), generator=generator)
        place = torch.arange(size) - start
        inside.append((place >= 0) & (place < side))
    rows, columns = inside
    return (rows[:, :, None] & columns[:, None, :])[:, None]
