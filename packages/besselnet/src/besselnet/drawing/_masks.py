"""Figures of masks: overlays, and curves against the rotation angle."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib.patches import Patch
from torch import Tensor

from besselnet.drawing._networks import BORDERS
from besselnet.drawing._style import (
    SMALL,
    WIDTH,
    line_style,
    new_figure,
    plain_text,
    show,
    write_figure,
)
from besselnet.masks import MaskAgreement, class_colour, class_mean, overlay_mask

# Rows of images in one picture; of classes in its legend.
MOST_ROWS, MOST_NAMES = 8, 20


def draw_overlays(
    path: str | Path,
    images: Tensor,
    predictions: Tensor,
    truths: Tensor | None,
    classes: Sequence[str],
) -> None:
    """Draw one row for each of the first images: the image, its true mask if given, and its predicted mask.

    `images` (N, C, H, W), uint8 or float in [0, 1]; `predictions` and `truths` (N, H, W).
    """
    columns = {"image": torch.zeros_like(predictions)}
    if truths is not None:
        columns["truth"] = truths
    columns["prediction"] = predictions
    rows = min(len(images), MOST_ROWS)
    side = WIDTH / len(columns)
    figure = new_figure(rows * side * images.shape[2] / images.shape[3] + 0.6)
    grid = figure.subplots(rows, len(columns), squeeze=False)
    for (title, masks), place in zip(columns.items(), grid.T):
        place[0].set_title(title, fontsize="medium")
        for axes, image, mask in zip(place, images.cpu(), masks.cpu()):
            show(axes, overlay_mask(image.numpy(), mask.numpy().astype(np.uint8)))
    handles = [
        Patch(color=f"#{bytes(class_colour(number)).hex()}", label=plain_text(name))
        for number, name in enumerate(classes[: MOST_NAMES + 1])
        if number
    ]
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 6))
    write_figure(path, figure)


def draw_rotated_masks(path: str | Path, results: Mapping[str, MaskAgreement]) -> None:
    """Plot Dice (true masks) and agreement (upright masks) against the angle, as means over classes.

    There is one curve per named result. Without true masks, only the agreement is shown.
    """
    first = next(iter(results.values()))
    quantities = {"agreement with the upright mask (IoU)": "agreement"}
    if first.dice is not None:
        quantities = {"Dice with the true mask": "dice", **quantities}
    figure = new_figure(3.6)
    panels = figure.subplots(1, len(quantities), squeeze=False)[0]
    lowest = 1.0
    for axes, (title, quantity) in zip(panels, quantities.items()):
        for number, (name, result) in enumerate(results.items()):
            means = class_mean(getattr(result, quantity))
            lowest = min(lowest, float(np.nanmin(means)))
            style = line_style(number)._asdict()
            closed = [*means, means[0]]
            axes.plot([*result.angles, 360.0], closed, ms=4, label=plain_text(name), **style)
        axes.set(xlabel="rotation in degrees", xticks=range(0, 361, 90))
        axes.set_title(title, fontsize="medium")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=SMALL)
    for axes in panels:
        # Down to a round number: small differences stay visible, and both panels can be compared.
        axes.set_ylim(max(np.floor(10 * lowest - 0.2) / 10, -0.02), 1.02)
    figure.suptitle(f"masks of rotated images, {BORDERS[first.border]}", fontsize="medium")
    write_figure(path, figure)
