"""Learning curves, read from runs and from the results of studies, averaged over seeds."""

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from besselnet.drawing import line_style, new_figure, plain_text
from besselnet.untrusted import check_file, check_keys, read_json, reading

__all__ = ["LearningCurve", "draw_learning", "read_learning"]

TITLES = {
    "train_loss": "loss on the training images",
    "train_accuracy": "right on the training images, %",
    "val_accuracy": "right on the validation images, %",
}
_TEXT, _OBJECT = (str, "a string"), (dict, "an object")
_CONFIG = {"data": _OBJECT, "model": _OBJECT, "data.source": _TEXT, "model.name": _TEXT}
_CELL = ("method", "group", "data_set", "augmentation", "regime")
_RESULT = {
    **dict.fromkeys(("cell", "config", "curve"), _OBJECT),
    **{f"cell.{key}": _TEXT for key in _CELL},
}


@dataclass(frozen=True)
class LearningCurve:
    """Runs that differ only in their seeds: values of each quantity, (runs, epochs)."""

    network: str
    data: str
    values: dict[str, NDArray[np.float64]]

    @property
    def num_runs(self) -> int:
        return len(next(iter(self.values.values())))


@dataclass(frozen=True)
class _Run:
    """The curve of one run; ``settings`` is its configuration without the seeds, as text."""

    place: Path
    network: str
    data: str
    settings: str
    columns: dict[str, list[float]]


def read_learning(paths: Iterable[str | Path]) -> list[LearningCurve]:
    """Read learning curves from run folders, results of a study (files or folders), or folders of either.

    Runs that differ only in their seeds become one curve, cut to the shortest run.
    """
    groups: dict[str, list[_Run]] = {}
    for path in map(Path, paths):
        for run in _find_runs(path):
            groups.setdefault(run.settings, []).append(run)
    names = [(runs[0].network, runs[0].data) for runs in groups.values()]
    curves = []
    for name, runs in zip(names, groups.values()):
        network, data = name
        if names.count(name) > 1:
            network = f"{network} ({runs[0].place.stem})"
        epochs = min(len(run.columns["epoch"]) for run in runs)
        values = {
            quantity: np.array([run.columns[quantity][:epochs] for run in runs])
            for quantity in TITLES
            if all(quantity in run.columns for run in runs)
        }
        curves.append(LearningCurve(network, data, values))
    return curves


def _find_runs(path: Path) -> list[_Run]:
    """Every run and every finished cell of a study at or below ``path``, hidden folders left out."""
    if path.is_file():
        return [_read_cell(path)]
    found = [
        _read_cell(file) if file.suffix == ".json" else _read_run(file.parent)
        for pattern in ("metrics.csv", "*.seed*.json")
        for file in sorted(path.rglob(pattern))
        if not file.name.endswith(".failed.json")
        and not any(part.startswith(".") for part in file.relative_to(path).parts)
    ]
    if not found:
        raise ValueError(f"{path}: has neither a run (metrics.csv) nor results of a study")
    return found


def _read_run(folder: Path) -> _Run:
    described, path = folder / "config.json", folder / "metrics.csv"
    config = read_json(described)
    check_keys(described, config, _CONFIG)
    check_file(path)
    with reading(path):
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        if not rows:
            raise ValueError("has no finished epoch")
        columns = {
            name: [float(row[name]) for row in rows]
            for name in ("epoch", *TITLES)
            if name in rows[0]
        }
    _check_columns(path, columns)
    data = Path(config["data"]["source"]).name
    return _Run(folder, config["model"]["name"], data, _settings(described, config), columns)


def _read_cell(path: Path) -> _Run:
    result = read_json(path)
    if not {"cell", "config", "curve"} <= result.keys():
        raise ValueError(f"{path}: is not the result of a study (no cell, config and curve)")
    check_keys(path, result, _RESULT)
    _check_columns(path, result["curve"])
    cell = result["cell"]
    network = f"{cell['method']} {cell['group']}".strip()
    data = f"{cell['data_set']} {cell['augmentation']} {cell['regime']}"
    return _Run(path, network, data, _settings(path, result["config"]), result["curve"])


def _check_columns(path: Path, columns: Mapping[str, Any]) -> None:
    """Refuse curves that are not one finite number for each epoch."""
    check_keys(path, columns, {"epoch": (list, "a list")})
    for name in ("epoch", *TITLES):
        numbers = columns.get(name, columns["epoch"])
        good = isinstance(numbers, list) and len(numbers) == len(columns["epoch"]) > 0
        if not good or not all(type(n) in (int, float) and abs(n) < 1e18 for n in numbers):
            raise ValueError(f"{path}: {name!r} must be a list of one finite number per epoch")


def _settings(path: Path, config: Mapping[str, Any]) -> str:
    """Everything but the seeds, of the configuration in a file."""
    sections = {
        name: {key: value for key, value in section.items() if key != "seed"}
        for name, section in config.items()
        if isinstance(section, dict)
    }
    with reading(path):
        return json.dumps(sections, sort_keys=True, allow_nan=False)


def draw_learning(curves: Sequence[LearningCurve]) -> Figure:
    """Draw loss and accuracy of the networks; several data sets have a panel each, as in the paper.

    A line is the mean over seeds, and its band is the range from the worst to the best.
    """
    data = list(dict.fromkeys(curve.data for curve in curves))
    validated = all("val_accuracy" in curve.values for curve in curves)
    accuracy = "val_accuracy" if validated else "train_accuracy"
    if len(data) == 1:
        panels = [(TITLES[q], q, data[0]) for q in ("train_loss", accuracy)]
    else:
        panels = [(f"{plain_text(name)}:\n{TITLES[accuracy]}", accuracy, name) for name in data]
    networks = list(dict.fromkeys(curve.network for curve in curves))
    rows = -(-len(panels) // 2)
    figure = new_figure(3.4 * rows + 0.3 + 0.25 * -(-len(networks) // 2))
    if len(data) == 1:
        figure.suptitle(plain_text(data[0], 80))
    grid = figure.subplots(rows, 2, squeeze=False).ravel()
    for axes, (title, quantity, name) in zip(grid, panels):
        for curve in curves:
            if curve.data == name:
                _plot(axes, curve, quantity, networks.index(curve.network))
        axes.set_title(title, fontsize="medium")
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    handles = {
        label: handle for axes in grid for handle, label in zip(*axes.get_legend_handles_labels())
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=2)
    return figure


def _plot(axes: Axes, curve: LearningCurve, quantity: str, number: int) -> None:
    values = curve.values[quantity] * (100 if quantity.endswith("accuracy") else 1)
    epochs = np.arange(1, values.shape[1] + 1)
    runs = f", mean of {curve.num_runs} runs" if curve.num_runs > 1 else ""
    style = line_style(number)
    axes.plot(
        epochs,
        values.mean(0),
        label=plain_text(curve.network) + runs,
        markersize=4,
        markevery=max(1, len(epochs) // 10),
        **style._asdict(),
    )
    axes.fill_between(
        epochs, values.min(0), values.max(0), color=style.color, alpha=0.2, linewidth=0
    )
