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
from besselnet.data._patches import (
    centre,
    classes_in,
    cut_out,
    draw_numbers,
    margins,
    place_patch,
)


@dataclass(eq=False)
class Batches:
    """Iterable of batches (images, labels) on `device`.

    Images are float32 (N, C, H, W) in [0, 1]. Labels depend on the task:

    - classes: int64 (N,);
    - masks: int64 (N, H, W), augmented together with their images;
    - values: float32 (N, K);
    - several labels: float32 (N, K), 1 for a class that is in the image, else 0.

    Order and augmentation depend only on `seed`, the epoch (`set_epoch`) and the batch index, so training
    can be resumed exactly at any batch: `batches[i]` is the i-th batch of the epoch. Random numbers are drawn
    on the CPU, so they are the same for every device. uint8 images are moved to `device` as bytes and
    augmented there.

    With `world_size` processes, `batch_size` is the size of the global batch, and process `rank` gets every
    `world_size`-th image of it, augmented as in a single process. A last batch with fewer images than
    processes is empty for some processes; `fit` and `evaluate` support that.

    With `balance`, an epoch has as many images as the set, and every class equally often (up to one image).
    Images of small classes are repeated, but none before all others of its class.

    With `patch`, (height, width), larger images with masks are cropped to patches, `patches_per_image` of
    each per epoch. Half of the patches show a class drawn uniformly from those in the image; the others are
    anywhere (`place_patch`). With `augment`, a patch is cropped with a margin that is removed afterwards. So
    a rotated patch shows the surroundings in the image, and is mirrored only at the image frame.
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
    patch: tuple[int, int] | None = None
    patches_per_image: int = 1

    def __post_init__(self) -> None:
        if len(self.imageset) == 0:
            raise ValueError("the image set is empty")
        check_count("patches_per_image", self.patches_per_image)
        self._set_patch()
        total, size, processes = self._total, self.batch_size, self.world_size
        check_share(size, self.rank, processes)
        check_seed(self.seed)
        if self.balance and not self.shuffle:
            raise ValueError("balance=True: must be False without shuffle=True")
        if self.balance and self.imageset.task != "classify":
            raise ValueError(
                "balance=True: must be False for labels that are not one class per image"
            )
        self.device = torch.device(self.device)
        self.set_epoch(0)
        if len(self) == 0:
            raise ValueError(
                f"drop_last=True: must be False for {counted(total, 'image')} in batches of "
                f"{size}, because no batch would be left"
            )
        if total < processes:
            raise ValueError(
                f"world_size={processes!r}: must be at most the {counted(total, 'image')} of the set"
            )

    def __len__(self) -> int:
        whole, rest = divmod(self._total, self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which determines order and augmentation."""
        self.epoch = check_count("epoch", epoch, least=0)
        if self.balance:
            self._order = _balanced_order(self.imageset.labels, self._generator(epoch))
        elif self.shuffle:
            self._order = torch.randperm(self._total, generator=self._generator(epoch))
        else:
            self._order = torch.arange(self._total)

    def indices(self, index: int) -> torch.Tensor:
        """Return the indices (N,) int64 in `imageset` of the images in batch `index` of this process."""
        return self._common(index)[self._share]

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        margin = (0, 0)
        if self._cropped is None:
            chosen = self.indices(index)
            pixels, labels = self.imageset.images[chosen], self.imageset.labels[chosen]
        else:
            margin = (0, 0) if self.augment is None else margins(self._cropped)
            pixels, labels = self._patches(index, self._cropped, margin)
        images, labels = as_floats(pixels.to(self.device)), labels.to(self.device)
        masks = self.imageset.task == "segment"
        if self.augment is not None:
            generator = self._generator(self.epoch, index)
            share = augmented_share(self.augment, len(self._common(index)), generator, self._share)
            images = self.augment.apply(images, share)
            if masks:
                labels = self.augment.apply_masks(labels, share)
        if masks:
            return centre(images, margin), centre(labels, margin).long()
        return images, labels.float() if labels.dtype == torch.bool else labels

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for index in range(len(self)):
            yield self[index]

    def _common(self, index: int) -> torch.Tensor:
        """Indices of the images of all processes."""
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index} of {len(self)}")
        start = index * self.batch_size
        return self._order[start : start + self.batch_size] % len(self.imageset)

    @property
    def _share(self) -> slice:
        return slice(self.rank, None, self.world_size)

    def _set_patch(self) -> None:
        """Note the size of the patches, if there are any, and which classes each mask has."""
        self._cropped: tuple[int, int] | None = None
        self._total = len(self.imageset)
        if self.patch is None:
            return
        if self.imageset.task != "segment":
            raise ValueError(f"patch={self.patch!r}: must be None for images without masks")
        rows, columns = (check_count("patch", side) for side in self.patch)
        height, width = self.imageset.image_size
        if height > rows or width > columns:
            self._cropped = min(rows, height), min(columns, width)
            self._total *= self.patches_per_image
            self._present = classes_in(self.imageset.labels)

    def _patches(
        self, index: int, patch: tuple[int, int], margin: tuple[int, int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """One patch of each image of batch `index` and of its mask, with a margin around it."""
        count = len(self._common(index))
        numbers = draw_numbers(count, self._generator(self.epoch, index, 1))[self._share]
        images, masks = [], []
        for chosen, drawn in zip(self.indices(index).tolist(), numbers):
            mask = self.imageset.labels[chosen]
            corner = place_patch(mask, self._present[chosen], patch, drawn)
            images.append(cut_out(self.imageset.images[chosen], corner, patch, margin))
            masks.append(cut_out(mask, corner, patch, margin))
        return torch.stack(images), torch.stack(masks)

    def _generator(self, *place: int) -> torch.Generator:
        return place_generator(self.seed, *place)


def place_generator(seed: int, *place: int) -> torch.Generator:
    """A generator for (epoch,), (epoch, batch), ..., unrelated to that of any other place."""
    state = np.random.SeedSequence(seed, spawn_key=place).generate_state(1, np.uint64)[0]
    # torch takes seeds as signed 64-bit integers.
    return torch.Generator().manual_seed(int(state) >> 1)


def check_share(batch_size: int, rank: int, world_size: int) -> None:
    """Refuse a common batch that the processes cannot divide, or a process that is none of them."""
    check_count("batch_size", batch_size)
    check_count("world_size", world_size)
    if check_count("rank", rank, least=0) >= world_size:
        raise ValueError(f"rank={rank!r}: must be less than world_size={world_size}")
    if batch_size % world_size:
        raise ValueError(
            f"batch_size={batch_size!r}: must be a multiple of world_size={world_size}"
        )


def augmented_share(
    augment: Augmentation, count: int, generator: torch.Generator, share: slice
) -> Any:
    """What `augment` draws for the images `share` of a common batch of `count`."""
    return _share_of(augment.draw(count, generator), share)


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
