"""Two pictures of a whole study: accuracy against training images and training time, for every data set."""

from collections.abc import Callable, Sequence
from itertools import chain

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from besselnet.drawing import line_style, new_figure, plain_text
from besselnet_lab.report.collect import ColumnKey, Entry, RowKey, Table

__all__ = ["draw_overview"]

_PANELS_IN_A_ROW = 3
# With several runs each, of a data set that was trained on one number of images only.
_FEWEST_METHODS = 3
# Methods stand beside each other at the same number of images: each this much further right.
_STEP = 1.04


def draw_overview(tables: Sequence[Table]) -> dict[str, Figure]:
    """Pictures by their titles; none where there is nothing to compare.

    A panel for each data set that was trained on several numbers of images, or by several methods: a line for
    each method, from few training images to many; bars are one standard deviation of the runs. The paper's
    tables have figures of their own.
    """
    panels = {}
    for table in tables:
        if table.is_paper:
            continue
        for key, columns in table.by_size().items():
            lines = [
                [e for c in columns if (e := table.entries.get((row, c))) and e.ours]
                for row in table.rows
            ]
            repeated = [e for line in lines for e in line if e.ours and e.ours.std is not None]
            if len(columns) > 1 or len(repeated) >= _FEWEST_METHODS:
                panels[_title(key)] = lines
    if not panels:
        return {}
    return {
        "accuracy against training images": _draw(
            panels, "training images", lambda entry: float(entry.train_images or 0)
        ),
        "accuracy against training time": _draw(
            panels, "training, minutes", lambda entry: (entry.seconds or 0.0) / 60
        ),
    }


def _title(key: ColumnKey) -> str:
    tested = {"upright": ", upright; tested rotated", "noaug": ", not augmented"}
    return key.data_set + tested.get(key.augmentation, "")


def _draw(
    panels: dict[str, list[list[Entry]]], label: str, value: Callable[[Entry], float]
) -> Figure:
    lines = [line for lines in panels.values() for line in lines if line]
    rows = list(dict.fromkeys(line[0].row for line in lines))
    # The legend takes a panel of its own where one is left over.
    height = -(-(len(panels) + 1) // _PANELS_IN_A_ROW)
    figure = new_figure(2.5 * height)
    grid = figure.subplots(height, _PANELS_IN_A_ROW, squeeze=False).ravel()
    for axes, (title, methods) in zip(grid, panels.items()):
        for line in filter(None, methods):
            number = rows.index(line[0].row)
            step = _STEP ** (number - (len(rows) - 1) / 2) if label == "training images" else 1.0
            _plot(axes, [value(entry) * step for entry in line], line, number)
        axes.set_title(plain_text(title, 60), fontsize="small")
        axes.set_xscale("log")
        _label_ticks(axes, [value(entry) for entry in chain(*methods)], label)
        axes.tick_params(labelsize="small")
        axes.grid(alpha=0.3)
    for axes in grid[: len(panels) : _PANELS_IN_A_ROW]:
        axes.set_ylabel("accuracy, %", fontsize="small")
    for axes in grid[max(0, len(panels) - _PANELS_IN_A_ROW) : len(panels)]:
        axes.set_xlabel(label, fontsize="small")
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    _add_legend(grid[len(panels)], rows)
    return figure


def _plot(axes: Axes, places: Sequence[float], line: Sequence[Entry], number: int) -> None:
    scores = [entry.ours for entry in line if entry.ours is not None]
    axes.errorbar(
        places,
        [score.mean for score in scores],
        yerr=[score.std or 0.0 for score in scores],
        capsize=2,
        markersize=4,
        linewidth=1.4,
        **line_style(number)._asdict(),
    )


def _label_ticks(axes: Axes, values: Sequence[float], label: str) -> None:
    """Numbers of images as they are; times at 1 and 3 of each power of ten."""
    if label == "training images":
        axes.xaxis.set_major_locator(FixedLocator(sorted(set(values))))
    else:
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,g}"))
    axes.xaxis.set_minor_locator(NullLocator())


def _add_legend(axes: Axes, rows: Sequence[RowKey]) -> None:
    for number, row in enumerate(rows):
        axes.plot([], [], label=plain_text(row.title), **line_style(number)._asdict())
    axes.legend(loc="center left", fontsize="small", frameon=False)
