"""Contact sheets of data sets: rows of examples with their labels."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

from besselnet._pixels import counted
from besselnet.atomic import atomic_file
from besselnet.checks import check_count
from besselnet.data import IGNORED, ImageSet, resize_images, resize_masks
from besselnet.drawing._style import visible_text
from besselnet.masks import class_colour

_Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

_TILE, _LARGE_TILE = 72, 144
_GAP = 4
_LABEL = 160
_CAPTION = 16
_INK, _PAPER, _MUTED = (30, 30, 30), (255, 255, 255), (120, 120, 120)


class _Row(NamedTuple):
    """Tiles beside a name and a remark; `captions` are below the tiles, `colour` is before the name."""

    name: str
    remark: str
    tiles: Sequence[Image.Image] = ()
    captions: Sequence[str] = ()
    colour: tuple[int, ...] | None = None

    @property
    def height(self) -> int:
        tallest = max((tile.height for tile in self.tiles), default=24 if self.colour else _TILE)
        return tallest + _GAP + (_CAPTION if self.captions else 0)


def contact_sheet(
    imageset: ImageSet, path: Path | str, *, per_class: int = 8, seed: int = 0, title: str = ""
) -> None:
    """Write a PNG with one row per class: its name and `per_class` random images.

    Images with several labels also have them below. Images with masks are in one row, with their masks in
    colour below, and one line per class. Images with values have one row per value, from the smallest to the
    largest.

    Images are scaled to fit 72 x 72 pixels (144 x 144 with masks). Unless there are 1 or 3 channels, only
    the first one is shown.
    """
    check_count("per_class", per_class)
    generator = torch.Generator().manual_seed(seed)
    if imageset.task == "segment":
        rows = _mask_rows(imageset, per_class, generator)
    elif imageset.task == "regress":
        rows = _value_rows(imageset, per_class)
    else:
        rows = _class_rows(imageset, per_class, generator)
    _draw(rows, path, per_class, title)


def _class_rows(imageset: ImageSet, per_class: int, generator: torch.Generator) -> list[_Row]:
    several = imageset.task == "multilabel"
    rows = []
    for number, name in enumerate(imageset.classes):
        has = imageset.labels[:, number] if several else imageset.labels == number
        members = has.nonzero()[:, 0]
        shown = members[torch.randperm(len(members), generator=generator)[:per_class]].tolist()
        tiles = [_tile(imageset.images[index]) for index in shown]
        captions = [_labels_of(imageset, index) for index in shown] if several else []
        rows.append(_Row(name, counted(len(members), "image"), tiles, captions))
    return rows


def _labels_of(imageset: ImageSet, index: int) -> str:
    return ", ".join(name for name, has in zip(imageset.classes, imageset.labels[index]) if has)


def _value_rows(imageset: ImageSet, count: int) -> list[_Row]:
    rows = []
    for column, name in enumerate(imageset.classes):
        values, order = imageset.labels[:, column].sort(stable=True)
        ranks = torch.linspace(0, len(order) - 1, min(count, len(order))).round().long()
        tiles = [_tile(imageset.images[index]) for index in order[ranks].tolist()]
        captions = [f"{value:.4g}" for value in values[ranks].tolist()]
        rows.append(_Row(name, counted(len(order), "image"), tiles, captions))
    return rows


def _mask_rows(imageset: ImageSet, count: int, generator: torch.Generator) -> list[_Row]:
    shown = torch.randperm(len(imageset), generator=generator)[:count].tolist()
    tiles = [_tile(imageset.images[index], _LARGE_TILE) for index in shown]
    masks = [_mask_tile(imageset.labels[index]) for index in shown]
    counts = imageset.class_counts().tolist()
    legend = [
        _Row(name, f"{pixels / max(sum(counts), 1):.1%} of the pixels", colour=_colour(number))
        for number, (name, pixels) in enumerate(zip(imageset.classes, counts))
    ]
    return [
        _Row("images", counted(len(imageset), "image"), tiles),
        _Row("masks", "", masks),
        *legend,
    ]


def _colour(number: int) -> tuple[int, int, int]:
    """As in overlays, where the first class has none."""
    return class_colour(number) if number else _INK


def _mask_tile(mask: torch.Tensor) -> Image.Image:
    fitted = resize_masks(mask[None], _LARGE_TILE, "fit")[0].numpy()
    palette = np.full((256, 3), 190, np.uint8)
    palette[:IGNORED] = [_colour(number) for number in range(IGNORED)]
    return Image.fromarray(palette[fitted])


def _draw(rows: Sequence[_Row], path: Path | str, per_row: int, title: str) -> None:
    font, small = ImageFont.load_default(14), ImageFont.load_default(11)
    top = 32 if title else _GAP
    side = max((tile.width for row in rows for tile in row.tiles), default=_TILE)
    width = _LABEL + per_row * (side + _GAP) + _GAP
    sheet = Image.new("RGB", (width, top + sum(row.height for row in rows)), _PAPER)
    draw = ImageDraw.Draw(sheet)
    if title:
        draw.text((10, 8), visible_text(title, 200), fill=_INK, font=font)
    y = top
    for row in rows:
        if row.colour is not None:
            draw.rectangle((10, y + 4, 26, y + 20), fill=row.colour)
            name = _shortened(draw, visible_text(row.name), font, _LABEL - 50)
            draw.text((34, y + 3), name, fill=_INK, font=font)
            draw.text((_LABEL, y + 3), row.remark, fill=_MUTED, font=font)
        else:
            name = _shortened(draw, visible_text(row.name), font, _LABEL - 20)
            draw.text((10, y + 16), name, fill=_INK, font=font)
            draw.text((10, y + 38), row.remark, fill=_MUTED, font=font)
        for column, tile in enumerate(row.tiles):
            sheet.paste(tile, (_LABEL + column * (side + _GAP), y))
        for column, caption in enumerate(row.captions):
            place = (_LABEL + column * (side + _GAP), y + side + 1)
            shown = _shortened(draw, visible_text(caption), small, side)
            draw.text(place, shown, fill=_MUTED, font=small)
        y += row.height
    with atomic_file(Path(path)) as file:
        sheet.save(file, format="PNG")


def _tile(image: torch.Tensor, side: int = _TILE) -> Image.Image:
    channels = image if image.shape[0] in (1, 3) else image[:1]
    fitted = resize_images(channels[None], side, "fit")[0]
    if fitted.dtype != torch.uint8:
        fitted = (fitted * 255).round().to(torch.uint8)
    return Image.fromarray(np.ascontiguousarray(fitted.expand(3, -1, -1).permute(1, 2, 0).numpy()))


def _shortened(draw: ImageDraw.ImageDraw, name: str, font: _Font, width: int) -> str:
    """`name`, cut so that it stays in its column."""
    shown = name
    while draw.textlength(shown, font=font) > width:
        shown = shown.removesuffix("…")[:-1] + "…"
    return shown
