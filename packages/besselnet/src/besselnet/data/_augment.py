"""Random changes to batches of images.

An augmentation first draws its random numbers for a number of images, then applies them. The two
steps are apart so that several processes can draw for one common batch and each apply its share:
together they see what a single process would.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, get_args

import torch

from besselnet.checks import check_choice, check_number
from besselnet.functional import Interpolation, rotate_images


class Augmentation(Protocol):
    """What `Batches` expects of an augmentation."""

    def draw(self, count: int, generator: torch.Generator) -> Any:
        """Random numbers for `count` images, on the CPU: a tensor (count, ...) or a tuple of such."""

    def apply(self, images: torch.Tensor, draws: Any) -> torch.Tensor:
        """The changed images: (N, C, H, W) floats in [0, 1] in and out, on any device."""


@dataclass(frozen=True)
class Rotate:
    """Rotate each image by an angle drawn uniformly from [-degrees, degrees); zero outside.

    The spline of `interpolation="cubic"` can overshoot at sharp edges: the result is cut to [0, 1].
    """

    interpolation: Interpolation = "cubic"
    degrees: float = field(default=180.0, kw_only=True)

    def __post_init__(self) -> None:
        check_choice("interpolation", self.interpolation, get_args(Interpolation))
        if check_number("degrees", self.degrees, above=0) > 180:
            raise ValueError(f"degrees={self.degrees!r}: must be at most 180")

    def draw(self, count: int, generator: torch.Generator) -> torch.Tensor:
        return (2 * torch.rand(count, generator=generator) - 1) * self.degrees

    def apply(self, images: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        return rotate_images(images, draws, self.interpolation).clamp_(0, 1)


@dataclass(frozen=True)
class Reflect:
    """Mirror each image left to right with the given probability.

    Together with `Rotate` this reaches reflections about every axis.
    """

    probability: float = 0.5

    def __post_init__(self) -> None:
        if check_number("probability", self.probability, above=0) > 1:
            raise ValueError(f"probability={self.probability!r}: must be at most 1")

    def draw(self, count: int, generator: torch.Generator) -> torch.Tensor:
        return torch.rand(count, generator=generator) < self.probability

    def apply(self, images: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        return torch.where(draws.to(images.device)[:, None, None, None], images.flip(-1), images)


@dataclass(frozen=True)
class Compose:
    """Augmentations one after the other."""

    augmentations: Sequence[Augmentation]

    def draw(self, count: int, generator: torch.Generator) -> tuple[Any, ...]:
        return tuple(one.draw(count, generator) for one in self.augmentations)

    def apply(self, images: torch.Tensor, draws: tuple[Any, ...]) -> torch.Tensor:
        for one, drawn in zip(self.augmentations, draws):
            images = one.apply(images, drawn)
        return images


def share_of(draws: Any, rows: slice) -> Any:
    """The part of `draws` that belongs to some images of the batch."""
    if isinstance(draws, tuple):
        return tuple(share_of(one, rows) for one in draws)
    return draws[rows]
