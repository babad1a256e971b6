"""Image files -> arrays for a network, without torch: the rules of `besselnet.data._decode` and `resize`.

A machine that runs an exported network needs numpy and Pillow for it, and a test holds both readers together
on every kind of file.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

Array = np.ndarray

SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp")
# Of the cubic convolution that is used for shrinking.
CUBIC = -0.5


def list_images(paths: Iterable[Path]) -> Iterator[Path]:
    """The files themselves; for a folder the image files in it, at any depth, sorted, none that is hidden."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        inside = sorted(file.relative_to(path) for file in path.rglob("*"))
        for file in inside:
            hidden = any(part.startswith(".") for part in file.parts)
            if file.suffix.lower() in SUFFIXES and not hidden and (path / file).is_file():
                yield path / file


def read_image(path: Path, channels: int, size: int, how: str) -> Array:
    """(channels, size, size) float32 in [0, 1]; `ValueError` or `OSError` for a file that cannot be read."""
    try:
        with Image.open(path) as opened:
            pixels = _decode(opened)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, SyntaxError, EOFError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(reason if str(path) in reason else f"{path}: {reason}") from error
    if channels != len(pixels):
        pixels = _luma(pixels) if channels == 1 else np.repeat(pixels, channels, 0)
    resized = resize(pixels, size, how)
    return resized.astype(np.float32) / np.float32(255 if resized.dtype == np.uint8 else 1)


def resize(pixels: Array, size: int, how: str) -> Array:
    """(C, H, W) -> (C, size, size) of the same type, by "fit", "crop" or "stretch".

    Bicubic, with the kernel widened where it shrinks; cut to the range, and rounded for uint8.
    """
    height, width = pixels.shape[1:]
    if (height, width) == (size, size):
        return pixels
    scale = size / (max if how == "fit" else min)(height, width)
    inner = [size if how == "stretch" else max(1, round(n * scale)) for n in (height, width)]
    whole = pixels.dtype == np.uint8
    scaled = pixels.astype(np.float32)
    if inner != [height, width]:
        rows, columns = _weights(height, inner[0]), _weights(width, inner[1])
        scaled = np.clip(rows @ (scaled @ columns.T), 0, 255 if whole else 1)
    if whole:
        scaled = np.rint(scaled).astype(np.uint8)
    before = [abs(size - n) // 2 for n in inner]
    if how == "crop":
        return scaled[:, before[0] : before[0] + size, before[1] : before[1] + size]
    margins = [(b, size - n - b) for b, n in zip(before, inner)]
    return np.pad(scaled, [(0, 0), *margins])


def _weights(size: int, wanted: int) -> Array:
    """What each of `size` pixels contributes to each of `wanted`; (wanted, size), rows add up to 1."""
    step = size / wanted
    widened = max(step, 1.0)
    centres = step * (np.arange(wanted) + 0.5)
    first = np.maximum((centres - 2 * widened + 0.5).astype(int), 0)
    last = np.minimum((centres + 2 * widened + 0.5).astype(int), size)
    pixels = np.arange(size)
    distance = np.abs(pixels + 0.5 - centres[:, None]) / widened
    near = (CUBIC + 2) * distance**3 - (CUBIC + 3) * distance**2 + 1
    far = CUBIC * (distance**3 - 5 * distance**2 + 8 * distance - 4)
    weights = np.where(distance < 1, near, np.where(distance < 2, far, 0.0))
    weights *= (pixels >= first[:, None]) & (pixels < last[:, None])
    return (weights / weights.sum(1, keepdims=True)).astype(np.float32)


def _decode(image: Image.Image) -> Array:
    """(C, H, W) of an opened file: uint8, or float32 in [0, 1] where it has more than 8 bits."""
    # A camera's MPO is a JPEG whose further frames are previews.
    frames = getattr(image, "n_frames", 1)
    if frames > 1 and image.format != "MPO":
        raise ValueError(f"has {frames} frames or pages; only single images can be read")
    image.load()
    upright = ImageOps.exif_transpose(image)
    kind = upright.mode
    if kind in ("I", "F") or kind.startswith("I;16"):
        return _deep(np.asarray(upright))[None]
    if upright.has_transparency_data:
        layers = np.asarray(upright.convert("RGBA"), dtype=np.uint16)
        opaque = (layers[..., :3] * layers[..., 3:] + 127) // 255
        upright = Image.fromarray(opaque.astype(np.uint8))
    if kind in ("1", "L", "LA", "La"):
        return np.array(upright.convert("L"))[None]
    if kind in ("RGB", "RGBA", "RGBa", "RGBX", "P", "PA", "CMYK", "YCbCr", "HSV"):
        return np.array(upright.convert("RGB")).transpose(2, 0, 1)
    raise ValueError(f"pixel format {kind!r} is not supported")


def _deep(values: Array) -> Array:
    """Grey values of more than 8 bits -> float32 in [0, 1]."""
    low, high = float(values.min()), float(values.max())
    top = 1 if values.dtype.kind == "f" else 65535
    if not (low >= 0 and high <= top):
        allowed = (
            "float pixels must lie in [0, 1]" if top == 1 else "integer pixels must lie in 0..65535"
        )
        raise ValueError(f"{allowed}, got {low:g} to {high:g}")
    return values.astype(np.float32) / np.float32(top)


def _luma(pixels: Array) -> Array:
    """(3, H, W) -> (1, H, W) with the weights of ITU-R 601."""
    weights = np.array([0.299, 0.587, 0.114], dtype=np.float32)
    grey = np.einsum("c,chw->hw", weights, pixels.astype(np.float32))[None]
    return np.rint(grey).astype(np.uint8) if pixels.dtype == np.uint8 else grey
