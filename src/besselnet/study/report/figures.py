"""The figures of a report, as SVG: learning curves, accuracy against size, time and operations."""

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

from besselnet.study.reference import training_images
from besselnet.study.report.collect import ColumnKey, Entry, RowKey, Table

__all__ = ["Drawing", "Figures", "draw_figures"]

# One hue for a family of methods, as dark as the method is late in the family.
_HUES = {
    "vanilla": "Greys",
    "ResNet-18": "Greys",
    "E(2)-CNN": "Blues",
    "HNet": "Greens",
    "B-CNN": "Oranges",
}
_OWN_HUE = "RdPu"


@dataclass(frozen=True)
class Drawing:
    """A figure: its heading, what it shows, and the SVG."""

    section: str
    title: str
    file: str
    svg: str
    data_set: str
    augmentation: str
    regime: str = ""


@dataclass
class Figures:
    """All figures of a report."""

    drawings: list[Drawing] = field(default_factory=list)

    def sections(self) -> dict[str, list[tuple[str, str]]]:
        """(title, file) of the figures under each heading."""
        found: dict[str, list[tuple[str, str]]] = {heading: [] for heading in SECTIONS}
        for drawing in self.drawings:
            found[drawing.section].append((drawing.title, drawing.file))
        return found


CURVES, SIZES, COSTS = (
    "Learning curves",
    "Accuracy against the number of training images",
    "Accuracy against time and operations",
)
SECTIONS = (CURVES, SIZES, COSTS)


def draw_figures(tables: Sequence[Table]) -> Figures:
    """Every figure for which there are results; sizes also from the paper alone."""
    figures = Figures()
    for table in tables:
        colours = _colours(table.rows)
        for column in table.columns:
            ran = [entry for entry in table.column(column) if entry.ours is not None]
            if ran:
                figures.drawings.append(_drawing(CURVES, column, _draw_curves(ran, colours)))
                figures.drawings.append(_drawing(COSTS, column, _draw_costs(ran, colours)))
        for data_set, augmentation in dict.fromkeys(c[:2] for c in table.columns):
            entries = [
                e
                for e in table.entries.values()
                if e.column[:2] == (data_set, augmentation) and e.column[3:] == ("paper", "test")
            ]
            drawn = _draw_sizes(entries, colours)
            if drawn is not None:
                key = ColumnKey(data_set, augmentation, "")
                figures.drawings.append(_drawing(SIZES, key, drawn))
    return figures


def _drawing(section: str, column: ColumnKey, figure: Figure) -> Drawing:
    title = column.full_title.strip()
    file = re.sub(r"[^a-z0-9]+", "-", f"{section} {title}".lower()).strip("-") + ".svg"
    return Drawing(
        section, title, file, _svg(figure), column.data_set, column.augmentation, column.regime
    )


def _draw_curves(entries: Sequence[Entry], colours: dict[RowKey, Any]) -> Figure:
    """Training loss and accuracy (validation too, where there is one) against the epoch."""
    shown = [
        name
        for name in ("train_accuracy", "val_accuracy", "train_loss", "val_loss")
        if any(name in curve for entry in entries for curve in entry.curves)
    ]
    figure = Figure(figsize=(4.5 * len(shown), 3.6), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown):
        for entry in entries:
            # A thin line for each run; one of them stands for the method in the legend.
            for i, curve in enumerate(c for c in entry.curves if name in c):
                scale = 100 if "accuracy" in name else 1
                axes.plot(
                    curve["epoch"],
                    [scale * value for value in curve[name]],
                    color=colours[entry.row],
                    linewidth=1.0 if entry.paper else 2.0,
                    label=entry.row.title if i == 0 else None,
                )
        axes.set(xlabel="epoch", title=name.replace("_", " ").replace("train", "training"))
        axes.grid(alpha=0.3)
        if "loss" in name:
            axes.set_yscale("log")
    return _with_legend(figure)


def _draw_costs(entries: Sequence[Entry], colours: dict[RowKey, Any]) -> Figure:
    """Accuracy against the time of the training and against multiply-adds for an image."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, quantity, label in (
        (left, "seconds", "training, seconds"),
        (right, "multiply_adds", "multiply-adds for an image"),
    ):
        for entry in entries:
            if entry.ours is not None:
                axes.errorbar(
                    getattr(entry, quantity),
                    entry.ours.mean,
                    yerr=entry.ours.std,
                    fmt="o",
                    capsize=3,
                    color=colours[entry.row],
                    label=entry.row.title,
                )
        axes.set(xlabel=label, xscale="log")
        axes.grid(alpha=0.3, which="both")
    left.set_ylabel("accuracy, %")
    return _with_legend(figure)


def _draw_sizes(entries: Sequence[Entry], colours: dict[RowKey, Any]) -> Figure | None:
    """Accuracy against the number of training images: ours solid, the paper's dashed."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    drawn = False
    for row in dict.fromkeys(entry.row for entry in entries):
        own = [entry for entry in entries if entry.row == row]
        paper = sorted(
            (training_images()[e.column.data_set, e.column.regime], e.paper.mean)
            for e in own
            if e.paper is not None
        )
        ours = sorted((e.train_images or 0, e.ours.mean) for e in own if e.ours is not None)
        for points, style, width in ((paper, ":", 1.0), (ours, "o-", 1.6)):
            if points:
                axes.plot(*zip(*points), style, color=colours[row], linewidth=width)
                drawn = True
        if paper or ours:
            axes.plot([], [], color=colours[row], label=row.title)
    if not drawn:
        return None
    axes.set(
        xlabel="training images (solid: here, dotted: the paper)",
        ylabel="accuracy, %",
        xscale="log",
    )
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.grid(alpha=0.3)
    return _with_legend(figure)


def _with_legend(figure: Figure) -> Figure:
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", fontsize="small", frameon=False)
    return figure


def _colours(rows: Sequence[RowKey]) -> dict[RowKey, Any]:
    families: dict[str, list[RowKey]] = {}
    for row in rows:
        families.setdefault(_HUES.get(row.family, _OWN_HUE), []).append(row)
    return {
        row: matplotlib.colormaps[hue](0.45 + 0.5 * (i + 1) / len(members))
        for hue, members in families.items()
        for i, row in enumerate(members)
    }


def _svg(figure: Figure) -> str:
    """The figure as an <svg> element, the same for the same figure."""
    text = io.StringIO()
    # Letters stay letters. Elements are named by a hash of what they are: in one page, those of the
    # same name are the same.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "besselnet"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    return svg[svg.index("<svg") :]
