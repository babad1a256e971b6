"""Image files -> tensors, one set of rules for training and prediction.

| in the file | becomes |
|---|---|
| black and white, 8-bit grey | 1 channel, uint8 |
| RGB, palette, CMYK, YCbCr, HSV | 3 channels, uint8; CMYK without colour profile |
| with transparency | laid on black, the value that rotation puts outside the frame |
| 16-bit grey, 32-bit integers up to 65 535 | 1 channel, float32, divided by 65 535 |
| 32-bit float grey in [0, 1] | 1 channel, float32 |
| 16-bit RGB (PNG) | 3 channels, uint8: Pillow keeps the upper 8 bits |
| EXIF orientation | applied, so the picture is what a viewer shows |
| several pages or frames | refused: which one is meant is the user's to say |
"""

import io
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps

from besselnet.data._errors import reading
from besselnet.data._resize import Resize, check_resize, resize_images

SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp")

_GREY = ("1", "L", "LA", "La")
_DEEP = ("I;16", "I;16L", "I;16B", "I;16N", "I", "F")
_COLOUR = ("RGB", "RGBA", "RGBa", "RGBX", "P", "PA", "CMYK", "YCbCr", "HSV")


def decode_image(
    source: Path | str | bytes, *, channels: int | None = None, name: str | None = None
) -> torch.Tensor:
    """(C, H, W) uint8, or float32 in [0, 1] where the file has more than 8 bits.

    `source` is a path, or the bytes of a file called `name`. `channels` asks for 1 (colour becomes
    luma, ITU-R 601) or 3 (grey is repeated) in place of what the file has.
    """
    if channels not in (None, 1, 3):
        raise ValueError(f"channels must be 1, 3 or None, got {channels}")
    label = name if isinstance(source, bytes) else source
    stream = io.BytesIO(source) if isinstance(source, bytes) else source
    with reading(label or "image"), Image.open(stream) as opened:
        pixels = _pixels(opened)
    if channels is not None and channels != len(pixels):
        pixels = _luma(pixels) if channels == 1 else pixels.expand(3, -1, -1).contiguous()
    return pixels


def iter_images(
    paths: Iterable[Path | str],
    *,
    image_size: int | None = None,
    channels: int | None = None,
    resize: Resize = "fit",
) -> Iterator[tuple[Path, torch.Tensor | Exception]]:
    """Decode files one by one, in order: (path, (C, H, W) tensor), or (path, error) for a bad file.

    The decoding is that of the `folder` data set. Only one image is in memory at a time, and a
    directory among `paths` stands for the image files in it, at any depth, sorted.
    """
    if image_size is not None:
        check_resize(image_size, resize)
    for path in paths:
        path = Path(path)
        for file in image_files(path) if path.is_dir() else (path,):
            try:
                image = decode_image(file, channels=channels)
                if image_size is not None:
                    image = resize_images(image[None], image_size, resize)[0]
            except (ValueError, OSError) as error:
                yield file, error
            else:
                yield file, image


def image_files(folder: Path) -> list[Path]:
    """Files with an image's suffix under `folder`, at any depth, sorted; hidden ones left out."""
    found = (path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    return sorted(
        path
        for path in found
        if path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )


def _pixels(image: Image.Image) -> torch.Tensor:
    """(C, H, W) of an opened file, by the table above."""
    # A camera's MPO is a JPEG whose further frames are previews.
    if getattr(image, "n_frames", 1) > 1 and image.format != "MPO":
        raise ValueError(f"has {image.n_frames} frames or pages; only single images can be read")  # type: ignore[attr-defined]
    image.load()
    upright = ImageOps.exif_transpose(image)
    if upright.mode in _DEEP:
        return _deep(np.asarray(upright))[None]
    if upright.mode not in _GREY + _COLOUR:
        raise ValueError(f"pixel format {upright.mode!r} is not supported")
    if upright.has_transparency_data:
        layers = np.asarray(upright.convert("RGBA"), dtype=np.uint16)
        opaque = (layers[..., :3] * layers[..., 3:] + 127) // 255
        colours = Image.fromarray(opaque.astype(np.uint8))
    else:
        colours = upright
    grey = upright.mode in _GREY
    array = np.array(colours.convert("L" if grey else "RGB"))
    return torch.from_numpy(array[None] if grey else array.transpose(2, 0, 1).copy())


def _deep(array: np.ndarray) -> torch.Tensor:
    """Grey values of more than 8 bits -> float32 in [0, 1]."""
    values = torch.from_numpy(array.astype(np.float32))
    low, high = float(values.min()), float(values.max())
    if array.dtype.kind == "f":
        if not (low >= 0 and high <= 1):
            raise ValueError(f"float pixels must lie in [0, 1], got {low:g} to {high:g}")
        return values
    if low < 0 or high > 65535:
        raise ValueError(f"integer pixels must lie in 0..65535, got {low:.0f} to {high:.0f}")
    return values / 65535


def _luma(pixels: torch.Tensor) -> torch.Tensor:
    """(3, H, W) -> (1, H, W) with the weights of ITU-R 601."""
    weights = torch.tensor([0.299, 0.587, 0.114])
    grey = torch.einsum("c,chw->hw", weights, pixels.float())[None]
    return grey.round().to(torch.uint8) if pixels.dtype == torch.uint8 else grey
