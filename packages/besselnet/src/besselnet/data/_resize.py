"""Bring images to one square size."""

from typing import Literal, get_args

import torch
import torch.nn.functional as F

Resize = Literal["fit", "crop", "stretch"]
RESIZES: tuple[str, ...] = get_args(Resize)


def resize_images(images: torch.Tensor, size: int, how: Resize = "fit") -> torch.Tensor:
    """(N, C, H, W) uint8 or float32 -> (N, C, size, size) of the same type.

    - `"fit"` scales the longer side to `size` and fills up with zeros, equally on both sides: nothing
      is lost or distorted;
    - `"crop"` scales the shorter side to `size` and cuts the longer one, equally on both sides;
    - `"stretch"` scales each side on its own, which turns circles into ellipses: a network that is
      equivariant to rotations of the picture is then not equivariant to rotations of the object.

    Scaling is bicubic with a low-pass filter when it shrinks (`antialias=True`), cut to the range.
    """
    check_resize(size, how)
    height, width = images.shape[-2:]
    if (height, width) == (size, size):
        return images
    if how == "stretch":
        inner = (size, size)
    else:
        scale = size / (max if how == "fit" else min)(height, width)
        inner = (max(1, round(height * scale)), max(1, round(width * scale)))
    top = 255.0 if images.dtype == torch.uint8 else 1.0
    scaled = images.float()
    if inner != (height, width):
        scaled = F.interpolate(scaled, inner, mode="bicubic", antialias=True).clamp_(0, top)
    if images.dtype == torch.uint8:
        scaled = scaled.round_().to(torch.uint8)
    if how == "crop":
        up, left = (inner[0] - size) // 2, (inner[1] - size) // 2
        return scaled[..., up : up + size, left : left + size].contiguous()
    rows, columns = size - inner[0], size - inner[1]
    before = (columns // 2, rows // 2)
    return F.pad(scaled, (before[0], columns - before[0], before[1], rows - before[1]))


def check_resize(size: int, how: str) -> None:
    """Refuse a size or a rule that `resize_images` does not know."""
    if size < 1:
        raise ValueError(f"image_size must be at least 1, got {size}")
    if how not in RESIZES:
        raise ValueError(f"resize must be one of {RESIZES}, got {how!r}")


def resize_in_pieces(
    images: torch.Tensor, size: int | None, how: Resize = "fit", piece: int = 256
) -> torch.Tensor:
    """`resize_images` for a whole set: float temporaries for `piece` images at a time."""
    if size is None or images.shape[-2:] == (size, size):
        return images
    return torch.cat([resize_images(part, size, how) for part in images.split(piece)])
