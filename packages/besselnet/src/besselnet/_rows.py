"""Write rows of a table as CSV, JSON lines or Parquet, for `predict`."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from besselnet._pixels import needed
from besselnet.atomic import atomic_file
from besselnet.untrusted import csv_cell

Row = Mapping[str, Any]
Write = Callable[[Iterable[Row]], None]

FORMATS = ("csv", "jsonl", "parquet")
# Rows that a Parquet file holds together; until then they are in memory.
_GROUP = 4096


def text_writer(file: TextIO, columns: Iterable[str], form: str, *, raw: bool = False) -> Write:
    """A function that appends rows as "csv", whose head is written at once, or "jsonl".

    `raw`: in CSV, leave text as it is that a spreadsheet would take for a formula.
    """
    if form == "jsonl":

        def write_lines(rows: Iterable[Row]) -> None:
            for row in rows:
                print(json.dumps(row, allow_nan=False), file=file)

        return write_lines
    names = list(columns)
    writer = csv.writer(file, lineterminator="\n")

    def write_cells(rows: Iterable[Iterable[Any]]) -> None:
        for cells in rows:
            writer.writerow(csv_cell(c) if isinstance(c, str) and not raw else c for c in cells)

    write_cells([names])
    return lambda rows: write_cells([row[name] for name in names] for row in rows)


@contextmanager
def row_file(
    path: Path, columns: Mapping[str, type], form: str, *, raw: bool = False
) -> Iterator[Write]:
    """A function that appends rows to a file, which appears when the block ends.

    `columns`: the type of each, for Parquet: str, float, int or bool; any may be None in a row.
    """
    with atomic_file(path) as file:
        if form == "parquet":
            with _parquet_writer(file, columns) as write:
                yield write
            return
        # Names of files need not be UTF-8, rows are.
        text = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="")
        yield text_writer(text, columns, form, raw=raw)
        text.detach()


@contextmanager
def _parquet_writer(file: Any, columns: Mapping[str, type]) -> Iterator[Write]:
    check_parquet()
    import pyarrow
    from pyarrow import parquet

    kinds = {float: pyarrow.float64(), int: pyarrow.int64(), bool: pyarrow.bool_()}
    schema = pyarrow.schema(
        [(name, kinds.get(kind, pyarrow.string())) for name, kind in columns.items()]
    )
    waiting: list[Row] = []
    with parquet.ParquetWriter(file, schema) as writer:

        def flush() -> None:
            if waiting:
                rows = {n: [_cell(row[n], kind) for row in waiting] for n, kind in columns.items()}
                writer.write_table(pyarrow.Table.from_pydict(rows, schema=schema))
                waiting.clear()

        def write(rows: Iterable[Row]) -> None:
            for row in rows:
                waiting.append(row)
                if len(waiting) == _GROUP:
                    flush()

        yield write
        flush()


def check_parquet() -> None:
    """Say what to install where pyarrow is missing."""
    needed("pyarrow", "writing Parquet", "parquet")


def _cell(value: Any, kind: type) -> Any:
    if value is None or kind in (float, int, bool):
        return value
    return str(value).encode("utf-8", "backslashreplace").decode()
