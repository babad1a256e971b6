"""Number of functions of a kernel of k pixels for each cut-off."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from besselnet.core import kernel_modes
from besselnet.drawing import LINES, new_figure
from besselnet.functional import CUTOFFS

__all__ = ["CutoffCounts", "cutoff_counts", "draw_cutoff"]


@dataclass(frozen=True)
class CutoffCounts:
    """Largest order, largest radial index and number of real weights for each kernel size."""

    cutoff: str
    kernel_sizes: tuple[int, ...]
    max_order: tuple[int, ...]
    max_radial: tuple[int, ...]
    weights: tuple[int, ...]


def cutoff_counts(kernel_sizes: Sequence[int] = tuple(range(1, 32, 2))) -> list[CutoffCounts]:
    """Return the counts for each named cut-off."""
    counts = []
    for name, share in CUTOFFS.items():
        modes = [kernel_modes(k, share) for k in kernel_sizes]
        counts.append(
            CutoffCounts(
                cutoff=name,
                kernel_sizes=tuple(kernel_sizes),
                max_order=tuple(m.num_orders - 1 for m in modes),
                max_radial=tuple(max(m.radial_counts) - 1 for m in modes),
                weights=tuple(m.num_real for m in modes),
            )
        )
    return counts


def draw_cutoff(counts: Sequence[CutoffCounts]) -> Figure:
    """Draw the largest v and j (left), and the weights compared with a plain kernel (right)."""
    figure = new_figure(4.0)
    left, right = figure.subplots(1, 2)
    styles = iter(LINES)
    for count in counts:
        for values, what in ((count.max_order, "order v"), (count.max_radial, "radial index j")):
            style = next(styles)._asdict()
            label = f"largest {what}, {count.cutoff}"
            left.plot(count.kernel_sizes, values, markersize=5, label=label, **style)
    left.set(title="What a kernel can hold", xlabel="kernel size k, pixels", ylabel="largest index")
    sizes = counts[0].kernel_sizes
    right.plot(
        sizes, [k**2 for k in sizes], label="plain convolution: k²", color="0.45", linewidth=2.5
    )
    for count, line in zip(counts, LINES[::2]):
        style = line._asdict()
        label = f"Bessel, {count.cutoff} cut-off"
        right.plot(sizes, count.weights, markersize=5, label=label, **style)
    right.set(
        title="Weights for a pair of channels",
        xlabel="kernel size k, pixels",
        ylabel="real weights",
    )
    for axes in (left, right):
        axes.margins(y=0.12)
        # Nothing is below zero; room for half a mark.
        axes.set_ylim(bottom=-0.03 * axes.get_ylim()[1])
        axes.grid(alpha=0.3)
        axes.legend(loc="upper left", fontsize="small")
    return figure
