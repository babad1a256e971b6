"""Batches from tar shards: images are read in order and decoded on the fly."""

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from besselnet._pixels import RESIZE, SUFFIXES
from besselnet.checks import check_count, check_seed
from besselnet.data._augment import Augmentation
from besselnet.data._batches import augmented_share, check_share, place_generator
from besselnet.data._decode import Resize, decode_image, resize_images
from besselnet.data._imageset import as_floats
from besselnet.data._sources import TarSource, check_sources, open_sources
from besselnet.data._tar import Sample, iter_samples
from besselnet.untrusted import parse_json, reading

T = TypeVar("T")


class _Labelled(NamedTuple):
    name: str
    content: bytes
    label: int


@dataclass(eq=False)
class ShardBatches:
    """Iterable of batches (images, labels), like `Batches`, from tar shards in WebDataset layout.

    A sample has an image (``000012.jpg``) and its class: ``000012.cls`` with a name or number, or
    ``000012.json`` with one under "label". Order and augmentation depend only on `seed`, epoch and batch:

    - shards are read in random order in each epoch, and shuffled by a buffer of `buffer` images. Every image
      occurs once per epoch, but distant images are shuffled less than in `Batches`;
    - `fit` resumes exactly; it reads the shards of the epoch again up to that batch, without decoding;
    - process `rank` of `world_size` decodes its part of the global batch; each process reads all shards.

    Args:
        shards: tar archives, as in `open_sources`: paths, patterns or URLs for fsspec;
            ``train-{000..146}.tar`` stands for 147 archives.
        batch_size: size of the global batch.
        classes: names of the classes.
        image_size: side in pixels; `resize` determines how images are resized, `channels` is 1 or 3.
        images: number of images. Default: all shards are read once to count them.
        decoding: further options of `decode_image`.
    """

    shards: str | Path | Sequence[str | Path]
    batch_size: int
    _: KW_ONLY
    classes: Sequence[str]
    image_size: int
    channels: int = 3
    resize: Resize = RESIZE
    images: int | None = None
    shuffle: bool = False
    buffer: int = 1000
    seed: int = 0
    augment: Augmentation | None = None
    device: torch.device | str = "cpu"
    rank: int = 0
    world_size: int = 1
    decoding: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._shards = _find_shards(self.shards)
        check_count("buffer", self.buffer)
        check_seed(self.seed)
        check_share(self.batch_size, self.rank, self.world_size)
        self._numbers = {name: number for number, name in enumerate(self.classes)}
        if self.images is None:
            self.images = sum(1 for shard in self._shards for _ in iter_samples(shard))
        self._total = check_count("images", self.images, least=self.world_size)
        self.device = torch.device(self.device)
        self.set_epoch(0)

    def __len__(self) -> int:
        return -(-self._total // self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which determines order and augmentation."""
        self.epoch = check_count("epoch", epoch, least=0)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self.iter_from(0)

    def iter_from(self, first: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the batches of the epoch from `first` on; earlier ones are read but not decoded."""
        samples = self._ordered()
        for _ in islice(samples, first * self.batch_size):
            pass
        for index in range(first, len(self)):
            wanted = min(self.batch_size, self._total - index * self.batch_size)
            batch = list(islice(samples, wanted))
            more = index + 1 == len(self) and next(samples, None) is not None
            if len(batch) < wanted or more:
                raise ValueError(
                    f"images={self._total}: must be the number of images in the shards, which have "
                    f"{'more' if more else index * self.batch_size + len(batch)}"
                )
            yield self._decoded(index, batch)

    def _ordered(self) -> Iterator[_Labelled]:
        """The samples in the order of the epoch."""
        numbers = torch.arange(len(self._shards))
        generator = place_generator(self.seed, self.epoch)
        if self.shuffle:
            numbers = torch.randperm(len(self._shards), generator=generator)
        samples = (
            self._labelled(sample)
            for number in numbers.tolist()
            for sample in iter_samples(self._shards[number])
        )
        return _mixed(samples, self.buffer, generator) if self.shuffle else samples

    def _labelled(self, sample: Sample) -> _Labelled:
        files = {suffix: c for suffix, c in sample.files.items() if f".{suffix}" in SUFFIXES}
        if len(files) != 1:
            raise ValueError(f"{sample.name}: has {len(files)} images, must have 1")
        (content,) = files.values()
        return _Labelled(sample.name, content, self._label(sample))

    def _label(self, sample: Sample) -> int:
        found: Any = None
        with reading(sample.name):
            if "cls" in sample.files:
                found = sample.files["cls"].decode().strip()
            elif "json" in sample.files:
                found = parse_json(sample.files["json"].decode(), sample.name).get("label")
        number = self._numbers.get(str(found))
        if number is None and str(found).isdecimal() and int(found) < len(self._numbers):
            number = int(found)
        if number is None:
            raise ValueError(
                f"{sample.name}: its class is {found!r}, must be one of {list(self.classes)} "
                "or its number, in .cls or as the label in .json"
            )
        return number

    def _decoded(self, index: int, batch: Sequence[_Labelled]) -> tuple[Tensor, Tensor]:
        share = slice(self.rank, None, self.world_size)
        mine = batch[share]
        shape = (len(mine), self.channels, self.image_size, self.image_size)
        images = torch.empty(shape)
        for place, sample in zip(images, mine):
            place.copy_(self._image(sample))
        labels = torch.tensor([sample.label for sample in mine], dtype=torch.int64)
        images, labels = images.to(self.device), labels.to(self.device)
        if self.augment is not None:
            generator = place_generator(self.seed, self.epoch, index)
            drawn = augmented_share(self.augment, len(batch), generator, share)
            images = self.augment.apply(images, drawn)
        return images, labels

    def _image(self, sample: _Labelled) -> Tensor:
        image = decode_image(
            sample.content, channels=self.channels, name=sample.name, **self.decoding
        )
        with reading(sample.name):
            return as_floats(resize_images(image[None], self.image_size, self.resize))[0]


def _find_shards(shards: str | Path | Sequence[str | Path]) -> list[str]:
    places = [shards] if isinstance(shards, str | Path) else shards
    check_sources(places)
    found = []
    for source in open_sources(places):
        if not isinstance(source, TarSource):
            raise ValueError(f"shards={shards!r}: must be tar archives, got {source.name}")
        found.append(source.place)
    if not found:
        raise ValueError(f"shards={shards!r}: must have at least one tar archive")
    return found


def _mixed(samples: Iterator[T], buffer: int, generator: torch.Generator) -> Iterator[T]:
    """The samples, each drawn at random from those in a buffer."""
    held: list[T] = []
    for sample in samples:
        held.append(sample)
        if len(held) > buffer:
            yield _drawn(held, generator)
    while held:
        yield _drawn(held, generator)


def _drawn(held: list[T], generator: torch.Generator) -> T:
    chosen = int(torch.randint(len(held), (), generator=generator))
    held[chosen], held[-1] = held[-1], held[chosen]
    return held.pop()
