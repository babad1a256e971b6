"""Operations of the two algorithms and of a plain convolution, against the kernel size."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from besselnet.drawing import LINES, new_figure
from besselnet.functional import CUTOFFS, BasisSpec, direct_cost, factored_cost

__all__ = ["CostCurves", "cost_curves", "draw_cost"]


@dataclass(frozen=True)
class CostCurves:
    """Multiply-adds per output pixel and pair of channels, by name, at each kernel size."""

    channels: int
    kernel_sizes: tuple[int, ...]
    operations: dict[str, tuple[float, ...]]


def cost_curves(
    channels: int = 64, kernel_sizes: Sequence[int] = (3, 5, 7, 9, 11, 13, 15)
) -> CostCurves:
    """Return the cost of a layer with as many input as output channels, which share the analysis."""
    pairs = channels**2
    operations: dict[str, tuple[float, ...]] = {
        "plain convolution": tuple(float(k**2) for k in kernel_sizes)
    }
    for cutoff in CUTOFFS:
        specs = [BasisSpec.checked(k, cutoff=cutoff) for k in kernel_sizes]
        for name, count in (("direct", direct_cost), ("factored", factored_cost)):
            costs = [count(spec, channels, channels, 1).operations / pairs for spec in specs]
            operations[f"{name}, {cutoff} cut-off"] = tuple(costs)
    return CostCurves(channels, tuple(kernel_sizes), operations)


def draw_cost(curves: CostCurves) -> Figure:
    """Draw the curves on logarithmic axes, where a power of k is a straight line."""
    figure = new_figure(4.6)
    axes = figure.subplots()
    for style, (name, values) in zip(LINES, curves.operations.items()):
        axes.plot(curves.kernel_sizes, values, label=name, **style._asdict())
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="kernel size k, pixels",
        ylabel="multiply-adds per pixel and pair of channels",
        title=f"What a layer of {curves.channels} × {curves.channels} channels computes",
    )
    axes.set_xticks(curves.kernel_sizes, [str(k) for k in curves.kernel_sizes])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.3)
    axes.legend()
    return figure
