"""Sample functions on the disc as taps on pixels.

An image is known at pixel centres. Its coefficient phi = integral over the disc of conj(basis) Psi needs
Psi between them, and the interpolation determines how equivariant a layer is:

``bilinear``  Psi is the bilinear interpolant of the pixels, integrated over a disc of radius (k-1)/2
              pixels. Every tap lies inside the kernel.
``cubic``     Psi is Keys' cubic interpolant, on a disc of radius (k-2)/2 pixels. The pixel that it needs
              beyond the edge of the kernel is extrapolated from those inside, as Keys does.
``point``     the paper's sampling (Equation 6.2): the basis at pixel centres, with a hard cut at the rim.

Axes: x to the right, y up (rows count downwards), so a positive angle rotates counter-clockwise as seen
on the screen, like ``torch.rot90``. All taps include the area element of the *unit* disc, so coefficients
of kernels of different sizes are comparable.
"""

import math
from functools import lru_cache
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from besselnet.core._modes import ModeSet
from besselnet.core._quadrature import polar_rule

Sampling = Literal["bilinear", "cubic", "point"]
SAMPLINGS: tuple[str, ...] = get_args(Sampling)

# Nodes per pixel, along a radius and along the rim. The interpolants have kinks on the pixel lattice, so
# the rule converges like 1 / nodes^2; at 8 the response of a layer is within 1e-4 of its limit.
NODES_PER_PIXEL = 8


def disc_radius(kernel_size: int, sampling: Sampling) -> float:
    """Return the radius in pixels of the disc rho <= 1."""
    if kernel_size == 1:
        return 0.5
    if sampling == "cubic":
        return max(kernel_size - 2, 1) / 2
    if sampling == "point" and kernel_size == 2:
        # Both coordinates are +-1/2: a smaller disc would hold no pixel at all.
        return math.sqrt(0.5)
    return (kernel_size - 1) / 2


def linear_weights(offset: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights of the pixels 0, 1 for a point at ``offset`` in [0, 1] between them; shape (2, ...)."""
    return np.stack([1 - offset, offset])


def keys_weights(offset: NDArray[np.float64]) -> NDArray[np.float64]:
    """Keys' cubic convolution (a = -1/2): weights of the pixels -1, 0, 1, 2; shape (4, ...)."""
    t = offset
    return np.stack(
        [
            ((-t + 2) * t - 1) * t / 2,
            ((3 * t - 5) * t * t + 2) / 2,
            ((-3 * t + 4) * t + 1) * t / 2,
            (t - 1) * t * t / 2,
        ]
    )


def interpolation_matrix(
    positions: NDArray[np.float64], size: int, sampling: Sampling
) -> NDArray[np.float64]:
    """Return the matrix (positions, size) that interpolates pixels 0 .. size-1 at fractional ``positions``.

    Keys' kernel reads one pixel beyond an edge. That pixel is extrapolated by the polynomial through the
    nearest ones, of degree 2 if there are 3 pixels.
    """
    weights_of = {"bilinear": linear_weights, "cubic": keys_weights}[sampling]
    reach = 1 if sampling == "cubic" else 0
    left = np.clip(np.floor(positions).astype(int), 0, max(size - 2, 0))
    weights = weights_of(positions - left)
    padded = np.zeros((len(positions), size + 2 * reach))
    rows = np.arange(len(positions))
    for tap, weight in enumerate(weights):
        padded[rows, np.minimum(left + tap, size + 2 * reach - 1)] += weight
    if not reach:
        return padded
    matrix = padded[:, 1:-1]
    extrapolation = {1: [1.0], 2: [2.0, -1.0]}.get(size, [3.0, -3.0, 1.0])
    for i, factor in enumerate(extrapolation):
        matrix[:, i] += factor * padded[:, 0]
        matrix[:, -1 - i] += factor * padded[:, -1]
    return matrix


@lru_cache(maxsize=128)
def sampled_basis(kernel_size: int, modes: ModeSet, sampling: Sampling) -> NDArray[np.complex128]:
    """Return T_{v,j}[row, column] with phi_{v,j} = sum of T_{v,j} * image over the kernel; (modes, k, k).

    For ``bilinear`` and ``cubic``, it is the integral over the disc of conj(N J_v e^{iv theta}) times the
    interpolation kernel of each pixel. For ``point``, it is Equation 6.2 of the paper times the pixel area.
    """
    if kernel_size == 1:
        taps = np.zeros((len(modes), 1, 1), dtype=complex)
        taps[0] = math.sqrt(math.pi)  # the integral of N_{0,0} over the unit disc
    elif sampling == "point":
        taps = _point_taps(kernel_size, modes)
    else:
        taps = _integrated_taps(kernel_size, modes, sampling)
    taps.setflags(write=False)  # shared by every layer of this shape
    return taps


def sampled_filters(kernel_size: int, modes: ModeSet, sampling: Sampling) -> NDArray[np.float64]:
    """Return the real and imaginary parts of T_{v,j}, ordered as in :class:`ModeSet`; (num_real, k, k).

    Their products with an image are the real and imaginary parts of its phi_{v,j}.
    """
    by_order = np.split(
        sampled_basis(kernel_size, modes, sampling), np.cumsum(modes.radial_counts)[:-1]
    )
    parts = [by_order[0].real]
    for taps in by_order[1:]:
        parts += [taps.real, taps.imag]
    return np.concatenate(parts)


def _point_taps(kernel_size: int, modes: ModeSet) -> NDArray[np.complex128]:
    radius = disc_radius(kernel_size, "point")
    axis = (np.arange(kernel_size) - (kernel_size - 1) / 2) / radius
    x, y = np.meshgrid(axis, -axis)
    rho, theta = np.hypot(x, y), np.arctan2(y, x)
    inside = rho <= 1 + 1e-9  # pixels on the rim count, whatever the rounding
    rho = np.minimum(rho, 1)
    functions = [m.radial_function(rho) * np.exp(-1j * m.order * theta) for m in modes.modes]
    return np.stack(functions) * inside / radius**2


def _integrated_taps(
    kernel_size: int, modes: ModeSet, sampling: Sampling
) -> NDArray[np.complex128]:
    radius = disc_radius(kernel_size, sampling)
    num_radii = math.ceil(NODES_PER_PIXEL * radius) + len(modes.radial_counts)
    rule = polar_rule(num_radii, math.ceil(NODES_PER_PIXEL * 2 * math.pi * radius))
    rho = np.repeat(rule.radii, len(rule.angles))
    theta = np.tile(rule.angles, len(rule.radii))
    centre = (kernel_size - 1) / 2
    columns = interpolation_matrix(centre + radius * rho * np.cos(theta), kernel_size, sampling)
    rows = interpolation_matrix(centre - radius * rho * np.sin(theta), kernel_size, sampling)
    radial = np.stack([m.radial_function(rule.radii) for m in modes.modes]) * rule.weights
    orders = np.array([m.order for m in modes.modes])
    angular = np.exp(-1j * np.outer(orders, rule.angles))
    functions = (radial[:, :, None] * angular[:, None, :]).reshape(len(modes), -1)
    spread = (rows[:, :, None] * columns[:, None, :]).reshape(len(rho), -1)
    # Two real products: numpy would first turn the (large, real) spread into complex numbers.
    taps = functions.real @ spread + 1j * (functions.imag @ spread)
    return taps.reshape(len(modes), kernel_size, kernel_size)
