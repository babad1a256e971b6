"""Figures of robustness to corruptions and attacks."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.ticker import PercentFormatter

from besselnet.drawing._style import SMALL, line_style, new_figure, plain_text, write_figure

# What the attacks are called, in the order of their lines and points.
ATTACKS = {"fgsm": "FGSM", "short_pgd": "PGD", "ensemble": "APGD and square"}


def draw_robust(path: str | Path, found: Mapping[str, Any]) -> None:
    """Plot accuracy against severity of corruptions and against epsilon, from `evaluate_robust`."""
    figure = new_figure(4.8)
    left, right = figure.subplots(1, 2, sharey=True)
    for number, (name, curve) in enumerate(found["corruptions"].items()):
        accuracies = [found["accuracy"], *curve["accuracy"]]
        style = line_style(number)._asdict()
        left.plot(accuracies, ms=4, label=plain_text(name.replace("_", " ")), **style)
    left.set(xlabel="severity", ylabel="accuracy", title=f"corrupted, {found['images']} images")
    attacks = found["attacks"]
    epsilons = [0.0, *(255 * epsilon for epsilon in attacks["epsilons"])]
    for number, (name, label) in enumerate(ATTACKS.items()):
        style = line_style(number)._asdict()
        if name in attacks:
            right.plot(epsilons, [attacks["accuracy"], *attacks[name]], ms=4, label=label, **style)
        else:
            place = 255 * attacks["epsilon"], attacks["strong"][name]
            right.plot(*zip(place), ms=8, label=label, **{**style, "linestyle": ""})
    right.set(xlabel="epsilon x 255", title=f"under attack, {attacks['images']} images")
    for axes in (left, right):
        axes.set_ylim(-0.02, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.grid(alpha=0.3)
    right.legend(fontsize=SMALL)
    # Below: wherever in the frame it is put, some curve passes there.
    figure.legend(
        *left.get_legend_handles_labels(), loc="outside lower left", ncols=4, fontsize=SMALL
    )
    write_figure(path, figure)
