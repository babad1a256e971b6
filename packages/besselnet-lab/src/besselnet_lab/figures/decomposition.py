"""Fourier-Bessel coefficients of an image, rotated and mirrored."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from besselnet.drawing import DIVERGING, SMALL, new_figure, show
from besselnet.nn import FourierBesselTransform
from besselnet.testing import turn_images

__all__ = ["Decomposition", "MovedPicture", "decompose", "draw_decomposition"]


@dataclass(frozen=True)
class MovedPicture:
    """An image transformed in two ways that should agree: by its pixels and by its coefficients."""

    title: str
    rule: str
    """The operation on the coefficients."""
    pixels: Tensor
    coefficients: Tensor
    rebuilt: Tensor
    difference: float
    """Norm of rebuilt - pixels inside the disc over the norm of the pixels."""


@dataclass(frozen=True)
class Decomposition:
    """The image unchanged, rotated and mirrored."""

    transform: FourierBesselTransform
    rows: tuple[MovedPicture, ...]


def decompose(picture: Tensor, angle: float = 35.0, cutoff: str | float = "soft") -> Decomposition:
    """Decompose a square image (n, n), transform its coefficients, and rebuild it.

    It is rotated by ``angle`` (in degrees, counter-clockwise) and by a quarter turn.
    """
    transform = FourierBesselTransform(picture.shape[-1], cutoff).double()
    pixels = picture.double()
    coefficients = transform(pixels)
    # The transform gives zero outside its disc: what is not zero for a constant lies inside.
    inside = transform.inverse(transform(torch.ones_like(pixels))) != 0

    def turned(degrees: float) -> MovedPicture:
        return moved(
            f"rotated by {degrees:g}°",
            f"× exp(−i v {degrees:g}°)",
            turn_images(pixels[None, None], degrees)[0, 0],
            transform.rotate(coefficients, math.radians(degrees)),
        )

    def moved(title: str, rule: str, expected: Tensor, changed: Tensor) -> MovedPicture:
        rebuilt = transform.inverse(changed)
        expected = expected * inside
        difference = ((rebuilt - expected).norm() / expected.norm()).item()
        return MovedPicture(title, rule, expected, changed, rebuilt, difference)

    rows = (
        moved("as it is", "unchanged", pixels, coefficients),
        turned(90.0),
        turned(angle),
        moved("mirrored", "order v ↔ −v", pixels.flip(-1), transform.reflect(coefficients)),
    )
    return Decomposition(transform, rows)


def coefficient_table(transform: FourierBesselTransform, coefficients: Tensor) -> np.ndarray:
    """Coefficients (modes,) as a complex matrix, orders by radial indices; not-a-number where none is."""
    modes = transform.modes
    table = np.full((modes.num_orders, max(modes.radial_counts)), complex(np.nan, np.nan))
    for mode, value in zip(modes.modes, coefficients.tolist()):
        table[mode.order, mode.radial] = value
    return table


def draw_decomposition(decomposition: Decomposition, orders: int = 10, radial: int = 10) -> Figure:
    """Draw one row per transformation: pixels, lowest coefficients, image rebuilt from all coefficients."""
    rows = decomposition.rows
    figure = new_figure(1.85 * len(rows) + 0.6)
    figure.suptitle("Turning and mirroring an image by its coefficients alone")
    grid = figure.subplots(len(rows), 4)
    tables = [
        coefficient_table(decomposition.transform, row.coefficients)[:orders, :radial]
        for row in rows
    ]
    # The root evens out the sizes; the constant is far larger than the rest and may saturate.
    sizes = np.sqrt(np.abs(np.concatenate([table.ravel() for table in tables])))
    limit = float(np.nanquantile(sizes, 0.97))
    for axes, row, table in zip(grid, rows, tables):
        show(axes[0], row.pixels)
        axes[0].set_ylabel(row.title, fontsize="medium")
        for panel, part in ((axes[1], table.real), (axes[2], table.imag)):
            values = np.sign(part) * np.sqrt(np.abs(part))
            show(panel, values, cmap=DIVERGING, low=-limit, high=limit)
            panel.set_xticks([0, table.shape[1] - 1])
            panel.set_yticks([0, table.shape[0] - 1])
            panel.tick_params(labelsize=SMALL)
            panel.set_ylabel("order v", fontsize=SMALL)
            panel.set_xlabel("radial index j", fontsize=SMALL)
        axes[1].set_title(f"real parts: {row.rule}", fontsize=SMALL)
        axes[2].set_title("imaginary parts", fontsize=SMALL)
        show(axes[3], row.rebuilt)
        axes[3].set_xlabel(f"differs by {100 * row.difference:.1f} %", fontsize=SMALL)
        axes[0].set_title("pixels moved", fontsize=SMALL)
        axes[3].set_title("rebuilt from coefficients", fontsize=SMALL)
    return figure
