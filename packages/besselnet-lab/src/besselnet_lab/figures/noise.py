"""The effect of image noise after each layer of trained networks."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from besselnet.drawing import SMALL, line_style, new_figure, plain_text
from besselnet.untrusted import check_keys, read_json

__all__ = ["NoiseCurve", "draw_noise", "read_noise"]

_TEXT, _OBJECT = (str, "a string"), (dict, "an object")
_CELL = ("method", "group", "data_set", "augmentation", "regime")
_RESULT = {
    **{f"cell.{key}": _TEXT for key in _CELL},
    **{f"robust.{key}": _OBJECT for key in ("noise", "noise.changes")},
    "robust.noise.layers": (list, "a list"),
    "robust.noise.sigma": (int | float, "a finite number"),
}


@dataclass(frozen=True)
class NoiseCurve:
    """Relative change of the output of each layer, for each kind of noise of standard deviation `sigma`."""

    sigma: float
    layers: Sequence[str]
    changes: Mapping[str, Sequence[float]]


def read_noise(paths: Iterable[str | Path]) -> dict[str, NoiseCurve]:
    """Read curves by method and data set from results of a robustness study: files, or their folders.

    Curves are averaged over seeds.
    """
    found: dict[str, list[NoiseCurve]] = {}
    for path in map(Path, paths):
        files = [path] if path.is_file() else sorted(path.rglob("*.seed*.json"))
        results = {file: read_json(file) for file in files if not file.name.endswith("failed.json")}
        curves = {file: result for file, result in results.items() if "robust" in result}
        if not curves:
            raise ValueError(f"{path}: has no result of a robustness study")
        for file, result in curves.items():
            name, curve = _read(file, result)
            found.setdefault(name, []).append(curve)
    return {name: _mean(curves) for name, curves in found.items()}


def _read(path: Path, result: Mapping[str, Any]) -> tuple[str, NoiseCurve]:
    check_keys(path, result, _RESULT)
    cell, noise = result["cell"], result["robust"]["noise"]
    count = len(noise["layers"])
    for kind, numbers in noise["changes"].items():
        good = isinstance(numbers, list) and len(numbers) == count > 0
        if not good or not all(type(n) in (int, float) and 0 <= n < 1e18 for n in numbers):
            raise ValueError(
                f"{path}: 'robust.noise.changes.{kind}' must be a list of one finite number per layer"
            )
    method = " ".join(filter(None, (cell["method"], cell["group"])))
    name = f"{method}, {cell['data_set']} {cell['augmentation']} {cell['regime']}"
    layers = [str(layer) for layer in noise["layers"]]
    return name, NoiseCurve(noise["sigma"], layers, noise["changes"])


def _mean(curves: Sequence[NoiseCurve]) -> NoiseCurve:
    first = curves[0]
    alike = [curve for curve in curves if curve.layers == first.layers]
    return NoiseCurve(
        first.sigma,
        first.layers,
        {
            kind: [statistics.fmean(v) for v in zip(*(c.changes[kind] for c in alike))]
            for kind in first.changes
            if all(kind in curve.changes for curve in alike)
        },
    )


def draw_noise(curves: Mapping[str, NoiseCurve]) -> Figure:
    """Draw one panel per network and one line per kind of noise, from the image to the logits."""
    kinds = list(dict.fromkeys(kind for curve in curves.values() for kind in curve.changes))
    columns = min(2, len(curves))
    rows = -(-len(curves) // columns)
    figure = new_figure(3.4 * rows + 0.5)
    grid = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    for axes, (name, curve) in zip(grid, curves.items()):
        for kind, values in curve.changes.items():
            style = line_style(kinds.index(kind))._asdict()
            shown = [max(value, 1e-6) for value in values]
            axes.plot(shown, label=plain_text(kind), markersize=3, linewidth=1.3, **style)
        names = [plain_text(layer) for layer in curve.layers]
        axes.set_xticks(range(len(names)), names, rotation=90, fontsize=SMALL)
        axes.set_title(plain_text(name, 60), fontsize="medium")
        axes.set_yscale("log")
        axes.grid(alpha=0.3)
    for axes in grid[len(curves) :]:
        axes.set_axis_off()
    for axes in grid[: len(curves) : columns]:
        axes.set_ylabel("change / output")
    sigmas = " or ".join(f"{sigma:g}" for sigma in sorted({c.sigma for c in curves.values()}))
    figure.suptitle(f"Gaussian noise of deviation {sigmas}: relative change after each layer")
    handles = {
        label: handle for axes in grid for handle, label in zip(*axes.get_legend_handles_labels())
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4)
    return figure
