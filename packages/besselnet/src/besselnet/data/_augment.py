"""Random augmentation of training images: geometry, brightness, colour and erasing.

`Rotate`, `Reflect`, `Scale`, `Stretch` and `Shift` are affine maps, and `Elastic` bends. In a `Compose`,
successive ones are combined, and the images are resampled only once. `apply_masks` transforms masks like
their images.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args

import torch
import torch.nn.functional as F

from besselnet.checks import check_choice, check_count, check_number
from besselnet.data._imageset import IGNORED
from besselnet.functional import (
    BORDERS,
    INTERPOLATIONS,
    Border,
    Interpolation,
    rotation_matrices,
    warp_images,
)

AugmentName = Literal[
    "rotate",
    "reflect",
    "scale",
    "stretch",
    "shift",
    "elastic",
    "brightness",
    "contrast",
    "colour",
    "erase",
]
# The random numbers of an image are drawn before it is known how many channels it has. Further
# channels begin again with the first factor.
_COLOURS = 64


class Augmentation(Protocol):
    """Protocol of augmentations: `draw` random numbers for a batch, then `apply` them.

    The two steps are separate, so several processes can draw for one global batch and each can apply its
    part. Together they get the same images as a single process.
    """

    def draw(self, count: int, generator: torch.Generator) -> Any:
        """Draw random numbers for `count` images on the CPU: a tensor (count, ...) or a tuple of tensors."""

    def apply(self, images: torch.Tensor, draws: Any) -> torch.Tensor:
        """Augment images (N, C, H, W), floats in [0, 1], on any device."""

    def apply_masks(self, masks: torch.Tensor, draws: Any) -> torch.Tensor:
        """Augment masks (N, H, W), uint8, like their images. Only required for masks."""


@dataclass(frozen=True)
class _Warp(ABC):
    """What the changes of geometry share: `matrices` and `displacements` say where images are read.

    The spline of `interpolation="cubic"` can overshoot at sharp edges: the result is cut to [0, 1].
    """

    interpolation: Interpolation = "cubic"
    border: Border = field(default="zeros", kw_only=True)

    def __post_init__(self) -> None:
        check_choice("interpolation", self.interpolation, INTERPOLATIONS)
        check_choice("border", self.border, BORDERS)

    @abstractmethod
    def draw(self, count: int, generator: torch.Generator) -> torch.Tensor:
        """Random numbers for `count` images."""

    @abstractmethod
    def matrices(self, draws: torch.Tensor, height: int, width: int) -> torch.Tensor:
        """(N, 2, 3) float64, for images of `height` and `width` pixels: see `warp_images`."""

    def displacements(self, draws: torch.Tensor, height: int, width: int) -> torch.Tensor | None:
        """(N, 2, H, W), as in `warp_images`; None if the map is affine."""
        return None

    def apply(self, images: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        return _apply_together(images, [(self, draws)])

    def apply_masks(self, masks: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        return _warp_masks(masks, [(self, draws)])


class _InPlace:
    """What the changes share that leave every pixel at its place."""

    def apply_masks(self, masks: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        return masks


@dataclass(frozen=True)
class Rotate(_Warp):
    """Rotate each image by an angle drawn uniformly from [-degrees, degrees)."""

    degrees: float = field(default=180.0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("degrees", self.degrees, above=0, most=180)

    def draw(self, count: int, generator: torch.Generator) -> torch.Tensor:
        return (2 * torch.rand(count, generator=generator) - 1) * self.degrees

    def matrices(self, draws: torch.Tensor, height: int, width: int) -> torch.Tensor:
        return rotation_matrices(draws)


@dataclass(frozen=True)
class Scale(_Warp):
    """Scale each image about its centre, by a factor drawn log-uniformly from [1/factor, factor]."""

    factor: float = field(default=1.2, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("factor", self.factor, above=1)

    def draw(self, count: int, generator: torch.Generator) -> torch.Tensor:
        return _log_uniform((count,), self.factor, generator)

    def matrices(self, draws: torch.Tensor, height: int, width: int) -> torch.Tensor:
        return torch.eye(2, 3, dtype=torch.float64) / draws.double()[:, None, None]


@dataclass(frozen=True)
class Stretch(_Warp):
    """Stretch each image along one axis and squeeze it along the other, keeping areas.

    The axis has a random direction, and the factor is drawn log-uniformly from [1, factor]. Circles become
    ellipses; nothing is rotated.
    """

    factor: float = field(default=1.2, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("factor", self.factor, above=1)

    def draw(self, count: int, generator: torch.Generator) -> torch.Tensor:
        """Draw (count, 2): the direction in degrees, and the factor."""
        degrees = 180 * torch.rand(count, generator=generator)
        factors = torch.exp(torch.rand(count, generator=generator) * math.log(self.factor))
        return torch.stack([degrees, factors], dim=1)

    def matrices(self, draws: torch.Tensor, height: int, width: int) -> torch.Tensor:
        degrees, factors = draws.double().unbind(1)
        to_axes, back = rotation_matrices(degrees), rotation_matrices(-degrees)
        along = torch.stack([1 / factors, factors], dim=1)
        return back[:, :, :2] @ (along[:, :, None] * to_axes)


@dataclass(frozen=True)
class Shift(_Warp):
    """Shift each image along both axes, uniformly by up to `share` of its sides."""

    share: float = field(default=0.05, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("share", self.share, above=0, most=1)

    def draw(self, count: int, generator: torch.Generator) -> torch.Tensor:
        return (2 * torch.rand(count, 2, generator=generator) - 1) * self.share

    def matrices(self, draws: torch.Tensor, height: int, width: int) -> torch.Tensor:
        found = torch.eye(2, 3, dtype=torch.float64).repeat(len(draws), 1, 1)
        found[:, :, 2] = -draws * torch.tensor([width, height])
        return found


@dataclass(frozen=True)
class Elastic(_Warp):
    """Bend each image: every pixel moves a little, and its neighbours nearly alike.

    The displacements are those of a coarse grid of random vectors, interpolated by cubic splines. Together
    with affine changes, they are added to the places that the combined affine map reads.
    """

    share: float = field(default=0.02, kw_only=True)
    """Standard deviation of the vectors of the grid, as a fraction of the side of the image."""
    grid: int = field(default=5, kw_only=True)
    """Vectors along each side."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("share", self.share, above=0, most=1)
        check_count("grid", self.grid, 2)

    def draw(self, count: int, generator: torch.Generator) -> torch.Tensor:
        """Draw (count, 2, grid, grid): the vectors, as fractions of the side."""
        return torch.randn(count, 2, self.grid, self.grid, generator=generator) * self.share

    def matrices(self, draws: torch.Tensor, height: int, width: int) -> torch.Tensor:
        return torch.eye(2, 3, dtype=torch.float64).repeat(len(draws), 1, 1)

    def displacements(self, draws: torch.Tensor, height: int, width: int) -> torch.Tensor:
        vectors = draws * min(height, width)
        return F.interpolate(vectors, (height, width), mode="bicubic", align_corners=True)


@dataclass(frozen=True)
class Reflect:
    """Flip each image horizontally with the given probability.

    Together with `Rotate`, this gives reflections about every axis.
    """

    probability: float = 0.5

    def __post_init__(self) -> None:
        check_number("probability", self.probability, above=0, most=1)

    def draw(self, count: int, generator: torch.Generator) -> torch.Tensor:
        return torch.rand(count, generator=generator) < self.probability

    def matrices(self, draws: torch.Tensor, height: int, width: int) -> torch.Tensor:
        """Return the matrices (N, 2, 3), as for the other affine augmentations."""
        found = torch.eye(2, 3, dtype=torch.float64).repeat(len(draws), 1, 1)
        found[draws, 0, 0] = -1
        return found

    def apply(self, images: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        return torch.where(_of_images(draws, images), images.flip(-1), images)

    def apply_masks(self, masks: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        return self.apply(masks[:, None], draws)[:, 0]


@dataclass(frozen=True)
class _Tone(_InPlace):
    """What the changes of brightness share: factors log-uniform in [1/factor, factor]."""

    factor: float = 1.2

    def __post_init__(self) -> None:
        check_number("factor", self.factor, above=1)

    def draw(self, count: int, generator: torch.Generator) -> torch.Tensor:
        return _log_uniform((count,), self.factor, generator)


@dataclass(frozen=True)
class Brightness(_Tone):
    """Multiply each image by a random factor."""

    def apply(self, images: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        return (images * _of_images(draws, images)).clamp_(0, 1)


@dataclass(frozen=True)
class Contrast(_Tone):
    """Multiply the difference of each image from its mean by a random factor."""

    def apply(self, images: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        mean = images.mean((1, 2, 3), keepdim=True)
        return torch.lerp(mean, images, _of_images(draws, images)).clamp_(0, 1)


@dataclass(frozen=True)
class Colour(_Tone):
    """Multiply each channel by its own random factor; images with one channel are unchanged."""

    def draw(self, count: int, generator: torch.Generator) -> torch.Tensor:
        return _log_uniform((count, _COLOURS), self.factor, generator)

    def apply(self, images: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        channels = images.shape[1]
        if channels == 1:
            return images
        factors = draws[:, torch.arange(channels) % _COLOURS]
        return (images * factors[:, :, None, None].to(images)).clamp_(0, 1)


@dataclass(frozen=True)
class Erase(_InPlace):
    """Fill a disc at a random position with the mean colour; its radius is at most `share` of the side.

    Masks are unchanged, because the hidden object is still there.
    """

    share: float = 0.2

    def __post_init__(self) -> None:
        check_number("share", self.share, above=0, most=1)

    def draw(self, count: int, generator: torch.Generator) -> torch.Tensor:
        """Draw (count, 3): the centre, as fractions of width and height, and the radius."""
        return torch.rand(count, 3, generator=generator) * torch.tensor([1, 1, self.share])

    def apply(self, images: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        height, width = images.shape[2:]
        sides = torch.tensor([width, height, min(height, width)])
        x, y, radius = (draws * sides).to(images)[..., None, None].unbind(1)
        columns = torch.arange(width).to(images) + 0.5
        rows = torch.arange(height).to(images)[:, None] + 0.5
        disc = (columns - x) ** 2 + (rows - y) ** 2 < radius**2
        return torch.where(disc[:, None], images.mean((2, 3), keepdim=True), images)


@dataclass(frozen=True)
class Compose:
    """Apply augmentations one after the other.

    Successive changes of geometry with the same interpolation and border are combined into one resampling.
    """

    augmentations: Sequence[Augmentation]

    def draw(self, count: int, generator: torch.Generator) -> tuple[Any, ...]:
        return tuple(one.draw(count, generator) for one in self.augmentations)

    def apply(self, images: torch.Tensor, draws: tuple[Any, ...]) -> torch.Tensor:
        for group in self._groups(draws):
            if _samples(group):
                images = _apply_together(images, group)
            else:
                for one, drawn in group:
                    images = one.apply(images, drawn)
        return images

    def apply_masks(self, masks: torch.Tensor, draws: tuple[Any, ...]) -> torch.Tensor:
        for group in self._groups(draws):
            if _samples(group):
                masks = _warp_masks(masks, group)
            else:
                for one, drawn in group:
                    masks = one.apply_masks(masks, drawn)
        return masks

    def _groups(self, draws: tuple[Any, ...]) -> Iterator[list[tuple[Any, Any]]]:
        """The changes and their draws: those that one sampling can do together, others alone."""
        pending: list[tuple[Any, Any]] = []
        for one, drawn in zip(self.augmentations, draws):
            together = isinstance(one, _Warp | Reflect) and _agree([*(p for p, _ in pending), one])
            if pending and not together:
                yield pending
                pending = []
            if isinstance(one, _Warp | Reflect):
                pending.append((one, drawn))
            else:
                yield [(one, drawn)]
        if pending:
            yield pending


def make_augmentation(
    names: Iterable[AugmentName],
    interpolation: Interpolation = "cubic",
    border: Border = "zeros",
) -> Compose:
    """Return the augmentations called `names`, in that order, with their default strengths.

    `interpolation` and `border` are as in `besselnet.functional.warp_images`.
    """
    check_choice("interpolation", interpolation, INTERPOLATIONS)
    check_choice("border", border, BORDERS)
    known: dict[str, Augmentation] = {
        "rotate": Rotate(interpolation, border=border),
        "reflect": Reflect(),
        "scale": Scale(interpolation, border=border),
        "stretch": Stretch(interpolation, border=border),
        "shift": Shift(interpolation, border=border),
        "elastic": Elastic(interpolation, border=border),
        "brightness": Brightness(),
        "contrast": Contrast(),
        "colour": Colour(),
        "erase": Erase(),
    }
    chosen = list(names)
    for name in chosen:
        check_choice("names", name, get_args(AugmentName))
    return Compose([known[name] for name in chosen])


def _agree(changes: Sequence[_Warp | Reflect]) -> bool:
    """Whether one sampling can do all of `changes`; a reflection goes with any."""
    return len({(c.interpolation, c.border) for c in changes if isinstance(c, _Warp)}) <= 1


def _samples(group: Sequence[tuple[Any, Any]]) -> bool:
    """Whether a group of changes needs a sampling; a reflection alone does not."""
    return any(isinstance(one, _Warp) for one, _ in group)


def _apply_together(images: torch.Tensor, group: Sequence[tuple[Any, Any]]) -> torch.Tensor:
    """Images after a group of changes, by one sampling."""
    sampled = next(one for one, _ in group if isinstance(one, _Warp))
    places = _product(group, *images.shape[2:]), _displacements(group, *images.shape[2:])
    found = warp_images(images, places[0], sampled.interpolation, sampled.border, places[1])
    return found.clamp_(0, 1)


def _product(
    changes: Sequence[tuple[_Warp | Reflect, torch.Tensor]], height: int, width: int
) -> torch.Tensor:
    """(N, 2, 3): one map for affine changes that follow one another."""
    product = torch.eye(3, dtype=torch.float64).expand(len(changes[0][1]), 3, 3)
    for one, drawn in changes:
        # The last row of every factor is 0 0 1.
        found = one.matrices(drawn, height, width)
        product = product @ torch.cat([found, product[:, 2:]], dim=1)
    return product[:, :2]


def _displacements(
    changes: Sequence[tuple[_Warp | Reflect, torch.Tensor]], height: int, width: int
) -> torch.Tensor | None:
    """(N, 2, H, W): the sum over the changes; None if all are affine."""
    found = [
        one.displacements(drawn, height, width) for one, drawn in changes if isinstance(one, _Warp)
    ]
    bent = [displacements for displacements in found if displacements is not None]
    return torch.stack(bent).sum(0) if bent else None


def _warp_masks(masks: torch.Tensor, group: Sequence[tuple[Any, Any]]) -> torch.Tensor:
    """Masks (N, H, W) uint8 after a group of changes; `IGNORED` where the border is "zeros".

    No class lies between two others: each pixel is that of the nearest place.
    """
    border = next(one.border for one, _ in group if isinstance(one, _Warp))
    matrices, bent = _product(group, *masks.shape[1:]), _displacements(group, *masks.shape[1:])
    # Counted from IGNORED down, zeros outside the frame are IGNORED.
    return IGNORED - warp_images(IGNORED - masks[:, None], matrices, "nearest", border, bent)[:, 0]


def _log_uniform(shape: tuple[int, ...], factor: float, generator: torch.Generator) -> torch.Tensor:
    """Numbers in [1/factor, factor] whose logarithms are uniform."""
    return torch.exp((2 * torch.rand(shape, generator=generator) - 1) * math.log(factor))


def _of_images(draws: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    """(N,) -> (N, 1, 1, 1), where the images are."""
    return draws.to(images.device)[:, None, None, None]
