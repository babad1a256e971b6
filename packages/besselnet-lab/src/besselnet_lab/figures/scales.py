"""One filter at several sizes, with the same weights."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import Tensor

from besselnet.drawing import DIVERGING, SMALL, new_figure, show
from besselnet.functional import BasisSpec, expand_filters
from besselnet.nn import BesselConv2d

__all__ = ["ScaledFilters", "draw_scales", "scaled_filters"]


@dataclass(frozen=True)
class ScaledFilters:
    """Real parts of F_v, one tensor (orders, k, k) per kernel size."""

    spec: BasisSpec
    filters: tuple[Tensor, ...]

    @property
    def kernel_sizes(self) -> tuple[int, ...]:
        return tuple(self.spec.kernel_size + offset for offset in self.spec.scales)


def scaled_filters(
    kernel_size: int = 9, scales: Sequence[int] = (-2, 0, 2), seed: int = 0
) -> ScaledFilters:
    """Return the filters of an untrained multi-scale layer with one input and one output channel."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layer = BesselConv2d(1, 1, kernel_size, scales=scales, dtype=torch.float64)
    filters = []
    for table in layer.tables:
        maps = expand_filters(layer.weight.detach(), table, layer.spec)[0, :, 0, 0]
        # Order 0 has one map, each further order a real and an imaginary one.
        filters.append(torch.cat([maps[:1], maps[1::2]]))
    return ScaledFilters(layer.spec, tuple(filters))


def draw_scales(scaled: ScaledFilters) -> Figure:
    """Draw one row per size and one column per order, with pixels of the same size.

    Every filter has its own colour range, because high orders are weak compared with order 0."""
    orders = len(scaled.filters[0])
    largest = max(scaled.kernel_sizes)
    figure = new_figure(1.3 * len(scaled.filters) + 0.8)
    figure.suptitle("One set of weights at several sizes; a layer keeps the strongest response")
    grid = figure.subplots(len(scaled.filters), orders)
    for row, (size, filters) in enumerate(zip(scaled.kernel_sizes, scaled.filters)):
        for v, (axes, values) in enumerate(zip(grid[row], filters)):
            limit = values.abs().max().item()
            show(axes, values, cmap=DIVERGING, low=-limit, high=limit)
            middle = (size - 1) / 2
            axes.set_xlim(middle - largest / 2, middle + largest / 2)
            axes.set_ylim(middle + largest / 2, middle - largest / 2)
            if row == 0:
                axes.set_title(f"order v = {v}", fontsize=SMALL)
            if v == 0:
                axes.set_ylabel(f"{size} × {size} pixels", fontsize=SMALL)
    return figure
