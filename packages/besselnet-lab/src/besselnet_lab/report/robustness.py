"""Results with robustness: a table and two pictures for each column, and what makes attacks suspicious."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from besselnet.drawing import line_style, new_figure, plain_text
from besselnet.untrusted import printable_text
from besselnet_lab.report.collect import MISSING, ColumnKey, RowKey, Score, by_place
from besselnet_lab.report.summaries import Line, TextTable

__all__ = [
    "REFERENCE",
    "RobustEntry",
    "collect_robust",
    "draw_robust_curves",
    "has_robustness",
    "mean_corruption_error",
    "robust_notes",
    "robust_tables",
]

# The row that mean corruption errors are relative to.
REFERENCE = "plain CNN"
# The place of noise with a deviation of 0.2 among the strengths of Gaussian noise.
_NOISE = ("gaussian_noise", 0.2)
_PANELS_IN_A_ROW = 3
_CURVES = {"fgsm": "FGSM", "short_pgd": "PGD"}
# A run -> a share.
_Share = Callable[[Mapping[str, Any]], float | None]


def _noise(robust: Mapping[str, Any]) -> float | None:
    name, strength = _NOISE
    curve = robust["corruptions"].get(name, {})
    found = dict(zip(curve.get("strengths", ()), curve.get("accuracy", ())))
    return found.get(strength)


def _strong(name: str) -> _Share:
    return lambda robust: robust["attacks"]["strong"][name]


# The columns of the tables, in per cent.
_HEADS: dict[str, _Share] = {
    "clean": lambda robust: robust["accuracy"],
    "noise 0.2": _noise,
    "corrupted": lambda robust: robust["corrupted_accuracy"],
    "worst rotation": lambda robust: robust["spatial"]["worst_rotated_accuracy"],
    "worst rotation and shift": lambda robust: robust["spatial"]["worst_accuracy"],
    "random search": _strong("random_search"),
    "FGSM": _strong("fgsm"),
    "PGD": _strong("pgd"),
    "APGD and square": _strong("ensemble"),
}
_ERROR = "corruption error"


@dataclass(frozen=True)
class RobustEntry:
    """A row of a table of robustness.

    Attributes:
        runs: what `evaluate_robust` found, one for each seed.
        seeds: of the runs.
    """

    column: ColumnKey
    row: RowKey
    runs: tuple[Mapping[str, Any], ...]
    seeds: tuple[int, ...]

    def score(self, share: _Share) -> Score | None:
        """In per cent, over the runs; None if a run does not have it."""
        found = [share(run) for run in self.runs]
        percent = [100 * value for value in found if value is not None]
        return _score(percent) if len(percent) == len(found) else None

    def curve(self, place: Callable[[Mapping[str, Any]], Sequence[float]]) -> list[float]:
        """Means over the runs, in per cent."""
        return [100 * statistics.fmean(shares) for shares in zip(*map(place, self.runs))]


def has_robustness(result: Mapping[str, Any]) -> bool:
    """Whether a result tells of robustness."""
    return "robust" in result


def collect_robust(results: Iterable[Mapping[str, Any]]) -> list[RobustEntry]:
    """The results with robustness, put together over the seeds."""
    return [
        RobustEntry(
            *(column, row),
            runs=tuple(run["robust"] for run in runs),
            seeds=tuple(run["cell"]["seed"] for run in runs),
        )
        for (row, column), runs in by_place(results).items()
    ]


def mean_corruption_error(entry: RobustEntry, reference: RobustEntry) -> Score | None:
    """100 for as many errors as the reference makes, less for fewer (Hendrycks and Dietterich 2019).

    For each corruption the errors at all severities are added and divided by those of the reference, a mean
    over its runs; the quotients are averaged. A corruption at which the reference makes no error does not
    count; None if that leaves none.
    """
    names = _shared_corruptions([*entry.runs, *reference.runs])
    usual = {name: statistics.fmean(_error(run, name) for run in reference.runs) for name in names}
    counted = [name for name, error in usual.items() if error > 0]
    if not counted:
        return None
    return _score(
        [
            100 * statistics.fmean(_error(run, name) / usual[name] for name in counted)
            for run in entry.runs
        ]
    )


def _shared_corruptions(runs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Names of the corruptions that every run has."""
    first, *others = (run["corruptions"] for run in runs)
    return [name for name in first if all(name in other for other in others)]


def _error(run: Mapping[str, Any], name: str) -> float:
    """Shares of wrong answers under a corruption, added over its severities."""
    return sum(1 - share for share in run["corruptions"][name]["accuracy"])


def _score(values: Sequence[float]) -> Score:
    std = statistics.stdev(values) if len(values) > 1 else None
    return Score(statistics.fmean(values), std, len(values))


def robust_tables(entries: Sequence[RobustEntry]) -> dict[ColumnKey, TextTable]:
    """A table for each column, the least corruption error first; without a reference, as they come."""
    return {column: _table(column, own) for column, own in _by_column(entries).items()}


def robust_notes(entries: Sequence[RobustEntry]) -> list[tuple[ColumnKey, str]]:
    """What makes attacks on a network suspicious: its gradients may be masked."""
    return [
        (entry.column, f"{entry.row.title}, seed {seed}: gradients are suspicious, {why}")
        for entry in entries
        for seed, run in zip(entry.seeds, entry.runs)
        if (why := printable_text("; ".join(run["gradient_masking"]["reasons"])))
    ]


def draw_robust_curves(entries: Sequence[RobustEntry]) -> dict[tuple[ColumnKey, str], Figure]:
    """Pictures by column and title: accuracy against the severity of corruptions, and against epsilon."""
    found = {}
    for column, own in _by_column(entries).items():
        found[column, "accuracy against severity"] = _draw_severities(own)
        found[column, "accuracy against epsilon"] = _draw_epsilons(own)
    return found


def _by_column(entries: Sequence[RobustEntry]) -> dict[ColumnKey, list[RobustEntry]]:
    found: dict[ColumnKey, list[RobustEntry]] = {}
    for entry in entries:
        found.setdefault(entry.column, []).append(entry)
    return found


def _table(column: ColumnKey, entries: Sequence[RobustEntry]) -> TextTable:
    reference = next((entry for entry in entries if entry.row.title == REFERENCE), None)
    error = {e.row: mean_corruption_error(e, reference) if reference else None for e in entries}
    order = sorted(entries, key=lambda e: found.mean if (found := error[e.row]) else 0.0)
    lines = []
    for entry in order:
        first, *rest = (str(entry.score(share) or MISSING) for share in _HEADS.values())
        cells = [entry.row.title, str(len(entry.runs)), first, str(error[entry.row] or MISSING)]
        lines.append(Line([*cells, *rest, _gradients(entry)], column, entry.row))
    first, *rest = _HEADS
    return TextTable(
        f"{column.full_title}, robustness",
        _how(entries[0].runs[0], {run["attacks"]["epsilon"] for e in entries for run in e.runs}),
        ("method", "runs", first, _ERROR, *rest, "gradients"),
        lines,
    )


def _how(run: Mapping[str, Any], epsilons: set[float]) -> str:
    """How strong the attacks were, and on how many images."""
    strong = " or ".join(f"{epsilon:g}" for epsilon in sorted(epsilons))
    settings, spatial = run.get("settings", {}), run["spatial"]
    steps = f"{settings.get('steps', '?')} steps and {settings.get('restarts', '?')} starts"
    return (
        f"{run.get('images', '?')} images are corrupted. {spatial.get('images', '?')} are rotated to "
        f"{spatial.get('angles', '?')} angles and shifted by {spatial.get('shift_pixels', '?')} pixels. "
        f"{run['attacks'].get('images', '?')} are attacked with epsilon {strong}; PGD takes {steps}."
    )


def _gradients(entry: RobustEntry) -> str:
    suspicious = sum(bool(run["gradient_masking"]["reasons"]) for run in entry.runs)
    return f"suspicious ({suspicious} of {len(entry.runs)})" if suspicious else "real"


def _draw_severities(entries: Sequence[RobustEntry]) -> Figure:
    """A panel for each corruption; severity 0 are the images as they are."""
    names = _shared_corruptions(run for entry in entries for run in entry.runs)
    figure, grid = _panels(len(names), entries)
    for axes, name in zip(grid, names):
        for number, entry in enumerate(entries):
            values = entry.curve(partial(_severities, name))
            _plot(axes, range(len(values)), values, number)
        axes.set_title(plain_text(name.replace("_", " ")), fontsize="small")
        axes.set_xlabel("severity", fontsize="small")
    return figure


def _severities(name: str, run: Mapping[str, Any]) -> list[float]:
    return [run["accuracy"], *run["corruptions"][name]["accuracy"]]


def _draw_epsilons(entries: Sequence[RobustEntry]) -> Figure:
    """A panel for each attack; epsilon 0 are the images as they are."""
    figure, grid = _panels(len(_CURVES), entries)
    for axes, (name, title) in zip(grid, _CURVES.items()):
        for number, entry in enumerate(entries):
            values = entry.curve(partial(_under_attack, name))
            epsilons = [0.0, *entry.runs[0]["attacks"]["epsilons"]][: len(values)]
            _plot(axes, epsilons, values, number)
        axes.set_title(title, fontsize="small")
        axes.set_xlabel("epsilon", fontsize="small")
    return figure


def _under_attack(name: str, run: Mapping[str, Any]) -> list[float]:
    return [run["attacks"]["accuracy"], *run["attacks"][name]]


def _panels(count: int, entries: Sequence[RobustEntry]) -> tuple[Figure, list[Axes]]:
    """Panels of one height, and the names of the methods in a further one."""
    rows = -(-(count + 1) // _PANELS_IN_A_ROW)
    figure = new_figure(max(2.3 * rows, 0.22 * len(entries) + 0.5))
    grid = list(figure.subplots(rows, _PANELS_IN_A_ROW, sharey=True, squeeze=False).ravel())
    for axes in grid[:count]:
        axes.set_ylim(0, 101)
        axes.tick_params(labelsize="small", labelleft=True)
        axes.grid(alpha=0.3)
    for axes in grid[:count:_PANELS_IN_A_ROW]:
        axes.set_ylabel("accuracy, %", fontsize="small")
    for axes in grid[count:]:
        axes.set_axis_off()
    for number, entry in enumerate(entries):
        style = line_style(number)._asdict()
        grid[count].plot([], [], label=plain_text(entry.row.title), **style)
    grid[count].legend(loc="center left", fontsize="small", frameon=False)
    return figure, grid[:count]


def _plot(axes: Axes, at: Sequence[float], values: Sequence[float], number: int) -> None:
    axes.plot(at, values, markersize=4, linewidth=1.4, **line_style(number)._asdict())
