"""Tables of images: a CSV file with a column `file` and columns of labels."""

import csv
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from besselnet._pixels import option_hint
from besselnet.checks import check_choice
from besselnet.data._imageset import Task
from besselnet.data._legend import NAMES
from besselnet.data._parts import PART_NAMES
from besselnet.untrusted import check_file, reading

FILE_COLUMNS = ("file", "filename", "image", "path")
# Recognised in any letter case.
_KNOWN = (*FILE_COLUMNS, "split", "group")
TABLE_TASKS = ("classify", "regress", "multilabel")
# Columns with these names hold classes, also where those are numbers.
_CLASS_COLUMNS = ("label", "labels", "class", "classes")
_SEPARATOR = ";"
_MOST_BYTES = 64_000_000
_MOST_CLASSES = 9_999
# That many different whole numbers or fewer may be classes.
_FEW = 10
_WHOLE = re.compile(r"[+-]?\d+")


@dataclass(frozen=True)
class Table:
    """The rows of a table: files, labels as in `ImageSet`, and other columns.

    `parts` are "train", "val" or "test" for each file, or None if the table has no splits.
    """

    files: list[Path]
    labels: Tensor
    classes: tuple[str, ...]
    parts: list[str] | None
    groups: Tensor | None


@dataclass(frozen=True)
class _Rows:
    """The cells of the table's label columns, with the number of each row's line."""

    columns: tuple[str, ...]
    cells: list[list[str]]
    lines: list[int]


def table_in(folder: Path) -> Path | None:
    """The one CSV file of a folder that has no directories for classes, or None."""
    entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    tables = [e for e in entries if e.suffix.lower() == ".csv" and e.name not in NAMES]
    several = sum(entry.is_dir() for entry in entries) > 1
    return tables[0] if len(tables) == 1 and not several and tables[0].is_file() else None


def read_table(path: Path, task: str | None = None) -> Table:
    """The table in a CSV file; its files are there, and each is named once.

    The first line names the columns. `file` is relative to the folder of the table; `split` (train, val,
    test) and `group` may be there. All others are labels:

    | columns | task |
    |---|---|
    | one or more of numbers | `"regress"`: their names are those of the values |
    | one of names, or called `label` or `class` | `"classify"` |
    | the same with `;` between names | `"multilabel"` |
    | several of 0 and 1, with `task="multilabel"` | `"multilabel"`: their names are the classes |

    `task` decides where a table can be read in more than one way.
    """
    if task is not None:
        check_choice("task", task, TABLE_TASKS)
    check_file(path, _MOST_BYTES)
    with reading(path):
        header, rows, lines = _read(path)
        file_column = _file_column(header)
        special = {name: header.index(name) for name in ("split", "group") if name in header}
        chosen = [i for i in range(len(header)) if i not in (file_column, *special.values())]
        if not chosen:
            raise ValueError("line 1: must have a column of labels or values besides 'file'")
        cells = _Rows(
            tuple(header[i] for i in chosen), [[row[i] for i in chosen] for row in rows], lines
        )
        files = _files(path.parent, [row[file_column] for row in rows], lines)
        labels, classes = _LABELS[task or _task(cells)](cells)
        parts = groups = None
        if "split" in special:
            parts = _parts([row[special["split"]] for row in rows], lines)
        if "group" in special:
            names = [row[special["group"]] for row in rows]
            numbers = np.unique(names, return_inverse=True)[1]
            groups = torch.from_numpy(numbers.astype(np.int64))
    return Table(files, labels, classes, parts, groups)


def _read(path: Path) -> tuple[list[str], list[list[str]], list[int]]:
    """Names of the columns, the cells of each further row, and the number of its line."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file)
        header: list[str] = []
        rows, lines = [], []
        for row in reader:
            cells = [cell.strip() for cell in row]
            if not any(cells):
                continue
            if not header:
                header = [name.lower() if name.lower() in _KNOWN else name for name in cells]
                # Before the rows: with another separator they do not fit either.
                _file_column(header)
                continue
            if len(cells) != len(header):
                raise ValueError(
                    f"line {reader.line_num}: has {len(cells)} columns, but the first line has {len(header)}"
                )
            rows.append(cells)
            lines.append(reader.line_num)
    if not rows:
        raise ValueError("must have a header line with column names, and one line per image")
    twice = [name for name in header if header.count(name) > 1 or not name]
    if twice:
        raise ValueError(f"line 1: column names must be unique, got {twice[0]!r} twice")
    return header, rows, lines


def _file_column(header: Sequence[str]) -> int:
    for name in FILE_COLUMNS:
        if name in header:
            return header.index(name)
    raise ValueError(
        f"line 1: must have column names, separated by commas, including 'file'; got {header[:8]}"
    )


def _files(folder: Path, names: Sequence[str], lines: Sequence[int]) -> list[Path]:
    seen: dict[Path, int] = {}
    for name, line in zip(names, lines):
        path = folder / name
        # Not the methods of `path`, which raise for names that no file can have.
        if not os.path.exists(path) or os.path.isdir(path):
            raise ValueError(f"line {line}: no file {name[:80]!r} in {folder}")
        if path in seen:
            raise ValueError(f"line {line}: {name!r} is also in line {seen[path]}")
        seen[path] = line
    return list(seen)


def _task(rows: _Rows) -> Task:
    """What the labels are, where the table alone tells."""
    cells = [cell for row in rows.cells for cell in row]
    if len(rows.columns) > 1:
        if set(cells) <= {"0", "1"}:
            raise _doubt("the columns have only 0 and 1", "multilabel", "regress")
        return "regress"
    name = rows.columns[0]
    if any(_SEPARATOR in cell for cell in cells):
        return "multilabel"
    numbers = sum(map(_is_number, cells))
    if name.lower() in _CLASS_COLUMNS or 2 * numbers < len(cells):
        return "classify"
    if len(set(cells)) <= _FEW and all(map(_WHOLE.fullmatch, cells)):
        raise _doubt(f"column {name!r} has few different integers", "classify", "regress")
    return "regress"


def _doubt(what: str, task: str, other: str) -> ValueError:
    return ValueError(f"{what}: {option_hint('task', task)}, or {other}")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _classes_of(rows: _Rows) -> tuple[Tensor, tuple[str, ...]]:
    cells = _only_column(rows)
    for cell, line in zip(cells, rows.lines):
        if not cell:
            raise ValueError(f"line {line}: has no label in column {rows.columns[0]!r}")
    classes = _ordered(set(cells))
    if len(classes) == 1:
        raise ValueError(f"has only one class ({classes[0]}); must have at least two")
    place = {name: number for number, name in enumerate(classes)}
    return torch.tensor([place[cell] for cell in cells]), classes


def _values_of(rows: _Rows) -> tuple[Tensor, tuple[str, ...]]:
    values = np.empty((len(rows.cells), len(rows.columns)))
    for row, (cells, line) in enumerate(zip(rows.cells, rows.lines)):
        for column, (cell, name) in enumerate(zip(cells, rows.columns)):
            number = float(cell) if _is_number(cell) else np.nan
            # Also too large a number: the values are float32.
            if not abs(number) <= np.finfo(np.float32).max:
                hint = option_hint("task", "classify")
                raise ValueError(
                    f"line {line}: {cell[:40]!r} in column {name!r} is not a finite number. For names, {hint}"
                )
            values[row, column] = number
    return torch.from_numpy(values.astype(np.float32)), rows.columns


def _several_of(rows: _Rows) -> tuple[Tensor, tuple[str, ...]]:
    if len(rows.columns) > 1:
        return _indicators(rows)
    named = [
        {part.strip() for part in cell.split(_SEPARATOR)} - {""} for cell in _only_column(rows)
    ]
    classes = _ordered(set().union(*named))
    place = {name: number for number, name in enumerate(classes)}
    labels = torch.zeros(len(named), len(classes), dtype=torch.bool)
    for row, names in enumerate(named):
        labels[row, [place[name] for name in names]] = True
    return labels, classes


def _indicators(rows: _Rows) -> tuple[Tensor, tuple[str, ...]]:
    """A column for each label, 1 where an image has it."""
    for cells, line in zip(rows.cells, rows.lines):
        for cell, name in zip(cells, rows.columns):
            if cell not in ("0", "1"):
                raise ValueError(f"line {line}: {cell[:40]!r} in column {name!r} must be 0 or 1")
    return torch.tensor([[cell == "1" for cell in cells] for cells in rows.cells]), rows.columns


def _only_column(rows: _Rows) -> list[str]:
    if len(rows.columns) > 1:
        raise ValueError(f"line 1: must have one column of labels, got {rows.columns[:8]}")
    return [cells[0] for cells in rows.cells]


def _ordered(names: set[str]) -> tuple[str, ...]:
    """Numbers by their size, other names by their letters."""
    if not names:
        raise ValueError("has no labels")
    if len(names) > _MOST_CLASSES:
        raise ValueError(f"has {len(names)} different labels, must be at most {_MOST_CLASSES}")
    whole = all(_WHOLE.fullmatch(name) for name in names)
    return tuple(sorted(names, key=(lambda name: (int(name), name)) if whole else str))


def _parts(names: Sequence[str], lines: Sequence[int]) -> list[str]:
    part_of = {name: part for part, spelled in PART_NAMES.items() for name in spelled}
    for name, line in zip(names, lines):
        if name.lower() not in part_of:
            raise ValueError(f"line {line}: split {name[:40]!r} must be train, val or test")
    found = [part_of[name.lower()] for name in names]
    if "train" not in found:
        raise ValueError("column 'split' must have 'train' in at least one line")
    return found


_LABELS = {"classify": _classes_of, "regress": _values_of, "multilabel": _several_of}
