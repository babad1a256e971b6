"""The basis functions by angular order v and radial index j."""

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from besselnet.core import Mode, derivative_roots
from besselnet.drawing import DIVERGING, SMALL, new_figure, show

__all__ = ["BasisPictures", "basis_pictures", "draw_basis"]


@dataclass(frozen=True)
class BasisPictures:
    """N J_v(k rho) e^{iv theta} on the unit disc, complex, NaN outside.

    ``functions`` is (orders, radial indices, size, size); ``roots`` (orders, radial indices) are k.
    """

    functions: NDArray[np.complex128]
    roots: NDArray[np.float64]


def basis_pictures(num_orders: int = 4, num_radial: int = 4, size: int = 65) -> BasisPictures:
    """Return orders 0 .. num_orders - 1 and radial indices 0 .. num_radial - 1 on size x size points."""
    # Neighbouring roots lie less than 2 v^{1/3} + pi apart and the first one below v + 2 v^{1/3} + 1.
    upper = num_orders + (2 * num_orders ** (1 / 3) + np.pi) * (num_radial + 1)
    roots = np.stack([derivative_roots(v, upper)[:num_radial] for v in range(num_orders)])
    axis = (2 * np.arange(size) - (size - 1)) / size
    x, y = np.meshgrid(axis, -axis)
    rho, theta = np.hypot(x, y), np.arctan2(y, x)
    functions = np.empty((num_orders, num_radial, size, size), dtype=complex)
    for (v, j), root in np.ndenumerate(roots):
        functions[v, j] = Mode(v, j, float(root)).radial_function(rho) * np.exp(1j * v * theta)
    functions[..., rho > 1] = complex(np.nan, np.nan)
    return BasisPictures(functions, roots)


def draw_basis(pictures: BasisPictures) -> Figure:
    """Draw real parts on the left, imaginary parts on the right."""
    num_orders, num_radial = pictures.roots.shape
    # The centres of order 0 stand out; a smaller limit shows the others better.
    limit = 0.7 * np.nanmax(np.abs(pictures.functions.real))
    figure = new_figure(0.95 * num_orders + 1.0)
    figure.suptitle("The basis on the disc: waves around it (v) and along the radius (j)")
    parts = (
        ("real part, cos(vθ): red +, blue −", pictures.functions.real),
        ("imaginary part, sin(vθ): red +, blue −", pictures.functions.imag),
    )
    halves = figure.subfigures(1, 2, squeeze=False)[0]
    for half, (title, values) in zip(halves, parts):
        half.suptitle(title, fontsize="medium")
        for (v, j), axes in np.ndenumerate(half.subplots(num_orders, num_radial)):
            show(axes, values[v, j], cmap=DIVERGING, low=-limit, high=limit)
            if not np.nanmax(np.abs(values[v, j])):
                axes.text(0.5, 0.5, "zero", transform=axes.transAxes, ha="center", fontsize=SMALL)
            if v == num_orders - 1:
                axes.set_xlabel(f"j = {j}", fontsize=SMALL)
            if j == 0:
                axes.set_ylabel(f"v = {v}", fontsize=SMALL)
    return figure
