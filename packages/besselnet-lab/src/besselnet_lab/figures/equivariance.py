"""Equivariance error of one layer, for each sampling and for escnn."""

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from besselnet.core import SAMPLINGS
from besselnet.drawing import LINES, new_figure
from besselnet.nn import BesselConv2d
from besselnet.testing import PlaneWaves, equivariance_error, plane_waves, relative_spread

__all__ = [
    "ESCNN_MISSING",
    "ErrorCurves",
    "SpreadRow",
    "draw_error_curves",
    "error_curves",
    "escnn_power",
    "spread_rows",
    "spread_table",
]

Layer = Callable[[Tensor], Tensor]

ESCNN = "escnn, irreps ≤ 3"
ESCNN_MISSING = "skipped escnn, which is not installed (pip install 'besselnet-lab[peers]')"
# The curve of a layer on pixels repeats after a quarter turn.
CURVE_ANGLES = tuple(2.5 * i for i in range(37))


def bessel_power(kernel_size: int, cutoff: str, sampling: str, channels: int, seed: int) -> Layer:
    """A layer with the paper's response and random weights, the same for every sampling."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return BesselConv2d(
            1,
            channels,
            kernel_size,
            bias=False,
            cutoff=cutoff,
            sampling=sampling,
            response="power",
        )


def escnn_power(kernel_size: int, channels: int, seed: int, max_order: int = 3) -> Layer | None:
    """Return an escnn layer to SO(2) irreps 0 .. max_order, squared norms summed; None without escnn."""
    if importlib.util.find_spec("escnn") is None:
        return None
    from escnn import gspaces
    from escnn import nn as enn

    space = gspaces.rot2dOnR2(-1, maximum_frequency=max_order)
    scalar = enn.FieldType(space, [space.trivial_repr])
    irreps = [space.irrep(v) for v in range(max_order + 1)]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layer = enn.R2Conv(scalar, enn.FieldType(space, channels * irreps), kernel_size, bias=False)

    def power(images: Tensor) -> Tensor:
        fields = layer(enn.GeometricTensor(images, scalar)).tensor
        return fields.unflatten(1, (channels, -1)).square().sum(2)

    return power


def _probe(kernel_size: int, wavelength: float, images: int, seed: int) -> PlaneWaves:
    """Images as large as the kernel: a layer sees each of them at one place, and nothing of a frame."""
    return plane_waves(images, size=kernel_size, min_wavelength=wavelength, window=False, seed=seed)


@dataclass(frozen=True)
class ErrorCurves:
    """Relative error at each angle, by layer name."""

    kernel_size: int
    cutoff: str
    wavelength: float
    angles: tuple[float, ...]
    errors: dict[str, tuple[float, ...]]


def error_curves(
    kernel_size: int = 7,
    cutoff: str = "soft",
    wavelength: float = 3.0,
    angles: Sequence[float] = CURVE_ANGLES,
    *,
    images: int = 64,
    channels: int = 8,
    seed: int = 0,
) -> ErrorCurves:
    """Measure ``equivariance_error`` for each sampling, and for escnn if it is installed."""
    probe = _probe(kernel_size, wavelength, images, seed)
    layers: dict[str, Layer | None] = {
        f'sampling="{sampling}"': bessel_power(kernel_size, cutoff, sampling, channels, seed)
        for sampling in SAMPLINGS
    }
    layers[ESCNN] = escnn_power(kernel_size, channels, seed)
    errors = {
        name: equivariance_error(layer, probe, angles).errors
        for name, layer in layers.items()
        if layer is not None
    }
    return ErrorCurves(kernel_size, cutoff, wavelength, tuple(angles), errors)


def draw_error_curves(curves: ErrorCurves) -> Figure:
    """Draw the error against the angle on a logarithmic axis; quarter turns are below its range."""
    figure = new_figure(4.6)
    axes = figure.subplots()
    for line, (name, errors) in zip(LINES, curves.errors.items()):
        axes.plot(curves.angles, errors, label=name, markevery=3, markersize=5, **line._asdict())
    axes.set(
        yscale="log",
        ylim=(1e-3, 1),
        xticks=range(0, int(max(curves.angles)) + 1, 15),
        xlabel="angle of the turn, degrees (0° and 90° are exact to rounding)",
        ylabel="relative error of the response",
        title=f"One layer, {curves.kernel_size} × {curves.kernel_size} pixels, {curves.cutoff} "
        f"cut-off, structures of {curves.wavelength:g} pixels and more",
    )
    axes.grid(alpha=0.3)
    axes.legend(loc="upper right", ncols=2)
    return figure


@dataclass(frozen=True)
class SpreadRow:
    """Relative spread of one kind of layer over 24 angles; ``escnn`` is None if not measured."""

    kernel_size: int
    cutoff: str
    wavelength: float
    spread: dict[str, float]
    escnn: float | None

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON values."""
        return asdict(self)


def spread_rows(
    kernel_sizes: Sequence[int] = (7, 9),
    cutoffs: Sequence[str] = ("soft", "strong"),
    wavelengths: Sequence[float] = (2.0, 3.0, 4.0),
    *,
    images: int = 64,
    channels: int = 8,
    seed: int = 0,
) -> list[SpreadRow]:
    """Measure ``relative_spread`` for each kernel, cut-off, shortest wavelength and sampling.

    escnn has its own cut-off and is measured once per kernel, in the rows of the first cut-off.
    """
    rows = []
    for cutoff in cutoffs:
        for size in kernel_sizes:
            layers = {s: bessel_power(size, cutoff, s, channels, seed) for s in SAMPLINGS}
            peer = escnn_power(size, channels, seed) if cutoff == cutoffs[0] else None
            for wavelength in wavelengths:
                probe = _probe(size, wavelength, images, seed)
                rows.append(
                    SpreadRow(
                        kernel_size=size,
                        cutoff=cutoff,
                        wavelength=wavelength,
                        spread={s: relative_spread(layer, probe) for s, layer in layers.items()},
                        escnn=None if peer is None else relative_spread(peer, probe),
                    )
                )
    return rows


def spread_table(rows: Sequence[SpreadRow]) -> str:
    """Format the rows as a Markdown table."""
    names = list(rows[0].spread)
    head = ["kernel, cut-off", "finest wavelength", *(f'`"{n}"`' for n in names), ESCNN]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        values = [*(row.spread[name] for name in names), row.escnn]
        lines.append(
            [
                f"{row.kernel_size}, {row.cutoff}",
                f"{row.wavelength:g} pixels",
                *("" if value is None else f"{value:.3f}" for value in values),
            ]
        )
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"
