"""Batches of an image set, each a pure function of (seed, epoch, batch index)."""

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import torch

from besselnet._pixels import counted
from besselnet.checks import check_count, check_seed
from besselnet.data._augment import Augmentation
from besselnet.data._imageset import ImageSet, as_floats


@dataclass(eq=False)
class Batches:
    """Iterable of (images, labels): float32 (N, C, H, W) in [0, 1] and int64 (N,), on `device`.

    Order and augmentation depend on `seed`, the epoch (`set_epoch`) and the batch index alone, with
    no hidden state, so training can stop anywhere and go on exactly: `batches[i]` is the i-th batch
    of the epoch. Random numbers are drawn on the CPU, so every device sees the same ones; uint8
    images travel to `device` as bytes and are augmented there.

    With `world_size` processes `batch_size` is the size of the common batch, and process `rank` has
    every `world_size`-th image of it, changed as a single process would have changed it.

    With `balance` an epoch has as many images as the set, and every class equally often (up to one).
    Images of small classes are repeated, and none comes again before all others of its class.
    """

    imageset: ImageSet
    batch_size: int
    _: KW_ONLY
    shuffle: bool = False
    balance: bool = False
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
        if self.balance and not self.shuffle:
            raise ValueError("balance=True: must be False without shuffle=True")
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
        if self.balance:
            self._order = _balanced_order(self.imageset.labels, self._generator(epoch))
        elif self.shuffle:
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


def _balanced_order(labels: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """As many indices as there are labels, each class equally often up to one, in random order."""
    classes = labels.unique()
    # Which classes have one more is as random as the rest.
    classes = classes[torch.randperm(len(classes), generator=generator)]
    quotas = [len(part) for part in torch.arange(len(labels)).tensor_split(len(classes))]
    chosen = []
    for label, quota in zip(classes, quotas):
        members = (labels == label).nonzero()[:, 0]
        for start in range(0, quota, len(members)):
            shuffled = members[torch.randperm(len(members), generator=generator)]
            chosen.append(shuffled[: quota - start])
    return torch.cat(chosen)[torch.randperm(len(labels), generator=generator)]


def _share_of(draws: Any, rows: slice) -> Any:
    """The part of `draws` that belongs to some images of the batch."""
    if isinstance(draws, tuple):
        return tuple(_share_of(one, rows) for one in draws)
    return draws[rows]
