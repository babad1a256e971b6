"""Legends of masks: the class of each colour or number."""

import csv
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from besselnet._pixels import IGNORED, counted, needed
from besselnet.data._masks import UNLABELLED
from besselnet.untrusted import check_file, reading

NAMES = ("legend.csv", "legend.toml")
# The class of pixels that have no label.
IGNORE = "ignore"
_MOST_BYTES = 1_000_000
_HEX = re.compile(r"#[0-9a-fA-F]{6}")
_TRIPLE = re.compile(r"(\d{1,3})[ ,]+(\d{1,3})[ ,]+(\d{1,3})")


@dataclass(frozen=True)
class Legend:
    """Classes by colour (red * 65 536 + green * 256 + blue) or by number.

    `index` has a place in `classes`, or `UNLABELLED`, for each of them.
    """

    index: dict[int, int]
    classes: tuple[str, ...]
    colours: bool

    def apply(self, mask: np.ndarray) -> np.ndarray:
        """(H, W) int16 classes of a mask of numbers (H, W), or of colours (H, W, 3)."""
        packed = mask
        if self.colours:
            packed = mask.astype(np.int64) @ np.array([65536, 256, 1])
        values, places = np.unique(packed, return_inverse=True)
        unknown = [int(value) for value in values if int(value) not in self.index]
        if unknown:
            row, column = np.argwhere(packed == unknown[0])[0]
            others = f" and {counted(len(unknown) - 1, 'other')}" if len(unknown) > 1 else ""
            raise ValueError(
                f"has {self._shown(unknown[0])} in row {row}, column {column}{others}: not in the legend "
                f"({', '.join(map(self._shown, list(self.index)[:8]))}). Interpolation creates "
                "such values: resize masks by nearest-neighbour interpolation"
            )
        known = np.array([self.index[int(value)] for value in values], np.int16)
        return known[places].reshape(packed.shape)

    def _shown(self, value: int) -> str:
        return f"#{value:06x}" if self.colours else str(value)


def find_legend(folder: Path) -> Legend | None:
    """The `legend.csv` or `legend.toml` in a folder, or None."""
    found = [folder / name for name in NAMES if (folder / name).exists()]
    if len(found) > 1:
        raise ValueError(f"{folder}: has {' and '.join(NAMES)}: must have only one of them")
    return read_legend(found[0]) if found else None


def read_legend(path: Path) -> Legend:
    """A CSV with rows `colour, class` or `red, green, blue, class`, or a TOML file `"colour" = "class"`.

    A colour is `#rrggbb`, and may be the number of a class in its place.
    """
    check_file(path, _MOST_BYTES)
    with reading(path):
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix.lower() == ".toml":
            toml = needed("tomllib" if sys.version_info >= (3, 11) else "tomli", "TOML", "train")
            return make_legend(toml.loads(text))
        return _from_rows(_csv_rows(text))


def make_legend(entries: Mapping[str, object]) -> Legend:
    """A legend from class names by colour or number."""
    if not isinstance(entries, Mapping):
        raise ValueError(f"legend={entries!r}: must be class names by colour or number")
    return _from_rows((repr(key), str(key), name) for key, name in entries.items())


def _csv_rows(text: str) -> Iterable[tuple[str, str, object]]:
    """(place in the file, colour or number, class) of each row but a header."""
    rows = csv.reader(text.splitlines())
    for row in rows:
        cells = [cell.strip() for cell in row]
        if not any(cells) or (rows.line_num == 1 and cells[0][:1].isalpha()):
            continue
        if len(cells) not in (2, 4):
            raise ValueError(
                f"line {rows.line_num}: must be 'colour, class' or 'red, green, blue, class', got "
                f"{counted(len(cells), 'column')}"
            )
        yield f"line {rows.line_num}", ",".join(cells[:-1]), cells[-1]


def _from_rows(rows: Iterable[tuple[str, str, object]]) -> Legend:
    """From (place, colour or number, class); colours of one name are one class."""
    index: dict[int, int] = {}
    classes: list[str] = []
    kinds = set()
    for place, key, name in rows:
        value, colour = _parse(place, key.strip())
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"{place}: {name!r} must be the name of a class")
        if value in index:
            raise ValueError(f"{place}: {key.strip()!r} occurs twice")
        kinds.add(colour)
        name = name.strip()
        if name != IGNORE and name not in classes:
            classes.append(name)
        index[value] = UNLABELLED if name == IGNORE else classes.index(name)
        if len(classes) >= IGNORED:
            raise ValueError(f"{place}: must be at most {IGNORED - 1} classes")
    if not classes:
        raise ValueError("the legend has no class")
    if len(kinds) > 1:
        raise ValueError("the legend has colours and numbers: must have only one of them")
    return Legend(index, tuple(classes), colours=kinds.pop())


def _parse(place: str, key: str) -> tuple[int, bool]:
    """The number, and whether it is a colour."""
    if _HEX.fullmatch(key):
        return int(key[1:], 16), True
    triple = _TRIPLE.fullmatch(key)
    if triple and max(parts := [int(part) for part in triple.groups()]) <= 255:
        red, green, blue = parts
        return red * 65536 + green * 256 + blue, True
    if key.isascii() and key.isdecimal() and len(key) <= 5 and int(key) <= 65535:
        return int(key), False
    raise ValueError(f"{place}: {key!r} must be a colour (#rrggbb) or a number 0 to 65535")
