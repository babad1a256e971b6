"""A picture of a data set: a row of examples per class."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

from besselnet._pixels import counted
from besselnet.atomic import atomic_file
from besselnet.checks import check_count
from besselnet.data import ImageSet, resize_images
from besselnet.drawing._style import visible_text

_Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

_TILE = 72
_GAP = 4
_LABEL = 160
_INK, _PAPER, _MUTED = (30, 30, 30), (255, 255, 255), (120, 120, 120)


def contact_sheet(
    imageset: ImageSet, path: Path | str, *, per_class: int = 8, seed: int = 0, title: str = ""
) -> None:
    """Write a PNG with `per_class` random images of each class, each class a row with its name.

    Images are scaled to fit 72 x 72 tiles; other than 1 or 3 channels are shown as their first one.
    """
    check_count("per_class", per_class)
    font = ImageFont.load_default(14)
    top = 32 if title else _GAP
    width = _LABEL + per_class * (_TILE + _GAP) + _GAP
    sheet = Image.new("RGB", (width, top + len(imageset.classes) * (_TILE + _GAP)), _PAPER)
    draw = ImageDraw.Draw(sheet)
    if title:
        draw.text((10, 8), visible_text(title, 200), fill=_INK, font=font)
    generator = torch.Generator().manual_seed(seed)
    for row, name in enumerate(imageset.classes):
        members = (imageset.labels == row).nonzero()[:, 0]
        y = top + row * (_TILE + _GAP)
        draw.text((10, y + 16), _shortened(draw, visible_text(name), font), fill=_INK, font=font)
        draw.text((10, y + 38), counted(len(members), "image"), fill=_MUTED, font=font)
        shown = members[torch.randperm(len(members), generator=generator)[:per_class]]
        for column, index in enumerate(shown.tolist()):
            sheet.paste(_tile(imageset.images[index]), (_LABEL + column * (_TILE + _GAP), y))
    with atomic_file(Path(path)) as file:
        sheet.save(file, format="PNG")


def _tile(image: torch.Tensor) -> Image.Image:
    channels = image if image.shape[0] in (1, 3) else image[:1]
    fitted = resize_images(channels[None], _TILE, "fit")[0]
    if fitted.dtype != torch.uint8:
        fitted = (fitted * 255).round().to(torch.uint8)
    return Image.fromarray(np.ascontiguousarray(fitted.expand(3, -1, -1).permute(1, 2, 0).numpy()))


def _shortened(draw: ImageDraw.ImageDraw, name: str, font: _Font) -> str:
    """`name`, cut so that it stays in its column."""
    shown = name
    while draw.textlength(shown, font=font) > _LABEL - 20:
        shown = shown.removesuffix("…")[:-1] + "…"
    return shown
