"""Drawn images whose symmetry is known: rosettes of spiral arms, turned, mirrored or upright."""

import math

import torch
from torch import Tensor

Labelled = tuple[Tensor, Tensor]


def rosettes(
    arms: Tensor, twist: Tensor, angle: Tensor, size: int, generator: torch.Generator
) -> Tensor:
    """Images (N, 1, size, size) of spiral arms around a random centre, drawn at pixel centres.

    Args:
        arms: how many, (N,).
        twist: how far the arms turn towards the rim; its sign is the handedness, 0 is straight, (N,).
        angle: of the first arm in radians, counter-clockwise from the right, (N,).
    """

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(len(arms), 1, 1, generator=generator)

    arms, twist, angle = (values[:, None, None] for values in (arms, twist, angle))
    axis = torch.arange(size) - (size - 1) / 2
    x = axis - uniform(-0.1, 0.1) * size
    y = -axis[:, None] - uniform(-0.1, 0.1) * size
    radius = torch.hypot(x, y)
    phase = arms * (torch.atan2(y, x) - angle) + twist * torch.log1p(radius)
    fall = torch.exp(-((radius / (uniform(0.2, 0.3) * size)) ** 2))
    return ((1 + torch.cos(phase)) / 2 * fall)[:, None]


def random_angles(count: int, generator: torch.Generator) -> Tensor:
    return 2 * math.pi * torch.rand(count, generator=generator)


def random_twists(count: int, generator: torch.Generator) -> Tensor:
    return 2 + 2 * torch.rand(count, generator=generator)


def spirals(count: int, seed: int, size: int = 20) -> Labelled:
    """Turned spirals; the label is their handedness, which turning keeps and a mirror swaps."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(2, (count,), generator=generator)
    twist = (2 * labels - 1) * random_twists(count, generator)
    angle = random_angles(count, generator)
    return rosettes(torch.full((count,), 2), twist, angle, size, generator), labels


def turned_and_mirrored(count: int, seed: int, size: int = 20) -> Labelled:
    """Turned spirals of either hand; the label is the number of arms, which a mirror keeps too."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(2, (count,), generator=generator)
    hands = 2 * torch.randint(2, (count,), generator=generator) - 1
    twist = hands * random_twists(count, generator)
    return rosettes(2 + labels, twist, random_angles(count, generator), size, generator), labels


def upright(count: int, seed: int, size: int = 20) -> Labelled:
    """Straight bars; the label is whether they lie or stand, which turning swaps."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(2, (count,), generator=generator)
    angle = labels * (math.pi / 2)
    straight = torch.zeros(count)
    return rosettes(torch.full((count,), 2), straight, angle, size, generator), labels


def batches(images: Tensor, labels: Tensor, batch_size: int) -> list[Labelled]:
    """The same batches in every epoch."""
    return list(zip(images.split(batch_size), labels.split(batch_size)))
