"""Read image files to arrays without torch, by the same rules in training, prediction and exports.

| in the file | becomes |
|---|---|
| black and white, 8-bit grey | 1 channel, uint8 |
| RGB, palette, CMYK, YCbCr, HSV | 3 channels, uint8; CMYK without colour profile |
| with transparency | composited on black, the value that rotation puts outside the frame |
| 16-bit grey, 32-bit integers up to 65 535 | 1 channel, float32, divided by 65 535, or by 2^bits - 1 |
| 32-bit float grey in [0, 1] | 1 channel, float32 |
| 16-bit RGB (PNG) | 3 channels, uint8: Pillow keeps the upper 8 bits |
| EXIF orientation | applied, so the image is as in a viewer |
| several pages or frames | the page that `page` selects; an error without it |

Only these formats are read. Images of more than `max_pixels` pixels are not decoded.
"""

import importlib
import io
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np

from besselnet.checks import LARGEST_SIDE, check_choice, check_count
from besselnet.untrusted import check_file, reading

Array = np.ndarray

SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp")
RESIZES = ("fit", "crop", "stretch")
# The default: a network looks at the middle of a square, and a filled-up frame would be a feature.
RESIZE: Literal["crop"] = "crop"
# The default of `max_pixels`: decoded, and resized with 4 bytes a value, an image needs less than 1 GB.
MAX_PIXELS = 50_000_000
LONGEST_SIDE = 65_535
# Rows that are copied at a time.
_ROWS = 256
# In a mask: a pixel that nobody has labelled. It counts in no loss and no score.
IGNORED = 255
_READING = ("resize", "bits", "page", "max_pixels")
# As Pillow calls them; a camera's MPO is opened as JPEG. Other formats may run other programs.
_FORMATS = ("PNG", "JPEG", "TIFF", "WEBP")
_OTHER_FORMATS = {
    **dict.fromkeys((b"%!PS", b"\xc5\xd0\xd3\xc6"), "EPS"),
    b"GIF8": "GIF",
    b"BM": "BMP",
    b"%PDF": "PDF",
}
_GREY = ("1", "L", "LA", "La")
_DEEP = ("I;16", "I;16L", "I;16B", "I;16N", "I", "F")
_COLOUR = ("RGB", "RGBA", "RGBa", "RGBX", "P", "PA", "CMYK", "YCbCr", "HSV")
# Of the cubic convolution that is used for resizing with a low-pass filter.
_CUBIC = -0.5


def reading_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a data set that determine how files are read; prediction needs them, too."""
    return {name: options[name] for name in _READING if name in options}


def image_files(folder: Path) -> list[Path]:
    """List the files with an image suffix in `folder`, at any depth, sorted, without hidden files."""
    return [Path(path) for path in walk_images(folder)]


def walk_images(folder: Path | str) -> Iterator[str]:
    """The paths of `image_files`, with the names of one folder at each depth in memory."""
    place = str(Path(folder))
    prefix = "" if place == "." else place if place.endswith(os.sep) else place + os.sep
    names: list[str] = []
    folders: set[str] = set()
    try:
        with os.scandir(place) as entries:
            for entry in entries:
                if entry.is_dir():
                    if entry.is_symlink():
                        continue
                    folders.add(entry.name)
                elif not entry.name.lower().endswith(SUFFIXES):
                    continue
                names.append(entry.name)
    except PermissionError:
        raise ValueError(f"{place}: cannot list this folder: permission denied") from None
    # In one text, which takes a tenth of the memory, and which worker processes share: counting references
    # to a million names would copy them into each. No name has a slash.
    listed = "/".join(sorted(names))
    del names
    for found in re.finditer("[^/]+", listed):
        name = found[0]
        if name.startswith("."):
            continue
        if name in folders:
            yield from walk_images(prefix + name)
        else:
            yield prefix + name


def list_images(paths: Iterable[Path | str]) -> Iterator[Path]:
    """The files themselves; for a folder the `image_files` in it."""
    for path in map(Path, paths):
        yield from image_files(path) if path.is_dir() else (path,)


def read_image(
    path: Path | str,
    *,
    channels: int | None,
    image_size: int,
    resize: str = RESIZE,
    bits: int | None = None,
    page: int | None = None,
    max_pixels: int | None = None,
) -> Array:
    """(C, image_size, image_size) float32 in [0, 1]; `ValueError` or `OSError` for an unreadable file."""
    how: dict[str, Any] = {"page": page, "bits": bits, "max_pixels": max_pixels}
    pixels = scale_depth(read_pixels(path, channels=channels, **how), bits)
    return unit_floats(resize_pixels(pixels, image_size, resize))


def read_pixels(
    source: Path | str | bytes,
    *,
    channels: int | None = None,
    bits: int | None = None,
    page: int | None = None,
    max_pixels: int | None = None,
    name: str | None = None,
    create: Callable[[tuple[int, ...], Any], Any] = np.empty,
) -> Array:
    """(C, H, W) uint8, uint16 for grey values of more than 8 bits, or float32 in [0, 1].

    `source` is a path, or the bytes of a file called `name`. `channels` asks for 1 or 3 in place of what
    the file has. Values of more than `bits` bits are refused, and images of more than `max_pixels` pixels
    before they are decoded. `create(shape, dtype)` makes the array, to which rows are then assigned.
    """
    check_reading(channels=channels, bits=bits, page=page, max_pixels=max_pixels)
    image_library = pillow()
    if not isinstance(source, bytes):
        check_file(source)
    stream, label = (io.BytesIO(source), name) if isinstance(source, bytes) else (source, source)
    with reading(label or "image"), _own_limit(image_library), _opened(stream) as opened:
        _check_page_size(opened, page, max_pixels)
        made: Array | None = None
        done = 0
        for strip in _decode(opened):
            top = 2 ** (bits or 16) - 1
            if strip.dtype == np.uint16 and strip.max() > top:
                raise ValueError(f"has the value {strip.max()}, but bits={bits} allows 0..{top}")
            rows = with_channels(strip, channels)
            if made is None:
                made = create((len(rows), opened.height, opened.width), rows.dtype)
            made[:, done : done + rows.shape[1]] = rows
            done += rows.shape[1]
        assert made is not None  # Every image has a row.
    return made


def with_channels(pixels: Array, channels: int | None) -> Array:
    """(C, H, W) with 1 channel (luma, ITU-R 601) or 3 (grey repeated) in place of 3 or 1."""
    if channels in (None, len(pixels)):
        return pixels
    if {channels, len(pixels)} != {1, 3}:
        raise ValueError(f"has {len(pixels)} channels, but the network expects {channels}")
    return np.repeat(pixels, 3, 0) if channels == 3 else _luma(pixels)


def read_mask(
    path: Path | str,
    *,
    colours: bool = False,
    page: int | None = None,
    max_pixels: int | None = None,
) -> Array:
    """What a mask has in each pixel: (H, W) uint8 or uint16 numbers, or (H, W, 3) uint8 colours.

    Numbers are those of grey files (black and white: 0 and 1) and of palettes. Files of three equal
    channels are grey. With `colours`, every file of 8 bits has colours. Transparency is left out, and JPEG
    is refused: it changes values.
    """
    check_reading(page=page, max_pixels=max_pixels)
    image_library = pillow()
    check_file(path)
    with reading(path), _own_limit(image_library), _opened(path) as opened:
        if opened.format in ("JPEG", "MPO"):
            raise ValueError("JPEG changes the pixel values of a mask: save it as PNG or TIFF")
        _check_page_size(opened, page, max_pixels)
        return _decode_mask(opened, colours)


def read_size(
    path: Path | str, *, page: int | None = None, max_pixels: int | None = None
) -> tuple[int, int]:
    """Width and height as the header of a file has them; nothing is decoded or rotated.

    Refuses what `read_pixels` refuses, as far as the header tells.
    """
    image_library = pillow()
    check_file(path)
    with reading(path), _own_limit(image_library), _opened(path) as opened:
        return _check_page_size(opened, page, max_pixels)


def is_deep(path: Path | str) -> bool:
    """Whether the header of an image file says that values have more than 8 bits; not if it is damaged."""
    image_library = pillow()
    try:
        check_file(path)
        with reading(path), _own_limit(image_library), _opened(path) as opened:
            return opened.mode in _DEEP
    except (ValueError, OSError):
        return False


def scale_depth(pixels: Array, bits: int | None = None) -> Array:
    """uint16 of `bits` bits (16) -> float32 in [0, 1]; other types as they are."""
    if pixels.dtype != np.uint16:
        return pixels
    return pixels.astype(np.float32) / np.float32(2 ** (bits or 16) - 1)


def unit_floats(pixels: Array, bits: int | None = None) -> Array:
    """What `read_pixels` gives, or a part of it, as float32 in [0, 1]."""
    scaled = scale_depth(pixels, bits)
    return scaled.astype(np.float32) / np.float32(255 if scaled.dtype == np.uint8 else 1)


def check_reading(
    *,
    channels: int | None = None,
    bits: int | None = None,
    page: int | None = None,
    max_pixels: int | None = None,
) -> None:
    """Refuse values that `read_pixels` does not know."""
    if channels not in (None, 1, 3):
        raise ValueError(f"channels={channels!r}: must be 1, 3 or None")
    if bits is not None and check_count("bits", bits, least=8) > 16:
        raise ValueError(f"bits={bits!r}: must be an integer from 8 to 16")
    if page is not None:
        check_count("page", page, least=0)
    if max_pixels is not None:
        check_count("max_pixels", max_pixels)


def option_hint(name: str, value: object) -> str:
    """How to set an option of a data set, in Python and on the command line."""
    return f"set the data option {name}={value} (command line: --set data.options.{name}={value})"


def counted(number: int, noun: str) -> str:
    """ "1 image", "2 images"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def needed(module: str, purpose: str, extra: str) -> Any:
    """An optional package's module; one line that names the extra to install where it is missing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = {"PIL": "Pillow", "skimage": "scikit-image"}.get(module.split(".")[0], module)
        raise ValueError(f"{purpose} needs {package}: pip install 'besselnet[{extra}]'") from error
    except ImportError as error:
        # Installed, and at odds with another package.
        raise ValueError(f"{purpose} needs {module}, which cannot be imported: {error}") from error


def pillow() -> Any:
    """`PIL.Image`."""
    return needed("PIL.Image", "reading image files", "train")


def resize_pixels(pixels: Array, size: int, how: str) -> Array:
    """(C, H, W) -> (C, size, size) of the same type, by "fit", "crop" or "stretch".

    Bicubic, with the kernel widened where it shrinks; cut to the range, and rounded for uint8.
    """
    height, width = pixels.shape[1:]
    if (height, width) == (size, size):
        return pixels
    inner = inner_size(height, width, size, how)
    whole = pixels.dtype == np.uint8
    scaled = pixels.astype(np.float32)
    if inner != (height, width):
        rows, columns = _weights(height, inner[0]), _weights(width, inner[1])
        scaled = np.clip(rows @ (scaled @ columns.T), 0, 255 if whole else 1)
    if whole:
        scaled = np.rint(scaled).astype(np.uint8)
    before = [abs(size - n) // 2 for n in inner]
    if how == "crop":
        return scaled[:, before[0] : before[0] + size, before[1] : before[1] + size]
    margins = [(b, size - n - b) for b, n in zip(before, inner)]
    return np.pad(scaled, [(0, 0), *margins])


def inner_size(height: int, width: int, size: int, how: str) -> tuple[int, int]:
    """What an image is scaled to before it is filled up ("fit") or cut ("crop") to `size`."""
    check_count("image_size", size, most=LARGEST_SIDE)
    check_choice("resize", how, RESIZES)
    if how == "stretch":
        return size, size
    scale = size / (max if how == "fit" else min)(height, width)
    inner = max(1, round(height * scale)), max(1, round(width * scale))
    if max(inner) > LONGEST_SIDE:
        raise ValueError(
            f"resize={how!r} to {size} pixels makes an image of {width}x{height} pixels longer than "
            f"{LONGEST_SIDE}"
        )
    return inner


def _weights(size: int, wanted: int) -> Array:
    """What each of `size` pixels contributes to each of `wanted`; (wanted, size), rows add up to 1."""
    step = size / wanted
    widened = max(step, 1.0)
    centres = step * (np.arange(wanted) + 0.5)
    first = np.maximum((centres - 2 * widened + 0.5).astype(int), 0)
    last = np.minimum((centres + 2 * widened + 0.5).astype(int), size)
    pixels = np.arange(size)
    distance = np.abs(pixels + 0.5 - centres[:, None]) / widened
    near = (_CUBIC + 2) * distance**3 - (_CUBIC + 3) * distance**2 + 1
    far = _CUBIC * (distance**3 - 5 * distance**2 + 8 * distance - 4)
    weights = np.where(distance < 1, near, np.where(distance < 2, far, 0.0))
    weights *= (pixels >= first[:, None]) & (pixels < last[:, None])
    return (weights / weights.sum(1, keepdims=True)).astype(np.float32)


_limit_lock = threading.Lock()
_pillows_limit: list[int | None] = []


@contextmanager
def _own_limit(image_library: Any) -> Iterator[None]:
    """Without Pillow's limit, which warns or raises before `max_pixels` is checked."""
    with _limit_lock:
        _pillows_limit.append(image_library.MAX_IMAGE_PIXELS)
        image_library.MAX_IMAGE_PIXELS = None
    try:
        yield
    finally:
        with _limit_lock:
            # The first entry is Pillow's: the last reader of several threads puts it back.
            if len(_pillows_limit) == 1:
                image_library.MAX_IMAGE_PIXELS = _pillows_limit[0]
                _pillows_limit.clear()
            else:
                _pillows_limit.pop()


def _opened(stream: Path | str | io.BytesIO) -> Any:
    """Pillow's image, of the documented formats only: its other readers are not asked."""
    from PIL import Image, UnidentifiedImageError

    try:
        return Image.open(stream, formats=_FORMATS)
    except UnidentifiedImageError:
        if isinstance(stream, io.BytesIO):
            start = stream.getvalue()[:8]
        else:
            with open(stream, "rb") as file:
                start = file.read(8)
    found = next((f for magic, f in _OTHER_FORMATS.items() if start.startswith(magic)), None)
    what = f"is a {found} file" if found else "is not an image file, or is damaged"
    raise ValueError(f"{what}: must be PNG, JPEG, TIFF or WebP")


def _check_page_size(image: Any, page: int | None, max_pixels: int | None) -> tuple[int, int]:
    """Turn to the page; its width and height, unless it is too large."""
    _turn_to_page(image, page)
    width, height = image.size
    most = max_pixels or MAX_PIXELS
    if width * height > most:
        raise ValueError(
            f"has {width}x{height} pixels, more than max_pixels={most}: to read it, "
            f"{option_hint('max_pixels', width * height)}"
        )
    if max(width, height) > LONGEST_SIDE:
        raise ValueError(f"has {width}x{height} pixels: must be at most {LONGEST_SIDE} per side")
    return width, height


def _turn_to_page(image: Any, page: int | None) -> None:
    # A camera's MPO is a JPEG whose further frames are previews.
    pages = 1 if image.format == "MPO" else getattr(image, "n_frames", 1)
    if page is None and pages > 1:
        hint = option_hint("page", 0)
        raise ValueError(f"has {pages} pages or frames: to read the first of each file, {hint}")
    if page is not None and page >= pages:
        raise ValueError(
            f"has {counted(pages, 'page')}: page={page} must be less than {pages} (pages count from 0)"
        )
    if page:
        image.seek(page)


def _decode(image: Any) -> Iterator[Array]:
    """(C, h, W) strips of an opened file from top to bottom, by the table above; deep ones as uint16."""
    from PIL import ImageOps

    image.load()
    # Every copy of a large image counts: in place, and below only some rows.
    ImageOps.exif_transpose(image, in_place=True)
    if image.mode not in _DEEP + _GREY + _COLOUR:
        raise ValueError(f"pixel format {image.mode!r} is not supported")
    for top in range(0, image.height, _ROWS):
        bottom = min(top + _ROWS, image.height)
        small = image.height <= _ROWS
        yield _unpacked(image if small else image.crop((0, top, image.width, bottom)))


def _unpacked(image: Any) -> Array:
    """(C, H, W) of Pillow's image."""
    from PIL import Image

    kind = image.mode
    if kind in _DEEP:
        return _deep(np.asarray(image))[None]
    if image.has_transparency_data:
        layers = np.asarray(image.convert("RGBA"), dtype=np.uint16)
        opaque = (layers[..., :3] * layers[..., 3:] + 127) // 255
        image = Image.fromarray(opaque.astype(np.uint8))
    mode = "L" if kind in _GREY else "RGB"
    rows = np.asarray(image if image.mode == mode else image.convert(mode))
    return np.ascontiguousarray(rows.reshape(*rows.shape[:2], -1).transpose(2, 0, 1))


def _decode_mask(image: Any, colours: bool) -> Array:
    """`read_mask` of an opened file."""
    from PIL import ImageOps

    image.load()
    upright = ImageOps.exif_transpose(image)
    kind = upright.mode
    if kind in _DEEP:
        values = np.asarray(upright)
        if colours:
            raise ValueError("has numbers of more than 8 bits instead of colours")
        if not (values.min() >= 0 and values.max() <= 65535 and np.all(values == np.rint(values))):
            raise ValueError("a mask must have integers in 0..65535")
        return values.astype(np.uint16)
    if kind not in _GREY + _COLOUR:
        raise ValueError(f"pixel format {kind!r} is not supported")
    if not colours and kind in ("1", "P"):
        return np.array(upright).astype(np.uint8)
    channels = np.array(upright.convert("RGB"))
    grey = (channels == channels[..., :1]).all()
    return channels[..., 0].copy() if grey and not colours else channels


def _deep(values: Array) -> Array:
    """Grey values of more than 8 bits: uint16, or float32 in [0, 1]."""
    low, high = float(values.min()), float(values.max())
    if values.dtype.kind == "f":
        if not (low >= 0 and high <= 1):
            raise ValueError(f"float pixels must be in [0, 1], got {low:g} to {high:g}")
        return values.astype(np.float32)
    if low < 0 or high > 65535:
        raise ValueError(f"integer pixels must be in 0..65535, got {low:.0f} to {high:.0f}")
    return values.astype(np.uint16)


def _luma(pixels: Array) -> Array:
    """(3, H, W) uint8 or float32 -> (1, H, W) with the weights of ITU-R 601."""
    grey = np.zeros(pixels.shape[1:], np.float32)
    for weight, channel in zip(np.array([0.299, 0.587, 0.114], np.float32), pixels):
        # Rounded once for each channel, as by a fused multiply-add: the same grey value on every machine.
        grey = (grey + np.float64(weight) * channel.astype(np.float64)).astype(np.float32)
    return (np.rint(grey).astype(np.uint8) if pixels.dtype == np.uint8 else grey)[None]
