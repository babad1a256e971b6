"""A report as a figure."""

import math
from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from besselnet_lab.benchmarks.judge import value_of
from besselnet_lab.benchmarks.tables import TITLES, show_value

# Okabe and Ito's colours, which people with any colour vision can tell apart; markers differ too.
COLOURS = ("#000000", "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442")
MARKERS = "osD^vP*X"


def draw_report(report: Mapping[str, Any]) -> Figure:
    """One panel for each measure: bars for one case, lines over k, or dots for many cases."""
    measures, cases = report["measures"], report["cases"]
    names = list(cases[0]["results"])
    rows = len(names) if len(cases) == 1 else len(cases)
    lines = report["summary_kind"] == "exponents"
    height = 4.5 if lines else 1.6 + 0.32 * rows
    figure = Figure(figsize=(3.2 + 3.4 * len(measures), height), layout="constrained")
    panels = figure.subplots(1, len(measures), sharey=not lines, squeeze=False)[0]
    for axes, measure in zip(panels, measures):
        axes.set_title(TITLES[measure])
        if len(cases) == 1:
            _bars(axes, report, measure)
        elif lines:
            _lines(axes, report, measure)
        else:
            _dots(axes, report, measure)
    if len(cases) > 1:
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(len(names), 5))
    figure.suptitle(report["entry"] + (" (quick run)" if report["quick"] else ""))
    return figure


def _bars(axes: Axes, report: Mapping[str, Any], measure: str) -> None:
    (case,) = report["cases"]
    names = list(case["results"])
    values = [value_of(case, name, measure) for name in names]
    reach = max((value for value in values if value is not None), default=1.0)
    for row, (name, value) in enumerate(zip(names, values)):
        colour = COLOURS[0] if name == report["baseline"] else COLOURS[1]
        axes.barh(row, value or 0, color=colour, height=0.65)
        ratio = case["results"][name].get("ratios", {}).get(measure)
        text = "left out" if value is None else show_value(measure, value)
        text += "" if ratio is None or name == report["baseline"] else f"  ({ratio:.2f}×)"
        axes.text((value or 0) + 0.02 * reach, row, text, va="center", fontsize=8)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    # Room for the words beside the longest bar.
    axes.set_xlim(0, 1.75 * reach)
    axes.set_xticks([])
    axes.spines[["top", "right", "bottom"]].set_visible(False)


def _lines(axes: Axes, report: Mapping[str, Any], measure: str) -> None:
    sizes = [case["settings"]["kernel_size"] for case in report["cases"]]
    for i, name in enumerate(report["cases"][0]["results"]):
        values = [value_of(case, name, measure) for case in report["cases"]]
        times = [math.nan if value is None else 1000 * value for value in values]
        colour = COLOURS[i % len(COLOURS)]
        axes.plot(sizes, times, marker=MARKERS[i % len(MARKERS)], color=colour, label=name)
        exponent = report["summary"][measure].get(name)
        if exponent is not None:
            axes.annotate(
                f"$k^{{{exponent:.1f}}}$",
                (sizes[-1], times[-1]),
                xytext=(6, 0),
                textcoords="offset points",
                va="center",
                color=colour,
            )
    axes.set(xscale="log", yscale="log", xlabel="k", ylabel="milliseconds")
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_xlim(0.93 * min(sizes), 1.2 * max(sizes))
    axes.xaxis.set_minor_formatter(NullFormatter())
    _plain_ticks(axes.yaxis)
    axes.grid(alpha=0.3)


def _dots(axes: Axes, report: Mapping[str, Any], measure: str) -> None:
    cases, baseline = report["cases"], report["baseline"]
    for i, name in enumerate(cases[0]["results"]):
        if name == baseline:
            axes.axvline(1, color=COLOURS[0], linewidth=1, label=f"{name} = 1")
            continue
        results = [case["results"][name] for case in cases]
        numbers = [r.get("ratios", {}) if baseline else r["values"] for r in results]
        rows = [row for row, found in enumerate(numbers) if measure in found]
        # "auto" lies on one of the others: drawn open, both can be seen.
        face = "none" if name == "auto" else COLOURS[i % len(COLOURS)]
        axes.scatter(
            [numbers[row][measure] for row in rows],
            rows,
            s=70 if name == "auto" else 30,
            marker=MARKERS[i % len(MARKERS)],
            facecolors=face,
            edgecolors=COLOURS[i % len(COLOURS)],
            label=name,
            zorder=3,
        )
    axes.set_yticks(range(len(cases)), [case["label"] for case in cases])
    axes.set_ylim(len(cases) - 0.5, -0.5)
    axes.set_xscale("log")
    if baseline:
        _plain_ticks(axes.xaxis)
        axes.set_xlabel(f"times {baseline}")
    else:
        axes.set_xlabel("relative difference")
    axes.grid(alpha=0.3)


def _plain_ticks(axis: Axis) -> None:
    """1, 2, 5, 10 ... on a logarithmic axis."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
