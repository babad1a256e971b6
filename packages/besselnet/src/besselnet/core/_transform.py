"""Tables for the Fourier-Bessel transform of whole images and its inverse.

The coefficients of an image of n x n pixels (Equation 4.3 with the disc inscribed in the image) are
integrals of about n^2 pixels against about n^2 functions. Separating radius and angle avoids a table of
n^4 numbers; the largest here has about 0.3 n^3.

Forward: interpolate the image at the nodes of a polar rule, Fourier-transform along the angle, and for
each order v sum over the radii with N J_v(k rho). Inverse: sum over j at the same radii. The sum is a smooth
function of rho, given by its values at Gauss-Legendre nodes: interpolate it, without loss, at the radii
of the pixels, and sum the orders with e^{iv theta}.

The inverse computes only a quarter of the disc: rotating it by q right angles multiplies order v by i^{qv}.

Symbols: n image size, R radii and T angles of the polar rule, V orders, P pixels of the quarter.
"""

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from besselnet.core._modes import ModeSet
from besselnet.core._quadrature import PolarRule, polar_rule
from besselnet.core._sampling import Sampling, disc_radius, keys_weights, linear_weights

# Along a radius and along the rim. A rule four times as fine moves the coefficients of a smooth image of
# 16 pixels by 1e-5 (bilinear: 2e-4) and those of noise by 6e-4 (bilinear: 8e-3).
NODES_PER_PIXEL = 2


@dataclass(frozen=True)
class AnalysisTables:
    """Image to values at polar nodes, and angular to radial integrals."""

    margin: int
    """Pixels that the interpolation needs beyond the image on each side."""
    corner: NDArray[np.int64]
    """(R T,): index, in the image with its margin, of the first of the pixels that a node reads."""
    row_weights: NDArray[np.float64]
    """(taps, R T): weights of the rows from the corner down."""
    column_weights: NDArray[np.float64]
    """(taps, R T): weights of the columns from the corner to the right."""
    radii_weights: NDArray[np.float64]
    """(R,): of the polar rule."""
    first_phase: NDArray[np.complex128]
    """(V,): e^{-iv theta} at the first angle; a fast Fourier transform counts angles from 0."""
    radial: NDArray[np.float64]
    """(modes, R): N_{v,j} J_v(k_{v,j} rho)."""

    @property
    def num_angles(self) -> int:
        return len(self.corner) // len(self.radii_weights)


@dataclass(frozen=True)
class SynthesisTables:
    """Values of each order at the radii of the rule to pixels."""

    to_pixel_radii: NDArray[np.float64]
    """(radii of pixels, R): interpolation from the radii of the rule."""
    pixel_radius: NDArray[np.int64]
    """(P,): which of the radii a pixel has."""
    angular: NDArray[np.complex128]
    """(V, P): e^{iv theta}, twice for v > 0, where v and -v give conjugate numbers."""
    position: NDArray[np.int64]
    """(n^2,): which of the 4 P pixels (quarter after quarter) each pixel is; 4 P outside the disc."""


def transform_rule(image_size: int, modes: ModeSet, sampling: Sampling) -> PolarRule:
    """A polar rule fine enough for the pixels and for the modes."""
    radius = disc_radius(image_size, sampling)
    # A function of rho in [0, 1] with frequencies up to k is a polynomial of degree k / 2 plus a tail
    # that falls off over a width of k^{1/3}: to rounding, within 8 widths.
    half_root = max(mode.root for mode in modes.modes) / 2
    num_radii = max(NODES_PER_PIXEL * radius, half_root + 8 * half_root ** (1 / 3) + 10)
    num_angles = max(NODES_PER_PIXEL * 2 * math.pi * radius, 2 * modes.num_orders + 8)
    return polar_rule(
        math.ceil(num_radii), 8 * scipy.fft.next_fast_len(math.ceil(num_angles / 8), real=True)
    )


def analysis_tables(image_size: int, modes: ModeSet, sampling: Sampling) -> AnalysisTables:
    """Return the tables from pixels to coefficients, which do not depend on the image."""
    rule = transform_rule(image_size, modes, sampling)
    radius, centre = disc_radius(image_size, sampling), (image_size - 1) / 2
    margin, weights_of = (1, keys_weights) if sampling == "cubic" else (0, linear_weights)
    columns = centre + radius * np.outer(rule.radii, np.cos(rule.angles)).ravel()
    rows = centre - radius * np.outer(rule.radii, np.sin(rule.angles)).ravel()
    left = np.clip(np.floor(columns).astype(np.int64), 0, image_size - 2)
    top = np.clip(np.floor(rows).astype(np.int64), 0, image_size - 2)
    orders = np.array([mode.order for mode in modes.modes])
    roots = np.array([mode.root for mode in modes.modes])
    norms = np.array([mode.norm for mode in modes.modes])
    return AnalysisTables(
        margin=margin,
        # The first tap of Keys' kernel is one pixel further out, where the margin begins.
        corner=top * (image_size + 2 * margin) + left,
        row_weights=weights_of(rows - top),
        column_weights=weights_of(columns - left),
        radii_weights=rule.weights,
        first_phase=np.exp(-1j * rule.angles[0] * np.arange(modes.num_orders)),
        radial=norms[:, None] * bessel_values(orders, np.outer(roots, rule.radii)),
    )


def synthesis_tables(image_size: int, modes: ModeSet, sampling: Sampling) -> SynthesisTables:
    """Return the tables from orders to pixels, which do not depend on the image."""
    rule = transform_rule(image_size, modes, sampling)
    diameter = round(2 * disc_radius(image_size, sampling))
    # In half pixels from the centre: whole numbers, so that radii compare exactly.
    axis = 2 * np.arange(image_size) - (image_size - 1)
    x, y = np.meshgrid(axis, -axis)
    inside = x**2 + y**2 <= diameter**2
    # The quarter holds the right half-axis and not the upper one; its turns tile the disc. The centre,
    # which turns onto itself, belongs to it as well.
    quarter = np.flatnonzero(inside & (((x > 0) & (y >= 0)) | ((x == 0) & (y == 0))))
    position = np.full((image_size, image_size), 4 * len(quarter), dtype=np.int64)
    # Backwards, so that the centre is left to the quarter itself.
    for turns in (3, 2, 1, 0):
        np.rot90(position, -turns).flat[quarter] = turns * len(quarter) + np.arange(len(quarter))
    squares, pixel_radius = np.unique((x**2 + y**2).flat[quarter], return_inverse=True)
    theta = np.arctan2(y, x).flat[quarter]
    orders = np.arange(modes.num_orders)
    return SynthesisTables(
        to_pixel_radii=lagrange_matrix(rule.radii, np.sqrt(squares) / diameter),
        pixel_radius=pixel_radius.astype(np.int64),
        angular=np.where(orders > 0, 2, 1)[:, None] * np.exp(1j * np.outer(orders, theta)),
        position=position.ravel(),
    )


def lagrange_matrix(nodes: NDArray[np.float64], points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Matrix (points, nodes): values at points of the polynomial through values at Gauss-Legendre nodes.

    ``nodes`` lie in [0, 1]. Barycentric formula with the weights (-1)^i sqrt((1 - x_i^2) w_i) that
    belong to Legendre nodes x_i in [-1, 1] with quadrature weights w_i.
    """
    x, w = np.polynomial.legendre.leggauss(len(nodes))
    barycentric = (-1.0) ** np.arange(len(nodes)) * np.sqrt((1 - x**2) * w)
    difference = points[:, None] - nodes
    hit = difference == 0
    terms = barycentric / np.where(hit, 1, difference)
    matrix = terms / terms.sum(1, keepdims=True)
    rows = hit.any(1)
    matrix[rows] = hit[rows]
    return matrix


def bessel_values(orders: NDArray[np.int64], arguments: NDArray[np.float64]) -> NDArray[np.float64]:
    """J_v(x) for each row's order v >= 0 and arguments x >= 0, within about 1e-14.

    Twenty times faster than calling a library for millions of values. e^{ix sin t} has the Fourier
    coefficients J_v(x), which gives all orders on a grid of x at once. From the nearest grid point a
    Taylor series goes to x, with J'_v = (J_{v-1} - J_{v+1}) / 2 for the derivatives.
    """
    step, terms = 1 / 4, 10  # (step / 2)^10 / 10! is 3e-16
    nearest = np.rint(arguments / step).astype(np.int64)
    offset = arguments - nearest * step
    grid = step * np.arange(nearest.max() + 1)
    # J_v(x) vanishes for v beyond x and a few widths x^{1/3}; orders and derivatives need room too.
    length = scipy.fft.next_fast_len(
        math.ceil(grid[-1] + 8 * grid[-1] ** (1 / 3)) + orders.max() + 2 * terms
    )
    angles = 2 * np.pi / length * np.arange(length)
    derivative = scipy.fft.fft(np.exp(1j * np.outer(grid, np.sin(angles))), axis=1).real / length
    values = np.zeros_like(arguments)
    power = np.ones_like(arguments)
    for term in range(1, terms + 1):
        values += power * derivative[nearest, orders[:, None]]
        power *= offset / term
        # Orders are cyclic: -1 is the last column.
        derivative = (np.roll(derivative, 1, axis=1) - np.roll(derivative, -1, axis=1)) / 2
    return values
