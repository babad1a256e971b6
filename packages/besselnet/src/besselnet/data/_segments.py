"""References to images (segments), which another process or machine can load.

| segment | refers to |
|---|---|
| `Files` | image files, local or remote |
| `Members` | members of a tar archive, by their position |
| `Rows` | rows of an array |
| `Held` | images that were already read, and errors |

A segment has a length, slices are segments, and `load` yields (name, content) of every image. `here` is the
first local file that it refers to, if any.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from besselnet._pixels import RESIZE, Array, read_pixels, scale_depth, with_channels
from besselnet.data._array_images import as_images
from besselnet.data._decode import Resize, resize_images
from besselnet.data._stored_arrays import is_remote, open_binary, stored_array
from besselnet.data._tar import whole_member
from besselnet.untrusted import MOST_BYTES, check_file, reading

# A path, the bytes of an image file, an array (1, ...) of one image, or why there is none.
Content = Path | bytes | Array | Exception
# Images of up to so many pixels are resized together, larger ones as soon as they are decoded.
_SMALL = 256 * 256


@dataclass(frozen=True)
class Files:
    """Image files by path or URL."""

    places: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, part: slice) -> "Files":
        return Files(self.places[part])

    @property
    def here(self) -> str | None:
        return next((place for place in self.places if not is_remote(place)), None)

    def load(self) -> Iterator[tuple[str, Content]]:
        for place in self.places:
            yield place, _fetched(place) if is_remote(place) else Path(place)


@dataclass(frozen=True)
class Members:
    """Members of a local tar archive: name, first byte and number of bytes of each."""

    archive: str
    members: tuple[tuple[str, int, int], ...]

    def __len__(self) -> int:
        return len(self.members)

    def __getitem__(self, part: slice) -> "Members":
        return Members(self.archive, self.members[part])

    @property
    def here(self) -> str | None:
        return self.archive

    def load(self) -> Iterator[tuple[str, Content]]:
        with open(self.archive, "rb") as file:
            for name, start, size in self.members:
                file.seek(start)
                whole = f"{self.archive}/{name}"
                try:
                    yield whole, whole_member(name, file.read(size), size)
                except ValueError as error:
                    yield whole, error


@dataclass(frozen=True)
class Rows:
    """Rows start, ..., stop - 1 of the array `key` in a file."""

    place: str
    key: str
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, part: slice) -> "Rows":
        first, last, _ = part.indices(len(self))
        return Rows(self.place, self.key, self.start + first, self.start + max(first, last))

    @property
    def here(self) -> str | None:
        return None if is_remote(self.place) else self.place

    def load(self) -> Iterator[tuple[str, Content]]:
        names = [f"{self.place}#{self.key}[{i}]" for i in range(self.start, self.stop)]
        try:
            with stored_array(self.place, self.key or None) as (_, array):
                pixels = np.array(array[self.start : self.stop])
        except (ValueError, OSError) as error:
            yield from ((name, error) for name in names)
            return
        yield from zip(names, np.split(pixels, len(pixels)))


@dataclass(frozen=True)
class Held:
    """Contents that are stored in the reference."""

    contents: tuple[tuple[str, Content], ...]

    def __len__(self) -> int:
        return len(self.contents)

    def __getitem__(self, part: slice) -> "Held":
        return Held(self.contents[part])

    @property
    def here(self) -> str | None:
        return None

    def load(self) -> Iterator[tuple[str, Content]]:
        return iter(self.contents)


Segment = Files | Members | Rows | Held


def hold_contents(segments: Iterable[Segment]) -> tuple[Segment, ...]:
    """Return segments for a machine without access to local files: contents of local files are included."""
    return tuple(
        segment if segment.here is None else Held(tuple(map(_held, segment.load())))
        for segment in segments
    )


def _held(item: tuple[str, Content]) -> tuple[str, Content]:
    name, content = item
    if isinstance(content, Path):
        try:
            check_file(content, MOST_BYTES)
            content = content.read_bytes()
        except (ValueError, OSError) as error:
            content = error
    return name, content


def cut_segments(segments: Iterable[Segment], size: int) -> Iterator[tuple[Segment, ...]]:
    """Yield the same images in lists of segments with `size` images each; the last may have fewer."""
    left, piece = size, list[Segment]()
    for segment in segments:
        while len(segment):
            taken: Segment = segment[:left]
            segment = segment[left:]
            piece.append(taken)
            left -= len(taken)
            if not left:
                yield tuple(piece)
                piece, left = [], size
    if piece:
        yield tuple(piece)


def read_contents(
    segments: Iterable[Segment],
    *,
    channels: int | None = None,
    bits: int | None = None,
    page: int | None = None,
    max_pixels: int | None = None,
) -> Iterator[tuple[str, Array | Exception]]:
    """Yield (name, (C, H, W) as from `read_pixels`), or (name, error), for every image."""
    how: dict[str, Any] = {"bits": bits, "page": page, "max_pixels": max_pixels}
    for segment in segments:
        for name, content in segment.load():
            if isinstance(content, Exception):
                yield name, content
                continue
            try:
                if isinstance(content, np.ndarray):
                    with reading(name):
                        pixels = with_channels(_one_image(content, bits, max_pixels), channels)
                else:
                    pixels = read_pixels(content, channels=channels, **how, name=name)
            except (ValueError, OSError) as error:
                yield name, error
            else:
                yield name, pixels


def read_segments(
    segments: Sequence[Segment], *, image_size: int, resize: Resize = RESIZE, **how: Any
) -> tuple[list[str], list[Tensor | Exception]]:
    """Return names, and images (C, image_size, image_size), uint8 or float32 in [0, 1], or errors.

    The images are bit-identical to those of `iter_images`. `how` are the options of `read_contents`.
    """
    names: list[str] = []
    images: list[Tensor | Exception] = []
    waiting: dict[tuple[Any, ...], list[int]] = {}
    for name, pixels in read_contents(segments, **how):
        image: Tensor | Exception
        if isinstance(pixels, Exception):
            image = pixels
        else:
            image = torch.from_numpy(scale_depth(pixels, how.get("bits")))
            if image.shape[1] * image.shape[2] > _SMALL:
                image = _resized(name, image, image_size, resize)
            else:
                waiting.setdefault((image.shape, image.dtype), []).append(len(images))
        names.append(name)
        images.append(image)
    for places in waiting.values():
        try:
            batch = torch.stack([images[place] for place in places])  # type: ignore[misc]
            made = list(resize_images(batch, image_size, resize))
        except ValueError:
            # Each with its own name in the reason.
            made = [
                _resized(names[place], images[place], image_size, resize)  # type: ignore[arg-type]
                for place in places
            ]
        for place, image in zip(places, made):
            images[place] = image
    return names, images


def _resized(name: str, image: Tensor, size: int, resize: Resize) -> Tensor | Exception:
    try:
        with reading(name):
            return resize_images(image[None], size, resize)[0]
    except ValueError as error:
        return error


def _one_image(row: Array, bits: int | None, max_pixels: int | None) -> Array:
    """(C, H, W) uint8 or float32 in [0, 1] of an array (1, ...) of one image."""
    image: Array = as_images(row, None, bits)[0].numpy()
    if max_pixels is not None and image.shape[1] * image.shape[2] > max_pixels:
        raise ValueError(f"has more pixels than max_pixels={max_pixels}")
    if image.dtype != np.uint8 and not (image.min() >= 0 and image.max() <= 1):
        raise ValueError(f"float pixels must be in [0, 1], got {image.min():g} to {image.max():g}")
    return image


def _fetched(address: str) -> bytes | Exception:
    """A remote file, or why there is none; each library has errors of its own."""
    try:
        with reading(address), open_binary(address) as file:
            content = file.read(MOST_BYTES + 1)
            if len(content) > MOST_BYTES:
                raise ValueError(f"has more than {MOST_BYTES:,} bytes")
            return content
    except (ValueError, OSError) as error:
        return error
