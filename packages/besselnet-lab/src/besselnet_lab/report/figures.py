"""The figures of a report, as SVG: learning curves, accuracy against size, time and operations."""

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from besselnet.drawing import plain_text, png_bytes, svg_bytes
from besselnet_lab.paper import training_images
from besselnet_lab.report.collect import ColumnKey, Entry, RowKey, Table
from besselnet_lab.report.columns import draw_columns
from besselnet_lab.report.overview import draw_overview
from besselnet_lab.report.robustness import RobustEntry, draw_robust_curves
from besselnet_lab.report.segmentation import MaskEntry, draw_masks

__all__ = ["EXPLANATIONS", "FIRST", "MASKS", "ROBUST", "Drawing", "Figures", "draw_figures"]

# One hue for a family of methods, as dark as the method is late in the family.
_HUES = {
    "vanilla": "Greys",
    "ResNet-18": "Greys",
    "E(2)-CNN": "Blues",
    "HNet": "Greens",
    "B-CNN": "Oranges",
}
_OWN_HUE = "RdPu"
# More methods than this in one hue cannot be told apart by it.
_MOST_IN_A_HUE = 5
# Letters in a legend.
_LONGEST = 80
_MARKERS = "osD^vPX*<>hp"


@dataclass(frozen=True)
class Drawing:
    """A figure: its heading, what it shows, the SVG, and the PNG of one that other pages may show."""

    section: str
    title: str
    file: str
    svg: str
    data_set: str
    augmentation: str
    regime: str = ""
    ran: bool = True
    png: bytes = b""


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


COLUMNS, OVERVIEW, MASKS, ROBUST, CURVES, SIZES, COSTS = (
    "The paper's columns",
    "All data sets",
    "Masks",
    "Robustness",
    "Learning curves",
    "Accuracy against the number of training images",
    "Accuracy against time and operations",
)
# The sections before the tables.
FIRST = (COLUMNS, OVERVIEW, MASKS, ROBUST)
SECTIONS = (*FIRST, CURVES, SIZES, COSTS)
EXPLANATIONS = {
    COLUMNS: "Accuracy on test images. Each line is a column of the paper's tables: besselnet's best network "
    "in this study, the best B-CNN of the paper, and the best of its 15 methods. Error bars are one standard "
    "deviation of the runs.",
    OVERVIEW: "Mean accuracy on test images against the number of training images and the training time. "
    "Error bars are one standard deviation of the runs.",
    MASKS: "F1 for two classes, otherwise mean Dice. Error bars are one standard deviation of the runs.",
    ROBUST: "Mean accuracy over the runs. Severity 0 and epsilon 0 are the original images. Under attack, no "
    "pixel changes by more than epsilon.",
    CURVES: "Accuracy (in per cent) and loss of this study after each epoch, with a line for each run.",
    SIZES: "Large markers and solid lines: this study. Small markers and dotted lines: the paper.",
    COSTS: "Mean accuracy of this study. Error bars are one standard deviation of the runs. The time is an "
    "estimate for an idle machine: the number of epochs times the first quartile of the epoch times, of the "
    "fastest run. Multiply-adds are for one forward pass of one image, as a proxy for energy.",
}


class _Style(NamedTuple):
    """How a method looks in every figure."""

    colour: Any
    marker: str


def draw_figures(
    tables: Sequence[Table],
    masks: Sequence[MaskEntry] = (),
    robust: Sequence[RobustEntry] = (),
) -> Figures:
    """Every figure for which there are results; sizes also from the paper alone."""
    figures = Figures()
    # Names may have letters that the font does not have.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        for section, drawn in (
            (COLUMNS, draw_columns(tables)),
            (OVERVIEW, draw_overview(tables)),
            (MASKS, draw_masks(masks)),
        ):
            for title, figure in drawn.items():
                file = _file_name(title)
                svg, png = _svg(figure), png_bytes(figure)
                figures.drawings.append(Drawing(section, title, file, svg, "", "", png=png))
        for (column, title), figure in draw_robust_curves(robust).items():
            drawing = _drawing(ROBUST, column, figure, about=title)
            figures.drawings.append(replace(drawing, png=png_bytes(figure)))
        # The many rows of an ablation would take the colours of the paper's families.
        for beside_paper in (True, False):
            group = [table for table in tables if table.is_paper == beside_paper]
            styles = _styles(list(dict.fromkeys(row for table in group for row in table.rows)))
            for table in group:
                figures.drawings += _draw_table(table, styles)
    return figures


def _draw_table(table: Table, styles: dict[RowKey, _Style]) -> list[Drawing]:
    """The figures of every column of a table, then those of its data sets."""
    drawings = []
    for column in table.columns:
        ran = [entry for entry in table.column(column) if entry.ours is not None]
        if ran:
            drawings.append(_drawing(CURVES, column, _draw_curves(ran, styles)))
            drawings.append(_drawing(COSTS, column, _draw_costs(ran, styles)))
    for key, columns in table.growing().items():
        entries = [e for e in table.entries.values() if e.column in columns]
        ran_here = any(e.ours is not None for e in entries)
        drawings.append(_drawing(SIZES, key, _draw_sizes(entries, styles), ran_here))
    return drawings


def _drawing(
    section: str, column: ColumnKey, figure: Figure, ran: bool = True, about: str = ""
) -> Drawing:
    title = column.full_title.strip() + (f", {about}" if about else "")
    return Drawing(
        section,
        title,
        _file_name(f"{section} {title}"),
        _svg(figure),
        column.data_set,
        column.augmentation,
        column.regime,
        ran,
    )


def _file_name(title: str) -> str:
    # File systems take names of 255 bytes.
    return re.sub(r"[^a-z0-9]+", "-", title.lower().replace("'", "")).strip("-")[:200] + ".svg"


def _draw_curves(entries: Sequence[Entry], styles: dict[RowKey, _Style]) -> Figure:
    """Training loss and accuracy (validation too, where there is one) against the epoch."""
    shown = [
        name
        for name in ("train_accuracy", "val_accuracy", "train_loss", "val_loss")
        if any(name in curve for entry in entries for curve in entry.curves)
    ]
    figure = Figure(figsize=_size(4.0 * len(shown), 3.4, entries), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown):
        for entry in entries:
            # A thin line for each run; one of them stands for the method in the legend.
            for i, curve in enumerate(c for c in entry.curves if name in c):
                scale = 100 if "accuracy" in name else 1
                axes.plot(
                    curve["epoch"],
                    [scale * value for value in curve[name]],
                    color=styles[entry.row].colour,
                    linewidth=1.0,
                    label=_label(entry.row) if i == 0 else None,
                )
        title = name.replace("_", " ").replace("train", "training").replace("val", "validation")
        axes.set(xlabel="epoch", title=title + (", %" if "accuracy" in name else ""))
        axes.grid(alpha=0.3)
        if "loss" in name:
            axes.set_yscale("log")
    return _with_legend(figure)


def _draw_costs(entries: Sequence[Entry], styles: dict[RowKey, _Style]) -> Figure:
    """Accuracy against the time of the training and against multiply-adds for an image."""
    figure = Figure(figsize=_size(8.0, 3.4, entries), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, label, values in (
        (left, "training, minutes", [(e.seconds or 0.0) / 60 for e in entries]),
        (
            right,
            "multiply-adds for an image, millions",
            [(e.multiply_adds or 0) / 1e6 for e in entries],
        ),
    ):
        for entry, value in zip(entries, values):
            if entry.ours is not None:
                axes.errorbar(
                    value,
                    entry.ours.mean,
                    yerr=entry.ours.std,
                    fmt=styles[entry.row].marker,
                    capsize=3,
                    color=styles[entry.row].colour,
                    label=_label(entry.row),
                )
        axes.set(xlabel=label, xscale="log")
        # Wide enough that a few near values do not look far apart, nor a single one strange.
        low, high = min(values), max(values)
        if low > 0:
            middle = (low * high) ** 0.5
            reach = max(3.0, 1.3 * (high / low) ** 0.5)
            axes.set_xlim(middle / reach, middle * reach)
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.grid(alpha=0.3)
    low, high = left.get_ylim()
    margin = max(0.0, 4.0 - (high - low)) / 2
    left.set_ylim(low - margin, high + margin)
    left.set_ylabel("accuracy, %")
    return _with_legend(figure)


def _draw_sizes(entries: Sequence[Entry], styles: dict[RowKey, _Style]) -> Figure:
    """Accuracy against the number of training images: results solid, the paper's dotted."""
    rows = list(dict.fromkeys(entry.row for entry in entries))
    figure = Figure(figsize=_size(5.6, 4.4, entries), layout="constrained")
    axes = figure.subplots()
    sizes = set()
    for row in rows:
        own = [entry for entry in entries if entry.row == row]
        paper = sorted(
            (training_images()[e.column.data_set, e.column.regime], e.paper.mean)
            for e in own
            if e.paper is not None
        )
        ours = sorted((e.train_images or 0, e.ours.mean) for e in own if e.ours is not None)
        style = styles[row]
        for points, line, width, size in ((paper, ":", 1.0, 3), (ours, "-", 1.8, 8)):
            if points:
                axes.plot(
                    *zip(*points),
                    line,
                    marker=style.marker,
                    markersize=size,
                    color=style.colour,
                    linewidth=width,
                )
                sizes |= {count for count, _ in points}
        axes.plot([], [], color=style.colour, marker=style.marker, label=_label(row))
    axes.set(xlabel="training images", ylabel="accuracy, %", xscale="log")
    axes.set_xticks(sorted(sizes), [f"{count:,}" for count in sorted(sizes)])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.3)
    return _with_legend(figure)


def _size(width: float, height: float, entries: Sequence[Entry]) -> tuple[float, float]:
    """In inches: so much for the axes, and room for the legend beside them."""
    titles = {_label(entry.row) for entry in entries}
    return width + 0.5 + 0.075 * max(map(len, titles)), max(height, 0.3 + 0.19 * len(titles))


def _label(row: RowKey) -> str:
    """What a legend calls a method, which a recipe has named."""
    return plain_text(row.title, most=_LONGEST)


def _with_legend(figure: Figure) -> Figure:
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", fontsize="small", frameon=False)
    return figure


def _styles(rows: Sequence[RowKey]) -> dict[RowKey, _Style]:
    """One hue for a family of methods, if it is small enough; else a colour for each method."""
    families: dict[str, list[RowKey]] = {}
    for row in rows:
        families.setdefault(_HUES.get(row.family, _OWN_HUE), []).append(row)
    styles = {}
    for hue, members in families.items():
        for i, row in enumerate(members):
            if len(members) > _MOST_IN_A_HUE and hue == _OWN_HUE:
                colour = matplotlib.colormaps["tab20"](i % 20)
            else:
                colour = matplotlib.colormaps[hue](0.45 + 0.5 * (i + 1) / len(members))
            styles[row] = _Style(colour, _MARKERS[i % len(_MARKERS)])
    return styles


def _svg(figure: Figure) -> str:
    """The figure as an <svg> element, the same for the same figure."""
    svg = svg_bytes(figure, letters=True).decode()
    return svg[svg.index("<svg") :]
