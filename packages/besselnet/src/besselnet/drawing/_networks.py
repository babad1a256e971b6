"""Figures of networks: training curves, results, filters and feature maps."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from besselnet.drawing._style import (
    GREY,
    SEQUENTIAL,
    SMALL,
    WIDTH,
    line_style,
    new_figure,
    plain_text,
    show,
    write_figure,
)
from besselnet.nn import BesselConv2d, activation_maps, evaluating

# Of classes beside a confusion matrix; of more, every second, third, ... is named.
MOST_NAMES = 60
# What stands in the corners of rotated images, in words.
BORDERS = {
    "disc": "seen through a disc",
    "reflect": "mirrored at the edges",
    "black": "with black corners",
}

# Scores that are not called by their names.
SCORES = {"r2": "R²", "f1": "mean F1"}


def draw_curves(
    path: str | Path, rows: Sequence[Mapping[str, float]], score: str = "accuracy"
) -> None:
    """Plot loss, score and learning rate against the epoch, from the rows of a `History`."""
    figure = new_figure(2.6)
    epochs = [row["epoch"] for row in rows]
    for axes, quantity in zip(figure.subplots(1, 3), ("loss", score, "learning_rate")):
        columns = [c for c in (quantity, f"train_{quantity}", f"val_{quantity}") if c in rows[0]]
        for number, column in enumerate(columns):
            style = line_style(number)._replace(marker=".")._asdict()
            axes.plot(
                epochs, [row[column] for row in rows], label=column.replace("_", " "), **style
            )
        axes.set(xlabel="epoch", title=quantity.replace("_", " "))
        axes.grid(alpha=0.3)
        axes.legend(fontsize=SMALL)
    write_figure(path, figure)


def draw_confusion(path: str | Path, confusion: Tensor, classes: Sequence[str]) -> None:
    """Draw the confusion matrix in counts: rows are true classes, columns are predictions."""
    # As wide as any figure; more than a dozen classes need more room for their numbers, up to what memory
    # holds: a thousand classes would take gigabytes.
    named = min(len(classes), MOST_NAMES)
    side = max(WIDTH, 2.5 + 0.45 * named)
    figure = new_figure(side, side)
    axes = figure.subplots()
    share = confusion / confusion.sum(1, keepdim=True).clamp(min=1)
    show(axes, share.numpy(), cmap=SEQUENTIAL)
    ticks = range(0, len(classes), -(-len(classes) // named))
    names = [plain_text(classes[i]) for i in ticks]
    axes.set_xticks(ticks, names, rotation=90)
    axes.set_yticks(ticks, names)
    axes.set(xlabel="predicted class", ylabel="true class")
    # Numbers in more cells than this are too small to read.
    if len(classes) <= 30:
        for i in ticks:
            for j in ticks:
                colour = "black" if share[i, j] > 0.5 else "white"
                axes.text(j, i, str(int(confusion[i, j])), ha="center", va="center", color=colour)
    write_figure(path, figure)


def draw_rotated(path: str | Path, results: Mapping[str, Any]) -> None:
    """Plot the score against the rotation angle, with one curve per named `RotatedEvaluation`.

    All must have the same score and border, which are in the title.
    """
    figure = new_figure(WIDTH)
    axes = figure.add_subplot(projection="polar")
    for number, (name, result) in enumerate(results.items()):
        angles = np.radians([*result.angles, 360.0])
        # R² can be negative, and a radius cannot.
        scores = np.maximum([*result.scores, result.scores[0]], 0)
        style = line_style(number)._asdict()
        axes.plot(angles, scores, ms=5, label=plain_text(name), clip_on=False, **style)
    first = next(iter(results.values()))
    score, border = SCORES.get(first.score, first.score), BORDERS[first.border]
    axes.set(rmin=0, rmax=1, title=f"{score} on images rotated by an angle\n({border})")
    # The numbers stand above the curves: wherever they are put, some curve passes there.
    shares = (0.25, 0.5, 0.75, 1.0)
    axes.set_yticks(shares, [""] * len(shares))
    paper = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1}
    for share in shares:
        place = np.radians(67.5), share if share < 1 else 1.09
        text = f"{share:g}" if first.score == "r2" else f"{share:.0%}"
        axes.text(*place, text, ha="center", va="center", bbox=paper, zorder=5)
    figure.legend(loc="outside lower center", ncols=len(results))
    write_figure(path, figure)


def draw_values(
    path: str | Path, values: Tensor, answers: Tensor, names: Sequence[str], most: int = 6
) -> None:
    """Plot predicted against true values (N, K), with one panel for each of the first `most` values."""
    columns = min(len(names), most, 3)
    rows = -(-min(len(names), most) // columns)
    side = WIDTH / max(columns, 2)
    figure = new_figure(side * rows + 0.3, side * columns)
    for axes in figure.subplots(rows, columns, squeeze=False).flat:
        axes.set_axis_off()
    pairs = zip(names[:most], values.T.cpu(), answers.T.cpu())
    for axes, (name, true, found) in zip(figure.axes, pairs):
        axes.set_axis_on()
        axes.axline((true[0].item(), true[0].item()), slope=1, color="0.6", lw=1)
        axes.plot(true, found, ls="", marker="o", ms=4, alpha=0.6, color=line_style(1).color)
        axes.set(xlabel="true value", ylabel="prediction", title=plain_text(name))
        axes.set_aspect("equal", adjustable="datalim")
        axes.grid(alpha=0.3)
    write_figure(path, figure)


def draw_reliability(path: str | Path, results: Mapping[str, Any]) -> None:
    """Plot accuracy against predicted probability, with one panel per named `robust.Reliability`."""
    side = WIDTH / 2
    figure = new_figure(side + 0.2, side * len(results))
    for number, (axes, (name, result)) in enumerate(
        zip(figure.subplots(1, len(results)), results.items())
    ):
        some = result.images > 0
        axes.axline((0, 0), slope=1, color="0.6", lw=1)
        axes.bar(
            (np.arange(len(some)) + 0.5)[some] / len(some),
            result.accuracy[some],
            width=1 / len(some),
            color=line_style(number).color,
            edgecolor="white",
            alpha=0.8,
        )
        title = f"{name}: calibration error {result.error:.1%}"
        axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="probability", ylabel="accuracy", title=title)
    write_figure(path, figure)


def draw_rates(
    path: str | Path, rates: Sequence[float], losses: Sequence[float], suggestion: float
) -> None:
    """Plot the loss against the learning rate, with the suggested rate."""
    figure = new_figure(3.2)
    axes = figure.subplots()
    axes.plot(rates, losses, **line_style(0)._replace(marker="")._asdict())
    style = line_style(1)._replace(marker="")._asdict()
    axes.axvline(suggestion, label=f"suggestion {suggestion:g}", **style)
    axes.set(xscale="log", xlabel="learning rate", ylabel="loss (smoothed)")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=SMALL)
    write_figure(path, figure)


def draw_folds(
    path: str | Path,
    scores: Sequence[float],
    title: str = "accuracy",
    interval: tuple[float, float] | None = None,
) -> None:
    """Plot the score of each fold, their mean, and, if given, the 95% interval of the accuracy."""
    figure = new_figure(3.2)
    axes = figure.subplots()
    numbers = range(1, len(scores) + 1)
    axes.plot(numbers, scores, **line_style(0)._replace(linestyle="")._asdict(), label="folds")
    style = line_style(1)._replace(marker="")
    axes.axhline(fmean(scores), **style._asdict(), label="mean of the folds")
    if interval is not None:
        label = "95% interval of all images"
        axes.axhspan(*interval, color=style.color, alpha=0.2, label=label)
    axes.set(xlabel="fold", ylabel=title, xticks=numbers)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=SMALL)
    write_figure(path, figure)


def draw_filters(path: str | Path, filters: Tensor, most: int = 64) -> None:
    """Draw kernels (O, I, k, k) as grey images, channel by channel, each scaled by its largest value."""
    kernels = filters.flatten(0, 1)[:most].cpu()
    columns = min(8, len(kernels))
    rows = -(-len(kernels) // columns)
    figure = new_figure(rows + 0.4)
    figure.suptitle("learned kernels of the first layer")
    for axes in figure.subplots(rows, columns, squeeze=False).flat:
        axes.set_axis_off()
    for axes, kernel in zip(figure.axes, kernels):
        limit = kernel.abs().max().clamp(min=1e-12).item()
        show(axes, kernel.numpy(), cmap=GREY, low=-limit, high=limit)
    write_figure(path, figure)


def learned_filters(model: nn.Module) -> Tensor | None:
    """Return the kernels (O, I, k, k) of the first convolution in `model`, upright; None if it has none."""
    for module in model.modules():
        if isinstance(module, BesselConv2d):
            return module.filters().detach()
        if isinstance(module, nn.Conv2d):
            return module.weight.detach()
    return None


def layer_outputs(model: nn.Module, images: Tensor) -> list[Tensor]:
    """Return the output (N, channels, h, w) of each activation layer for images (N, C, H, W)."""
    with evaluating(model):
        return activation_maps(model, images)[1]


def strongest_maps(model: nn.Module, images: Tensor) -> list[Tensor]:
    """Return the map (N, h, w) of each activation layer that responds most to the first image.

    Maps smaller than 3 x 3 are left out.
    """
    return [
        maps[:, maps[0].flatten(1).norm(dim=1).argmax()]
        for maps in layer_outputs(model, images)
        if min(maps.shape[-2:]) >= 3
    ]


def draw_feature_maps(
    models: Mapping[str, nn.Module],
    image: Tensor,
    degrees: float,
    rotated: Tensor,
    layers: Sequence[int],
) -> Figure:
    """Draw two rows per model: the feature maps of ``image`` and of ``rotated`` at the given layers."""
    columns = len(layers) + 1
    # Two rows of square maps, and a title.
    figure = new_figure((2 * WIDTH / columns + 0.5) * len(models))
    parts = figure.subfigures(len(models), 1, squeeze=False)[:, 0]
    for part, (name, model) in zip(parts, models.items()):
        part.suptitle(plain_text(name))
        pairs = strongest_maps(model, torch.stack([image, rotated]))
        axes = part.subplots(2, columns)
        for row, picture in enumerate((image, rotated)):
            show(axes[row, 0], picture.mean(0).numpy())
            axes[row, 0].set_ylabel("upright" if row == 0 else f"rotated by {degrees:g}°")
            for column, layer in enumerate(layers, start=1):
                pair = pairs[layer]
                limit = pair.max().item()
                show(axes[row, column], pair[row].numpy(), cmap=SEQUENTIAL, high=limit)
                if row == 0:
                    axes[row, column].set_title(f"layer {layer + 1}", fontsize="medium")
    return figure
