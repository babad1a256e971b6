"""Decode image files to tensors of one size, by the rules of `besselnet._pixels`."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F

from besselnet._pixels import (
    IGNORED,
    RESIZE,
    check_reading,
    inner_size,
    list_images,
    option_hint,
    pillow,
    read_pixels,
    scale_depth,
)
from besselnet.data._imageset import as_floats
from besselnet.untrusted import reading

Resize = Literal["fit", "crop", "stretch"]


def decode_image(
    source: Path | str | bytes,
    *,
    channels: int | None = None,
    bits: int | None = None,
    page: int | None = None,
    max_pixels: int | None = None,
    name: str | None = None,
) -> torch.Tensor:
    """Decode an image file to (C, H, W) uint8, or float32 in [0, 1] if it has more than 8 bits.

    - `source`: a path, or the bytes of a file called `name`;
    - `channels`: convert to 1 (luma, ITU-R 601) or 3 channels (grey is repeated). Default: as in the file;
    - `bits`: used bits of a 16-bit file, 8 to 16. With 12, for a 12-bit camera, the value 4 095 becomes 1.
      Default: 16;
    - `page`: page of a multi-page file, from 0. Default: multi-page files raise an error;
    - `max_pixels`: larger images raise an error before they are decoded. Default: 50 million.
    """
    how: dict[str, Any] = {"bits": bits, "page": page, "max_pixels": max_pixels}
    pixels = read_pixels(source, channels=channels, **how, name=name)
    return torch.from_numpy(scale_depth(pixels, bits))


def iter_images(
    paths: Iterable[Path | str],
    *,
    image_size: int | None = None,
    channels: int | None = None,
    resize: Resize = RESIZE,
    bits: int | None = None,
    page: int | None = None,
    max_pixels: int | None = None,
) -> Iterator[tuple[Path, torch.Tensor | Exception]]:
    """Yield (path, (C, H, W) tensor) for each file, in order, or (path, error) for an unreadable file.

    Files are decoded as in the `folder` data set. Only one image is in memory at a time. A folder in
    `paths` stands for the image files in it, at any depth, sorted.
    """
    how = {"channels": channels, "bits": bits, "page": page, "max_pixels": max_pixels}
    found = iter_deep_images(paths, image_size, resize, **how)
    return ((path, image) for path, image, _ in found)


def iter_deep_images(
    paths: Iterable[Path | str], image_size: int | None, resize: Resize, **how: Any
) -> Iterator[tuple[Path, torch.Tensor | Exception, int]]:
    """`iter_images` with the largest value of each file of 16-bit grey, else 0."""
    check_reading(**how)
    pillow()
    if image_size is not None:
        inner_size(1, 1, image_size, resize)
    for path in list_images(paths):
        try:
            pixels = read_pixels(path, **how)
            largest = int(pixels.max()) if pixels.dtype.name == "uint16" else 0
            image = torch.from_numpy(scale_depth(pixels, how["bits"]))
            if image_size is not None:
                with reading(path):
                    image = resize_images(image[None], image_size, resize)[0]
        except (ValueError, OSError) as error:
            yield path, error, 0
        else:
            yield path, image, largest


class Decoded(NamedTuple):
    """Images (M, C, H, W), the places (M,) of their files, why others cannot be read, and the largest value.

    `largest` is that of the 16-bit images, 0 without such.
    """

    images: torch.Tensor
    places: torch.Tensor
    failures: list[str]
    largest: int


def decode_files(
    paths: Sequence[Path | str], image_size: int | None, resize: Resize, how: Mapping[str, Any]
) -> Decoded:
    """All images of `iter_images`, with the channels and of the type that every one of them fits in."""
    images, places, failures, largest = [], [], [], 0
    for number, (_, image, brightest) in enumerate(
        iter_deep_images(paths, image_size, resize, **how)
    ):
        if isinstance(image, Exception):
            failures.append(str(image))
            continue
        largest = max(largest, brightest)
        images.append(image)
        places.append(number)
    nothing = torch.empty((0, 1, 1, 1), dtype=torch.uint8)
    stacked = stack_alike(images) if images else nothing
    return Decoded(stacked, torch.tensor(places, dtype=torch.int64), failures, largest)


def stack_alike(images: Sequence[torch.Tensor]) -> torch.Tensor:
    """(N, C, H, W), with the channels and of the type that every image fits in."""
    most = max(len(image) for image in images)
    deep = any(image.dtype == torch.float32 for image in images)
    return torch.stack([(as_floats(i) if deep else i).expand(most, -1, -1) for i in images])


def warn_of_dark_images(largest: int, stacklevel: int = 4) -> None:
    """Warn where the `largest` value of all 16-bit images of a set leaves two or more bits unused.

    `stacklevel` is that of the caller of `load_data`.
    """
    used = largest.bit_length()
    if 0 < used <= 14:
        bits = max(8, used + used % 2)
        warnings.warn(
            f"the 16-bit images are dark: their largest value is {largest} of 65535. If they have "
            f"{bits} bits, {option_hint('bits', bits)}",
            stacklevel=stacklevel,
        )


def resize_images(images: torch.Tensor, size: int, how: Resize = RESIZE) -> torch.Tensor:
    """Resize images (N, C, H, W), uint8 or float32, to (N, C, size, size) of the same dtype.

    - `"crop"` scales the shorter side to `size` and crops the longer one, equally on both sides;
    - `"fit"` scales the longer side to `size` and pads with zeros, equally on both sides: nothing is lost
      or distorted;
    - `"stretch"` scales each side separately, so circles become ellipses. A rotated object then no longer
      gives a rotated image, and an equivariant network loses its advantage.

    Interpolation is bicubic, with a low-pass filter for downscaling (`antialias=True`), clamped to the range.
    """
    height, width = images.shape[-2:]
    inner = inner_size(height, width, size, how)
    if (height, width) == (size, size):
        return images
    top = 255.0 if images.dtype == torch.uint8 else 1.0
    scaled = images.float()
    if inner != (height, width):
        scaled = F.interpolate(scaled, inner, mode="bicubic", antialias=True).clamp_(0, top)
    if images.dtype == torch.uint8:
        scaled = scaled.round_().to(torch.uint8)
    return _centred(scaled, size, 0)


def resize_masks(
    masks: torch.Tensor, size: int, how: Resize = RESIZE, fill: int = IGNORED
) -> torch.Tensor:
    """Resize masks (N, H, W) to (N, size, size) like `resize_images`, by nearest-neighbour interpolation.

    `fill` is the value outside the frame.
    """
    inner = inner_size(masks.shape[1], masks.shape[2], size, how)
    # Exact: numbers of masks are below 2^24.
    scaled = F.interpolate(masks[:, None].float(), inner, mode="nearest-exact")[:, 0]
    return _centred(scaled.to(masks.dtype), size, fill)


def _centred(images: torch.Tensor, size: int, fill: int) -> torch.Tensor:
    """(..., H, W) -> (..., size, size), filled up or cut equally on both sides."""
    # Negative for "crop": that cuts.
    rows, columns = size - images.shape[-2], size - images.shape[-1]
    up, left = int(rows / 2), int(columns / 2)
    return F.pad(images, (left, columns - left, up, rows - up), value=fill)


def resize_in_pieces(
    images: torch.Tensor, size: int | None, how: Resize = RESIZE, piece: int = 256
) -> torch.Tensor:
    """`resize_images` for a whole set: float temporaries for `piece` images at a time."""
    if size is None or images.shape[-2:] == (size, size):
        return images
    return torch.cat([resize_images(part, size, how) for part in images.split(piece)])
