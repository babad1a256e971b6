"""Images of three classes, and a network that has learned them in a second."""

import copy
import functools

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def pattern_images(count: int, seed: int, side: int = 12) -> tuple[Tensor, Tensor]:
    """Stripes across, stripes down or a blob on noise, (N, 1, side, side) in [0, 1], and their classes."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    rows, columns = torch.arange(side)[:, None].float(), torch.arange(side).float()
    phase = 6 * torch.rand(count, 1, 1, generator=generator)
    middle = side / 2 + torch.randn(2, count, 1, 1, generator=generator)
    kinds = torch.stack(
        [
            (torch.sin(rows * 1.6 + phase) > 0).expand(count, side, side),
            (torch.sin(columns * 1.6 + phase) > 0).expand(count, side, side),
            (rows - middle[0]) ** 2 + (columns - middle[1]) ** 2 < (side / 4) ** 2,
        ]
    ).float()
    pattern = kinds[labels, torch.arange(count)]
    noise = 0.3 * torch.rand(count, side, side, generator=generator)
    return (0.35 + 0.2 * pattern + noise - 0.15).clamp(0, 1)[:, None], labels


def trained_network() -> nn.Module:
    """Right for nearly all patterns, dropout and batch normalisation inside, in training mode.

    Each call has its own copy, so that no test sees the mode another one left.
    """
    return copy.deepcopy(_train())


@functools.cache
@torch.enable_grad()  # the first call may come from an attack that only looks
def _train() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=1, stride=2),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Flatten(),
            nn.Linear(8 * 36, 3),
        )
        images, labels = pattern_images(240, 0)
        optimizer = torch.optim.Adam(network.parameters(), 3e-3)
        for _ in range(60):
            optimizer.zero_grad()
            F.cross_entropy(network(images), labels).backward()
            optimizer.step()
        optimizer.zero_grad()
    return network
