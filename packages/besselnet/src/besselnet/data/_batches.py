"""Batches of an image set, each a pure function of (seed, epoch, batch index), and their augmentation."""

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Protocol, get_args

import numpy as np
import torch

from besselnet._pixels import counted
from besselnet.checks import check_choice, check_count, check_number, check_seed
from besselnet.data._imageset import ImageSet, as_floats
from besselnet.functional import Interpolation, rotate_images


class Augmentation(Protocol):
    """Random changes to batches of images: first the random numbers are drawn, then they are applied.

    The two steps are apart so that several processes can draw for one common batch and each apply its
    share: together they see what a single process would.
    """

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


@dataclass(eq=False)
class Batches:
    """Iterable of (images, labels): float32 (N, C, H, W) in [0, 1] and int64 (N,), on `device`.

    Order and augmentation depend on `seed`, the epoch (`set_epoch`) and the batch index alone, with
    no hidden state, so training can stop anywhere and go on exactly: `batches[i]` is the i-th batch
    of the epoch. Random numbers are drawn on the CPU, so every device sees the same ones; uint8
    images travel to `device` as bytes and are augmented there.

    With `world_size` processes `batch_size` is the size of the common batch, and process `rank` has
    every `world_size`-th image of it, changed as a single process would have changed it.
    """

    imageset: ImageSet
    batch_size: int
    _: KW_ONLY
    shuffle: bool = False
    seed: int = 0
    augment: Augmentation | None = None
    device: torch.device | str = "cpu"
    drop_last: bool = False
    rank: int = 0
    world_size: int = 1

    def __post_init__(self) -> None:
        total, size, processes = len(self.imageset), self.batch_size, self.world_size
        if total == 0:
            raise ValueError("the image set is empty")
        check_count("batch_size", size)
        check_count("world_size", processes)
        check_seed(self.seed)
        if check_count("rank", self.rank, least=0) >= processes:
            raise ValueError(f"rank={self.rank!r}: must be less than world_size={processes}")
        if size % processes:
            raise ValueError(f"batch_size={size!r}: must be a multiple of world_size={processes}")
        self.device = torch.device(self.device)
        self.set_epoch(0)
        if len(self) == 0:
            raise ValueError(
                f"drop_last=True: must be False for {counted(total, 'image')} in batches of "
                f"{size}, because it leaves no batch"
            )
        if not self.drop_last and 0 < total % size < processes:
            raise ValueError(
                f"the last batch has {counted(total % size, 'image')} for {processes} processes: "
                "use drop_last=True or another batch_size"
            )

    def __len__(self) -> int:
        whole, rest = divmod(len(self.imageset), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order and augmentation the batches follow."""
        self.epoch = check_count("epoch", epoch, least=0)
        if self.shuffle:
            self._order = torch.randperm(len(self.imageset), generator=self._generator(epoch))
        else:
            self._order = torch.arange(len(self.imageset))

    def indices(self, index: int) -> torch.Tensor:
        """(N,) int64: which images of `imageset` batch `index` of this process has, in its order."""
        return self._common(index)[self._share]

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        chosen = self.indices(index)
        images = as_floats(self.imageset.images[chosen].to(self.device))
        labels = self.imageset.labels[chosen].to(self.device)
        if self.augment is not None:
            count = len(self._common(index))
            draws = self.augment.draw(count, self._generator(self.epoch, index))
            images = self.augment.apply(images, _share_of(draws, self._share))
        return images, labels

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for index in range(len(self)):
            yield self[index]

    def _common(self, index: int) -> torch.Tensor:
        """Indices of the images of all processes."""
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index} of {len(self)}")
        start = index * self.batch_size
        return self._order[start : start + self.batch_size]

    @property
    def _share(self) -> slice:
        return slice(self.rank, None, self.world_size)

    def _generator(self, *place: int) -> torch.Generator:
        """A generator for (epoch,) or (epoch, batch), unrelated to that of any other place."""
        state = np.random.SeedSequence(self.seed, spawn_key=place).generate_state(1, np.uint64)[0]
        # torch takes seeds as signed 64-bit integers.
        return torch.Generator().manual_seed(int(state) >> 1)


def _share_of(draws: Any, rows: slice) -> Any:
    """The part of `draws` that belongs to some images of the batch."""
    if isinstance(draws, tuple):
        return tuple(_share_of(one, rows) for one in draws)
    return draws[rows]
