"""Bessel functions and their derivatives, with the roots that define the basis."""

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.special import jv, jvp

from besselnet.core import derivative_roots
from besselnet.drawing import LINES, new_figure

__all__ = ["BesselCurves", "bessel_curves", "draw_bessel"]


@dataclass(frozen=True)
class BesselCurves:
    """J_v and J'_v at the points ``x``, one row per order, and the roots of J'_v in the range."""

    x: NDArray[np.float64]
    values: NDArray[np.float64]
    slopes: NDArray[np.float64]
    roots: tuple[NDArray[np.float64], ...]


def bessel_curves(num_orders: int = 4, upper: float = 12.0, points: int = 600) -> BesselCurves:
    """Return the orders 0 .. num_orders - 1 on [0, upper]."""
    x = np.linspace(0, upper, points)
    orders = np.arange(num_orders)[:, None]
    roots = tuple(derivative_roots(v, upper) for v in range(num_orders))
    return BesselCurves(x, jv(orders, x), jvp(orders, x), roots)


def draw_bessel(curves: BesselCurves) -> Figure:
    """Draw J_v and J'_v. Marks are at J'_v = 0: zeros on the right, extrema on the left."""
    figure = new_figure(3.9)
    left, right = figure.subplots(1, 2)
    for v, (line, roots) in enumerate(zip(LINES, curves.roots)):
        at_roots = (jv(v, roots), np.zeros_like(roots))
        for axes, heights, marks in zip((left, right), (curves.values, curves.slopes), at_roots):
            axes.plot(curves.x, heights[v], color=line.color, linestyle=line.linestyle)
            axes.plot(roots, marks, color=line.color, marker=line.marker, linestyle="none")
        # For the legend, line and mark together.
        right.plot([], [], label=f"order v = {v}", **line._asdict())
    left.set(title="Bessel functions $J_v(x)$", ylabel="value")
    right.set(title="their slopes $J_v'(x)$", ylabel="slope")
    for axes in (left, right):
        axes.axhline(0, color="0.6", linewidth=0.8, zorder=0)
        axes.set_xlabel("x")
        axes.grid(alpha=0.3)
    handles, labels = right.get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=len(labels),
        title="marks: the roots $k_{v,j}$, where the slope is zero",
    )
    return figure
