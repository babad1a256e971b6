"""Predict the masks of image files with a segmentation network.

folder/masks/NAME.png             the class of each pixel
folder/overlays/NAME.png          the mask drawn over the image
folder/probabilities/NAME.I.png   the probability of class I as 16-bit integers, 65 535 for 1
folder/instances/NAME.png         the instance number of each pixel, 16-bit
folder/measures.csv               one row per object

A large image is decoded as a whole and then stored on disk: only one tile and a row of tiles of the mask are
in memory. Objects need the whole mask.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np

from besselnet._pixels import image_files, read_pixels, unit_floats
from besselnet._rows import Write, row_file
from besselnet.atomic import remove_leftovers
from besselnet.checks import check_choice, check_count
from besselnet.masks._instances import (
    METHODS,
    Method,
    label_instances,
    measure_instances,
    roles_of,
)
from besselnet.masks._overlay import overlay_mask
from besselnet.masks._png import PngRows, png_file
from besselnet.masks._tiles import (
    BLEND,
    STRIDE,
    TILE,
    Array,
    Forward,
    count_tiles,
    iter_tiles,
    receptive_field,
)

# The smallest tile that leaves room for context, seams and progress.
LEAST_TILE = 256
_MOST_OBJECTS = 65_535
# Pixels of the rows that are drawn and packed at a time.
_STRIP = 2**17


def mask_columns(classes: Sequence[str], *, objects: bool = False) -> list[str]:
    """Return the columns of the rows of `predict_files`."""
    counted = ["objects"] if objects else []
    return ["image", "mask", *(f"share_{name}" for name in classes), *counted, "error"]


def output_names(paths: Iterable[Path | str]) -> list[tuple[Path, Path]]:
    """Return (file, name of its output files without suffix); folders stand for the images in them.

    Images in subfolders keep their relative path. Two files with the same output name raise `ValueError`.
    """
    found = []
    for path in map(Path, paths):
        if path.is_dir():
            found += [(f, f.relative_to(path).with_suffix("")) for f in image_files(path)]
        else:
            found.append((path, Path(path.stem)))
    counts = Counter(name for _, name in found)
    for name, count in counts.items():
        if count > 1:
            first, second = [str(path) for path, other in found if other == name][:2]
            raise ValueError(
                f"{first} and {second} would both be written as {name}.png: predict them in two calls"
            )
    return found


def predict_files(
    forward: Forward,
    paths: Iterable[Path | str],
    folder: Path | str,
    *,
    classes: Sequence[str],
    channels: int,
    reading: Mapping[str, Any] | None = None,
    tile: int = TILE,
    margin: int | None = None,
    overlays: bool = False,
    probabilities: bool = False,
    instances: Method | None = None,
    least_area: int = 1,
    raw_csv: bool = False,
    progress: Callable[[str], object] = lambda text: None,
) -> Iterator[dict[str, Any]]:
    """Write the mask of each image file to `folder`, and yield one row per file, see `mask_columns`.

    If a file cannot be read or predicted, its row has an ``"error"``, and the next file follows. Files appear
    when they are complete; `measures.csv` appears after the last row.

    Args:
        forward: the network, see `Forward`; its input is float32 in [0, 1].
        paths: image files, or folders of them.
        folder: output folder.
        classes: names of the classes, which determine which classes have objects (`roles_of`).
        channels: number of input channels of the network.
        reading: options `bits`, `page` and `max_pixels` of the reader.
        tile: images with a longer side are predicted in tiles of at most this side.
        margin: pixels of context around the used part of a tile. Default: measured (`receptive_field`).
        overlays, probabilities: also write these files.
        instances: find objects with this method of `label_instances`, and measure them.
        least_area: minimum object area in pixels.
        raw_csv: in `measures.csv`, do not escape text that a spreadsheet would read as a formula.
        progress: called with a line of text while a large image is predicted.
    """
    return _written(
        predict_images(
            forward,
            _read_files(
                output_names(paths), {"channels": channels, **(reading or {})}, Path(folder), tile
            ),
            folder,
            classes=classes,
            channels=channels,
            bits=(reading or {}).get("bits"),
            tile=tile,
            margin=margin,
            overlays=overlays,
            probabilities=probabilities,
            instances=instances,
            least_area=least_area,
            progress=progress,
        ),
        Path(folder),
        instances is not None,
        raw_csv,
    )


def predict_images(
    forward: Forward,
    images: Iterable[tuple[str, Path, Array | Exception]],
    folder: Path | str,
    *,
    classes: Sequence[str],
    channels: int,
    bits: int | None = None,
    tile: int = TILE,
    margin: int | None = None,
    overlays: bool = False,
    probabilities: bool = False,
    instances: Method | None = None,
    least_area: int = 1,
    progress: Callable[[str], object] = lambda text: None,
) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Write the mask of each image to `folder`, and yield its row and the measures of its objects.

    Like `predict_files`, for images that are already read: (name in the row, name of its files, pixels as
    from `read_pixels`, or an error). `bits` is the number of used bits of uint16 pixels.
    """
    check_count("tile", tile, least=LEAST_TILE)
    check_count("least_area", least_area)
    if instances is not None:
        check_choice("instances", instances, METHODS)
    wanted = _Wanted(Path(folder), tuple(classes), overlays, probabilities, instances, least_area)
    tiles = _Tiles(forward, channels, bits, tile, margin, progress)
    return _rows(images, wanted, tiles)


def measure_columns() -> dict[str, type]:
    """Return the columns of the measures of objects, and their types."""
    example = measure_instances(np.ones((1, 1), np.int32), mask=[[0]], probabilities=[[1]])[0]
    return {"image": str, **{name: type(value) for name, value in example.items()}}


@dataclass(frozen=True)
class _Wanted:
    """What is written for each image."""

    folder: Path
    classes: tuple[str, ...]
    overlays: bool
    probabilities: bool
    instances: Method | None
    least_area: int

    def path(self, kind: str, name: Path, number: int | None = None) -> Path:
        suffix = ".png" if number is None else f".{number}.png"
        return self.folder / kind / name.with_name(name.name + suffix)


def _read_files(
    files: list[tuple[Path, Path]], reader: dict[str, Any], folder: Path, tile: int
) -> Iterator[tuple[str, Path, Array | Exception]]:
    for path, name in files:
        with ExitStack() as stack:

            def create(shape: tuple[int, ...], dtype: Any, stack: ExitStack = stack) -> Any:
                if max(shape) <= tile:
                    return np.empty(shape, dtype)
                file = stack.enter_context(TemporaryFile(dir=folder, buffering=0))
                return _OnDisk(shape, dtype, file)

            pixels: Array | Exception
            try:
                pixels = read_pixels(path, **reader, create=create)
            except (ValueError, OSError) as error:
                pixels = error
            yield str(path), name, pixels


def _written(
    found: Iterator[tuple[dict[str, Any], list[dict[str, Any]]]],
    folder: Path,
    with_objects: bool,
    raw_csv: bool,
) -> Iterator[dict[str, Any]]:
    """The rows, while the measures are written."""
    folder.mkdir(parents=True, exist_ok=True)
    remove_leftovers(folder)
    with ExitStack() as stack:
        write: Write = lambda rows: None  # noqa: E731
        if with_objects:
            place = folder / "measures.csv"
            write = stack.enter_context(row_file(place, measure_columns(), "csv", raw=raw_csv))
        for row, objects in found:
            write(objects)
            yield row


def _rows(
    images: Iterable[tuple[str, Path, Array | Exception]], wanted: _Wanted, tiles: "_Tiles"
) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    wanted.folder.mkdir(parents=True, exist_ok=True)
    columns = mask_columns(wanted.classes, objects=wanted.instances is not None)
    for place, name, pixels in images:
        row: dict[str, Any] = {**dict.fromkeys(columns), "image": place}
        if isinstance(pixels, Exception):
            yield row | {"error": _reason(pixels)}, []
            continue
        try:
            found, objects = _predict_image(pixels, name, wanted, tiles)
        except ValueError as error:
            yield row | {"error": _reason(error)}, []
            continue
        yield row | found, [{"image": place, **measures} for measures in objects]


def _predict_image(
    image: Array, name: Path, wanted: _Wanted, tiles: "_Tiles"
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Write what belongs to one image; cells of its row, and the measures of its objects."""
    with ExitStack() as files:
        picture = _Picture(image, name, wanted, tiles.bits, files)
        for rows, columns, part in tiles.parts(image, name):
            picture.add(rows, columns, part)
    shares = picture.counts / picture.counts.sum()
    cells: dict[str, Any] = {f"share_{c}": float(s) for c, s in zip(wanted.classes, shares)}
    cells["mask"] = str(wanted.path("masks", name))
    if picture.mask is None or wanted.instances is None:
        return cells, []
    found = label_instances(
        picture.mask,
        **roles_of(wanted.classes),
        method=wanted.instances,
        least_area=wanted.least_area,
    )
    objects = measure_instances(
        found, mask=picture.mask, classes=wanted.classes, probabilities=picture.sure
    )
    if len(objects) > _MOST_OBJECTS:
        raise ValueError(
            f"{len(objects)} objects: must be at most {_MOST_OBJECTS} for a 16-bit PNG; drop small objects "
            "with least_area (command line: --least-area)"
        )
    with png_file(wanted.path("instances", name), *found.shape, bits=16) as png:
        png.write(found)
    return {**cells, "objects": len(objects)}, objects


class _Picture:
    """The files of one image, filled from the top with the parts of its prediction.

    Attributes:
        counts: (K,) pixels of each class so far.
        mask, sure: (H, W) the mask, and the probability of its classes, if objects are wanted.
    """

    def __init__(
        self, image: Array, name: Path, wanted: _Wanted, bits: int | None, files: ExitStack
    ) -> None:
        size = image.shape[1:]
        self._image, self._bits, self._classes = image, bits, len(wanted.classes)
        self._png = files.enter_context(png_file(wanted.path("masks", name), *size))
        self._overlay = None
        if wanted.overlays:
            place = wanted.path("overlays", name)
            self._overlay = files.enter_context(png_file(place, *size, channels=3))
        # Rows of the overlay that are finished, and the last rows of the mask so far.
        self._drawn, self._last = 0, np.empty((0, size[1]), np.uint8)
        self._maps = [
            files.enter_context(png_file(wanted.path("probabilities", name, i), *size, bits=16))
            for i in range(self._classes if wanted.probabilities else 0)
        ]
        self.counts = np.zeros(self._classes, np.int64)
        self.mask = np.empty(size, np.uint8) if wanted.instances else None
        self.sure = np.empty(size, np.float16) if wanted.instances else None

    def add(self, rows: slice, columns: slice, part: Array) -> None:
        if len(part) != self._classes:
            raise ValueError(
                f"the network returns {len(part)} classes: must be {self._classes}, one per name"
            )
        mask = part.argmax(0).astype(np.uint8)
        self.counts += np.bincount(mask.ravel(), minlength=self._classes)
        if columns.start == 0:
            shape = rows.stop - rows.start, self._image.shape[2]
            self._rows = np.empty(shape, np.uint8)
            self._levels = np.empty((len(self._maps), *shape), np.uint16)
        self._rows[:, columns] = mask
        if self._maps:
            self._levels[..., columns] = np.rint(part * 65_535)
        if self.mask is not None and self.sure is not None:
            self.mask[rows, columns], self.sure[rows, columns] = mask, part.max(0)
        if columns.stop == self._image.shape[2]:
            self._write(rows)
            # Before those of the next tiles are made: both would be in memory.
            del self._rows, self._levels

    def _write(self, rows: slice) -> None:
        step = max(1, _STRIP // self._image.shape[2])
        for start in range(0, len(self._rows), step):
            some = slice(start, start + step)
            mask = self._rows[some]
            self._png.write(mask)
            for png, levels in zip(self._maps, self._levels):
                png.write(levels[some])
            if self._overlay is not None:
                self._draw(self._overlay, rows.start + start, mask)

    def _draw(self, overlay: PngRows, first: int, mask: Array) -> None:
        """Append to the overlay; a row waits for the next one, whose classes decide on its boundaries."""
        first -= len(self._last)
        mask = np.concatenate([self._last, mask])
        end = first + len(mask)
        shown = overlay_mask(unit_floats(self._image[:, first:end], self._bits), mask)
        done = end if end == self._image.shape[1] else end - 1
        overlay.write(shown[self._drawn - first : done - first])
        self._drawn, self._last = done, mask[-2:]


class _OnDisk:
    """An array (C, H, W) in a file, of which nothing stays in memory.

    Whole rows are assigned; rectangles are read. The file is not mapped: the system maps pages around those
    that are used, which grow with the image.
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any, file: Any) -> None:
        self.shape, self.ndim, self.dtype, self._file = shape, len(shape), np.dtype(dtype), file

    def __setitem__(self, place: tuple[slice, slice], rows: Array) -> None:
        for channel, part in enumerate(rows):
            self._seek(channel, place[1].start, 0)
            self._file.write(np.ascontiguousarray(part))

    def __getitem__(self, place: tuple[slice, ...]) -> Array:
        channels, height, width = (
            range(size)[part] for size, part in zip(self.shape, (*place, slice(None)))
        )
        part = np.empty((len(channels), len(height), len(width)), self.dtype)
        for lines, channel in zip(part, channels):
            for line, row in zip(lines, height):
                self._seek(channel, row, width.start)
                self._file.readinto(line)
        return part

    def _seek(self, channel: int, row: int, column: int) -> None:
        before = (channel * self.shape[1] + row) * self.shape[2] + column
        self._file.seek(before * self.dtype.itemsize)


class _Tiles:
    """The network on images of any size; how far it sees is measured when the first large one comes."""

    def __init__(
        self,
        forward: Forward,
        channels: int,
        bits: int | None,
        tile: int,
        margin: int | None,
        progress: Callable[[str], object],
    ) -> None:
        self._forward, self._channels, self.bits = forward, channels, bits
        self.tile, self._margin, self._progress = tile, margin, progress

    def parts(self, image: Array, name: Path) -> Iterator[tuple[slice, slice, Array]]:
        size = image.shape[1], image.shape[2]
        how = {"tile": self.tile, "margin": self._margin or 0}
        if max(size) > self.tile and self._margin is None:
            how["margin"] = self._margin = self._measured()
        total = count_tiles(size, **how)
        parts = iter_tiles(lambda tile: self._forward(unit_floats(tile, self.bits)), image, **how)
        for number, part in enumerate(parts, start=1):
            yield part
            if total > 1:
                self._progress(f"{name}: tile {number} of {total}")

    def _measured(self) -> int:
        self._progress("measuring the receptive field of the network")
        room = (self.tile - BLEND - 3 * STRIDE) // 2 // STRIDE * STRIDE
        found = receptive_field(self._forward, self._channels, most=room)
        if found is None:
            warnings.warn(
                f"the receptive field of the network is larger than {room} pixels, so results of tiles of "
                f"{self.tile} pixels may differ slightly from those of the whole image: use a larger tile "
                "(command line: --tile)",
                stacklevel=2,
            )
        return room if found is None else found


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
