"""The pictures of a run folder. Each function draws one figure and writes it as PNG."""

import io
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from besselnet.atomic import write_atomically
from besselnet.nn import BesselConv2d


def draw_curves(path: str | Path, rows: Sequence[Mapping[str, float]]) -> None:
    """Loss, accuracy and learning rate against the epoch, from the rows of a `History`."""
    figure = Figure(figsize=(12, 3.5), layout="constrained")
    epochs = [row["epoch"] for row in rows]
    for axes, quantity in zip(figure.subplots(1, 3), ("loss", "accuracy", "learning_rate")):
        for column in (quantity, f"train_{quantity}", f"val_{quantity}"):
            if column in rows[0]:
                values = [row[column] for row in rows]
                axes.plot(epochs, values, ".-", label=column.replace("_", " "))
        axes.set(xlabel="epoch", title=quantity.replace("_", " "))
        axes.grid(alpha=0.3)
        axes.legend()
    write_figure(path, figure)


def draw_confusion(path: str | Path, confusion: Tensor, classes: Sequence[str]) -> None:
    """The confusion matrix: rows are the true classes, columns the answers, in counts."""
    size = 2.5 + 0.45 * len(classes)
    figure = Figure(figsize=(size, size), layout="constrained")
    axes = figure.subplots()
    share = confusion / confusion.sum(1, keepdim=True).clamp(min=1)
    axes.imshow(share.numpy(), vmin=0, vmax=1, cmap="Blues")
    ticks = range(len(classes))
    axes.set_xticks(ticks, classes, rotation=90)
    axes.set_yticks(ticks, classes)
    axes.set(xlabel="answer", ylabel="true class")
    # Numbers in more cells than this are too small to read.
    if len(classes) <= 30:
        for i in ticks:
            for j in ticks:
                colour = "white" if share[i, j] > 0.5 else "black"
                axes.text(j, i, str(int(confusion[i, j])), ha="center", va="center", color=colour)
    write_figure(path, figure)


class AngleCurve(Protocol):
    """What `draw_turned` shows: an accuracy for each angle in degrees."""

    @property
    def angles(self) -> Sequence[float]: ...
    @property
    def accuracy(self) -> Sequence[float]: ...


def draw_turned(path: str | Path, results: Mapping[str, AngleCurve]) -> None:
    """Accuracy against the angle by which images are turned, one curve per named result."""
    figure = Figure(figsize=(5, 5), layout="constrained")
    axes = figure.add_subplot(projection="polar")
    # Marks and dashes differ as colours do, for print and for every eye.
    for (name, result), style in zip(results.items(), cycle(("o-", "s--", "^:"))):
        angles = np.radians([*result.angles, 360.0])
        axes.plot(
            angles, [*result.accuracy, result.accuracy[0]], style, ms=4, label=name, clip_on=False
        )
    axes.set(rmin=0, rmax=1, title="accuracy on images turned by an angle")
    # The numbers stand above the curves: wherever they are put, some curve passes there.
    shares = (0.25, 0.5, 0.75, 1.0)
    axes.set_yticks(shares, [""] * len(shares))
    paper = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1}
    for share in shares:
        place = np.radians(67.5), share if share < 1 else 1.09
        axes.text(*place, f"{share:.0%}", ha="center", va="center", bbox=paper, zorder=5)
    figure.legend(loc="outside lower center", ncols=len(results))
    write_figure(path, figure)


def draw_filters(path: str | Path, filters: Tensor, most: int = 64) -> None:
    """Kernels (O, I, k, k) as grey images, channel by channel, each between minus and plus its
    largest value."""
    kernels = filters.flatten(0, 1)[:most].cpu()
    columns = min(8, len(kernels))
    rows = -(-len(kernels) // columns)
    figure = Figure(figsize=(columns, rows + 0.4), layout="constrained")
    figure.suptitle("learned kernels of the first layer")
    for axes in figure.subplots(rows, columns, squeeze=False).flat:
        axes.set_axis_off()
    for axes, kernel in zip(figure.axes, kernels):
        limit = kernel.abs().max().clamp(min=1e-12).item()
        axes.imshow(kernel.numpy(), vmin=-limit, vmax=limit, cmap="gray")
    write_figure(path, figure)


@torch.no_grad()
def learned_filters(model: nn.Module) -> Tensor | None:
    """Kernels (O, I, k, k) of the first convolution in `model`, upright; None if it has none."""
    for module in model.modules():
        if isinstance(module, BesselConv2d):
            table = module.tables[module.spec.scales.index(0)].to(module.weight.dtype)
            return torch.einsum("oin,nyx->oiyx", module.weight, table)
        if isinstance(module, nn.Conv2d):
            return module.weight.detach()
    return None


def write_figure(path: str | Path, figure: Figure) -> None:
    """Write `figure` as PNG, atomically."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    write_atomically(path, buffer.getvalue())
