"""Accuracy against the number of training images, with time and rotation: a table for each data set."""

from collections.abc import Sequence

from besselnet.train import in_words
from besselnet_lab.report.collect import MISSING, ROTATIONS, ColumnKey, Entry, RowKey, Table
from besselnet_lab.report.summaries import Line, TextTable

__all__ = ["by_size"]


def by_size(table: Table) -> dict[ColumnKey, TextTable]:
    """A table for each data set that was trained on several numbers of images, by what columns share."""
    return {key: _by_size(table, key, columns) for key, columns in table.growing().items()}


def _by_size(table: Table, key: ColumnKey, columns: Sequence[ColumnKey]) -> TextTable:
    rows = {row: [table.entries.get((row, column)) for column in columns] for row in table.rows}
    ran = {row: entries for row, entries in rows.items() if any(e and e.ours for e in entries)}
    lines = [_line(key, row, ran[row]) for row in sorted(ran, key=lambda row: _place(ran[row]))]
    heads = [(f"{table.train_images(column):,} images", "training") for column in columns]
    return TextTable(
        f"{key.full_title.strip()}, by the number of training images",
        "Accuracy in per cent, mean ± sample standard deviation over the runs, and the time of one "
        "training. The best method with the fewest images comes first. The last columns show the share of "
        "rotated images that get the answer of the original image, in per cent. They are means over 30, 60, "
        "..., 330 degrees and over quarter turns, for the number of training images where they are lowest.",
        ("method", *(text for head in heads for text in head), *ROTATIONS.values()),
        lines,
    )


def _line(key: ColumnKey, row: RowKey, entries: Sequence[Entry | None]) -> Line:
    cells = [row.title]
    for entry in entries:
        if entry is None or entry.ours is None:
            cells += [MISSING, MISSING]
        else:
            cells += [str(entry.ours), in_words(entry.seconds or 0.0)]
    measured = [entry.rotation for entry in entries if entry is not None and entry.rotation]
    for name in ROTATIONS:
        worst = min((rotation[name] for rotation in measured), default=None)
        cells.append(MISSING if worst is None else f"{worst:.1f}")
    return Line(cells, key, row)


def _place(entries: Sequence[Entry | None]) -> tuple[float, ...]:
    """What to sort by: accuracy with the fewest images, then with more."""
    scores = (entry.ours.mean if entry and entry.ours else 0.0 for entry in entries)
    return tuple(-score for score in scores)
