"""Prediction on images of any size, tile by tile, in memory that does not grow with the image.

Neighbouring tiles overlap. The outer `margin` pixels of a tile are context and are dropped where the image
continues; over the next `blend` pixels, the results of two tiles are blended:

    tile i      |------------ used -------------\\ blend | margin |
    tile i + 1                 | margin | blend /------------- used ---------

So every used pixel is at least `margin` pixels from the cut edges of its tile. The result is that of the
whole image if the receptive field of the network is not larger (`receptive_field`).

The sampling grid of a network with pooling depends on the size modulo the total stride. Therefore tiles begin
at multiples of `stride`, and their sizes are congruent to the size of the image.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from besselnet.checks import check_count, check_number

Array = np.ndarray
Forward = Callable[[Array], Array]
"""A network: image (C, h, w) -> probabilities of the classes (K, h, w)."""

TILE, MARGIN, BLEND = 512, 96, 16
# A multiple of the total stride of every network that pools up to five times by two.
STRIDE = 32
# Images on which the receptive field is measured: on one, a network may be sure whatever it sees.
_PROBES = 3


def iter_tiles(
    forward: Forward,
    image: Array,
    *,
    tile: int = TILE,
    margin: int = MARGIN,
    blend: int = BLEND,
    stride: int = STRIDE,
) -> Iterator[tuple[slice, slice, Array]]:
    """Yield finished parts of the prediction: rows, columns and (K, rows, columns) float32.

    The parts cover the image once, from the top left. Only one tile and `blend` rows of the prediction are in
    memory.

    Args:
        forward: the network, see `Forward`; called with parts of `image`.
        image: (C, H, W); only tiles of it are read, so it can be a memory-mapped file.
        tile: maximum side of a tile. Smaller images are predicted in one piece.
        margin: pixels of context at each cut.
        blend: pixels over which neighbouring tiles are blended.
        stride: the total stride of the network, or a multiple of it.
    """
    check_count("tile", tile)
    check_count("margin", margin, least=0)
    check_count("blend", blend)
    check_count("stride", stride)
    if image.ndim != 3:
        raise ValueError(f"image has shape {image.shape}: must be (C, H, W)")
    rows, columns = (_spans(size, tile, margin, blend, stride) for size in image.shape[1:])
    return _blended(forward, image, rows, columns, blend)


def predict_tiles(
    forward: Forward,
    image: Array,
    *,
    tile: int = TILE,
    margin: int = MARGIN,
    blend: int = BLEND,
    stride: int = STRIDE,
    out: Array | None = None,
) -> Array:
    """Return the prediction (K, H, W) float32 for an image of any size, see `iter_tiles`.

    If given, `out` is filled instead of a new array; it can be a memory-mapped file.
    """
    parts = iter_tiles(forward, image, tile=tile, margin=margin, blend=blend, stride=stride)
    for rows, columns, part in parts:
        if out is None:
            out = np.empty((len(part), *image.shape[1:]), np.float32)
        out[:, rows, columns] = part
    assert out is not None  # Every image has a part.
    return out


def count_tiles(
    shape: tuple[int, int],
    *,
    tile: int = TILE,
    margin: int = MARGIN,
    blend: int = BLEND,
    stride: int = STRIDE,
) -> int:
    """Return the number of tiles of an image of (height, width)."""
    rows, columns = (_spans(size, tile, margin, blend, stride) for size in shape)
    return len(rows) * len(columns)


def receptive_field(
    forward: Forward,
    channels: int,
    *,
    stride: int = STRIDE,
    tolerance: float = 1e-4,
    most: int = 256,
) -> int | None:
    """Measure the receptive field: the `margin` for which tiles give the result of the whole image.

    It uses images with random structure of several sizes. With this margin around it, the centre of an image
    gives the same result as in the whole image, up to `tolerance`. The result is a multiple of `stride`, or
    None if the receptive field is larger than `most` pixels (or the stride is larger).
    """
    check_count("channels", channels)
    check_count("stride", stride)
    check_number("tolerance", tolerance, above=0)
    steps = check_count("most", most, least=stride) // stride + 1
    centre = steps * stride
    images = [_random_structure(channels, 2 * centre + stride, seed) for seed in range(_PROBES)]

    def middle(margin: int) -> Array:
        cut = slice(centre - margin, centre + stride + margin)
        inner = slice(margin, margin + stride)
        return np.stack([forward(image[:, cut, cut])[:, inner, inner] for image in images])

    whole = middle(centre)

    def is_enough(number: int) -> bool:
        return bool(np.abs(middle(number * stride) - whole).max() < tolerance)

    if not is_enough(steps - 1):
        return None
    low, high = -1, steps - 1
    while high - low > 1:
        number = (low + high) // 2
        low, high = (low, number) if is_enough(number) else (number, high)
    return high * stride


class _Span(NamedTuple):
    """A tile along one axis: it reads `start` to `stop`, and finishes `first` to `last`."""

    start: int
    stop: int
    first: int
    last: int


def _spans(size: int, tile: int, margin: int, blend: int, stride: int) -> list[_Span]:
    """The tiles along an axis of `size` pixels: as few as possible, and then as short as possible."""
    if size <= tile:
        return [_Span(0, size, 0, size)]

    def step_of(length: int) -> int:
        return (length - 2 * margin - blend) // stride * stride

    length = tile - (tile - size) % stride
    # Of three tiles, the seams of the middle one may not meet.
    least = max(stride, 2 * blend)
    if step_of(length) < least:
        needed = 2 * margin + blend + least + 2 * stride
        raise ValueError(
            f"tile={tile} with margin={margin}, blend={blend} and stride={stride}: must be an integer "
            f">= {needed}"
        )
    count = 1 - (length - size) // step_of(length)
    while step_of(length - stride) >= least and (
        (count - 1) * step_of(length - stride) + length - stride >= size
    ):
        length -= stride
    starts = [min(i * step_of(length), size - length) for i in range(count)]
    seams = [(one + other + length - blend) // 2 for one, other in pairwise(starts)]
    return [
        _Span(start, start + length, first, last)
        for start, first, last in zip(starts, [0, *seams], [*seams, size])
    ]


def _blended(
    forward: Forward, image: Array, rows: list[_Span], columns: list[_Span], blend: int
) -> Iterator[tuple[slice, slice, Array]]:
    rise = (np.sin(np.pi / 2 * (np.arange(blend) + 0.5) / blend) ** 2).astype(np.float32)
    # What the tiles before have left for the seams: on the left of the next tile, and above the next row.
    left = above = np.zeros(0, np.float32)
    for row in rows:
        for column in columns:
            shape = row.stop - row.start, column.stop - column.start
            found = np.asarray(forward(image[:, row.start : row.stop, column.start : column.stop]))
            if found.ndim != 3 or found.shape[1:] != shape:
                raise ValueError(
                    f"forward returns shape {found.shape}: must be (K, {shape[0]}, {shape[1]})"
                )
            part = found[:, row.first - row.start :, column.first - column.start :]
            part = part.astype(np.float32, copy=True)
            height, width = row.last - row.first, column.last - column.first
            if column is not columns[0]:
                part[..., :blend] = part[..., :blend] * rise + left
            if column is not columns[-1]:
                left = part[..., width : width + blend] * (1 - rise)
            part = part[..., :width]
            place = slice(column.first, column.last)
            if not above.size:
                above = np.zeros((len(part), blend, image.shape[2]), np.float32)
            if row is not rows[0]:
                part[:, :blend] = part[:, :blend] * rise[:, None] + above[..., place]
            if row is not rows[-1]:
                above[..., place] = part[:, height : height + blend] * (1 - rise)[:, None]
            yield slice(row.first, row.last), place, part[:, :height]


def _random_structure(channels: int, size: int, seed: int) -> Array:
    """(C, size, size) float32 in [0, 1]: noise in squares of 1, 8 and 64 pixels, in equal shares."""
    chance = np.random.default_rng(seed)
    total = np.zeros((channels, size, size), np.float32)
    for square in (1, 8, 64):
        side = -(-size // square)
        noise = chance.random((channels, side, side), np.float32)
        total += noise.repeat(square, 1).repeat(square, 2)[:, :size, :size]
    return total / 3
