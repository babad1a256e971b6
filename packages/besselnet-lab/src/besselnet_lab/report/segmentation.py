"""Results with masks: how good they are and how they rotate with the image, a table for each column."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from besselnet.drawing import line_style, new_figure, plain_text
from besselnet.train import in_words
from besselnet_lab.report.collect import (
    MISSING,
    ColumnKey,
    RowKey,
    Score,
    by_place,
    undisturbed_seconds,
)
from besselnet_lab.report.summaries import Line, TextTable

__all__ = ["MaskEntry", "collect_masks", "draw_masks", "has_masks", "mask_tables"]

# The columns of the tables, and where a result has them. What no run of a table has is left out.
_OVERLAP = ("F1", "mean Dice")
_PLACES: dict[str, tuple[str, ...]] = {
    "F1": ("scores", "f1"),
    "mean Dice": ("scores", "dice"),
    "boundary F1": ("scores", "boundary_f1"),
    "instance F1": ("scores", "instances", "f1"),
    "panoptic quality": ("scores", "instances", "panoptic_quality"),
    "agreement": ("rotation", "black_corners"),
    "agreement, reflected borders": ("rotation", "reflected_borders"),
    "agreement without background": ("rotation", "foreground", "black_corners"),
}
_CHANGED = ("rotation", "quarter_turns_changed")
_PANELS_IN_A_ROW = 3
# Points that an axis of scores spans at least.
_NARROWEST = 4.0


@dataclass(frozen=True)
class MaskEntry:
    """A row of a table of masks.

    Attributes:
        scores: in per cent, by the heads of the tables; those that every run has.
        changed: the largest share of pixels that a quarter turn changes, None where it was not measured.
        seconds: of a training, see `undisturbed_seconds`.
        runs: how many.
    """

    column: ColumnKey
    row: RowKey
    scores: Mapping[str, Score]
    changed: float | None
    seconds: float
    parameters: int
    train_images: int
    runs: int
    notes: tuple[str, ...]

    @property
    def overlap(self) -> Score | None:
        """F1 where there are two classes, else the mean Dice."""
        found = [self.scores[head] for head in _OVERLAP if head in self.scores]
        return found[0] if found else None


def has_masks(result: Mapping[str, Any]) -> bool:
    """Whether a result is one of masks."""
    return "scores" in result


def collect_masks(results: Iterable[Mapping[str, Any]]) -> list[MaskEntry]:
    """The results with masks, put together over the seeds."""
    return [_entry(row, column, runs) for (row, column), runs in by_place(results).items()]


def mask_tables(entries: Sequence[MaskEntry]) -> dict[ColumnKey, TextTable]:
    """A table for each column, the best first."""
    columns = dict.fromkeys(entry.column for entry in entries)
    return {column: _table(column, _best_first(entries, column)) for column in columns}


def draw_masks(entries: Sequence[MaskEntry]) -> dict[str, Figure]:
    """Pictures by their titles: Dice of each method, a panel for each column; none without entries."""
    columns = list(dict.fromkeys(entry.column for entry in entries))
    rows = list(dict.fromkeys(entry.row for entry in entries))
    if not entries:
        return {}
    height = -(-len(columns) // _PANELS_IN_A_ROW)
    width = min(len(columns), _PANELS_IN_A_ROW)
    figure = new_figure((1.1 + 0.3 * len(rows)) * height)
    grid = figure.subplots(height, width, sharey=True, squeeze=False).ravel()
    for axes, column in zip(grid, columns):
        _draw_column(axes, column, [e for e in entries if e.column == column], rows)
    for axes in grid[len(columns) :]:
        axes.set_axis_off()
    return {"Dice by method": figure}


def _entry(row: RowKey, column: ColumnKey, runs: Sequence[Mapping[str, Any]]) -> MaskEntry:
    scores = {}
    for head, place in _PLACES.items():
        found = [_number(run, place) for run in runs]
        shares = [100 * share for share in found if share is not None]
        if len(shares) == len(runs):
            std = statistics.stdev(shares) if len(runs) > 1 else None
            scores[head] = Score(statistics.fmean(shares), std, len(runs))
    if "F1" in scores:
        # The background is most of an image: the mean would say less.
        scores.pop("mean Dice", None)
    changed = [_number(run, _CHANGED) for run in runs]
    known = [share for share in changed if share is not None]
    return MaskEntry(
        column,
        row,
        scores,
        changed=max(known) if len(known) == len(runs) else None,
        seconds=min(undisturbed_seconds(run["curve"]["seconds"]) for run in runs),
        parameters=runs[0]["model"]["parameters"],
        train_images=runs[0]["train_images"],
        runs=len(runs),
        notes=tuple(dict.fromkeys(note for run in runs for note in run["notes"])),
    )


def _number(run: Mapping[str, Any], place: Sequence[str]) -> float | None:
    found: Any = run
    for name in place:
        found = found.get(name, {})
    return found if isinstance(found, int | float) else None


def _best_first(entries: Sequence[MaskEntry], column: ColumnKey) -> list[MaskEntry]:
    own = [entry for entry in entries if entry.column == column]
    return sorted(own, key=lambda entry: -entry.overlap.mean if entry.overlap else 0.0)


def _table(column: ColumnKey, entries: Sequence[MaskEntry]) -> TextTable:
    heads = [head for head in _PLACES if any(head in entry.scores for entry in entries)]
    images = dict.fromkeys(entry.train_images for entry in entries)
    judged = "validation" if column.judge == "val" else "test"
    return TextTable(
        f"{column.data_set} {column.augmentation} {column.regime}, protocol {column.protocol}",
        f"{' or '.join(f'{count:,}' for count in images)} training images, evaluated on {judged} images.",
        ("method", "runs", *heads, "quarter turns", "training", "parameters"),
        [_line(entry, heads) for entry in entries],
    )


def _line(entry: MaskEntry, heads: Sequence[str]) -> Line:
    turns = MISSING
    if entry.changed is not None:
        turns = f"{100 * entry.changed:.2g}% change" if entry.changed else "identical"
    cells = [
        entry.row.title,
        str(entry.runs),
        *(str(entry.scores.get(head, MISSING)) for head in heads),
        turns,
        in_words(entry.seconds),
        f"{entry.parameters:,}",
    ]
    return Line(cells, entry.column, entry.row)


def _draw_column(
    axes: Axes, column: ColumnKey, entries: Sequence[MaskEntry], rows: Sequence[RowKey]
) -> None:
    """The methods from the top, a mark for each; bars are one standard deviation of the runs."""
    for entry in entries:
        if entry.overlap is not None:
            number = rows.index(entry.row)
            style = line_style(number)
            axes.errorbar(
                entry.overlap.mean,
                number,
                xerr=entry.overlap.std,
                fmt=style.marker,
                color=style.color,
                capsize=3,
            )
    # Near values must not look far apart.
    low, high = axes.get_xlim()
    margin = max(0.0, _NARROWEST - (high - low)) / 2
    axes.set_xlim(low - margin, high + margin)
    axes.set_yticks(range(len(rows)), [plain_text(row.title) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_title(plain_text(column.full_title, 60), fontsize="small")
    heads = [head for head in _OVERLAP if any(head in entry.scores for entry in entries)]
    axes.set_xlabel(f"{' or '.join(heads) or 'Dice'}, %", fontsize="small")
    axes.tick_params(labelsize="small")
    axes.grid(alpha=0.3)
