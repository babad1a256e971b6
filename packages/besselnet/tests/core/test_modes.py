"""The continuous basis: roots, norms, orthonormality, and what turning and mirroring do to it."""

import math

import numpy as np
import pytest
from scipy.special import jvp

from besselnet.core import Mode, derivative_roots, kernel_modes, modes_below, polar_rule
from tolerances import FLOAT64

KERNEL_SIZES = range(2, 16)


def basis(modes, rho, theta):
    """N J_v(k rho) exp(i v theta) for all v >= 0; (modes, points)."""
    return np.stack([m.radial_function(rho) * np.exp(1j * m.order * theta) for m in modes.modes])


def nodes(num_radii=36, num_angles=64):
    rule = polar_rule(num_radii, num_angles)
    rho, theta = (a.ravel() for a in np.meshgrid(rule.radii, rule.angles, indexing="ij"))
    return rho, theta, np.repeat(rule.weights, len(rule.angles))


def coefficients(modes, function):
    """phi_{v,j} of a function of (x, y), Equation 4.3."""
    rho, theta, weights = nodes()
    values = function(rho * np.cos(theta), rho * np.sin(theta))
    return basis(modes, rho, theta).conj() @ (weights * values)


def smooth_function(x, y):
    """Real, with no symmetry of its own."""
    return np.exp(0.7 * x - 0.4 * y) * np.cos(2.1 * x + 3.3 * y + 0.5) + x * y - 0.3 * y**3


@pytest.mark.parametrize("kernel_size", KERNEL_SIZES)
def test_gram_matrix_is_identity(kernel_size):
    modes = kernel_modes(kernel_size, 1.0)
    rho, theta, weights = nodes()
    positive = basis(modes, rho, theta)
    # Orders below zero: J_{-v} e^{-iv theta} = (-1)^v J_v e^{-iv theta}.
    negative = [(-1) ** m.order * f.conj() for m, f in zip(modes.modes, positive) if m.order]
    functions = np.concatenate([positive, negative])
    gram = (functions.conj() * weights) @ functions.T
    assert np.abs(gram - np.eye(len(gram))).max() <= FLOAT64.equation


@pytest.mark.parametrize("order", range(24))
def test_roots_are_all_the_roots_of_the_derivative(order):
    upper = 24.0
    roots = derivative_roots(order, upper)
    assert np.all(np.diff(roots) > 0)
    assert np.abs(jvp(order, roots)).max(initial=0) <= FLOAT64.rounding
    # Every change of sign on a fine grid is one of them; the root 0 of J'_0 is at the grid's start.
    grid = np.linspace(1e-3, upper, 20001)
    changes = np.count_nonzero(np.diff(np.sign(jvp(order, grid))))
    assert len(roots) == changes + (order == 0)
    assert (roots[0] == 0) == (order == 0) if len(roots) else order > 20


def test_a_root_on_the_cutoff_is_kept():
    root = derivative_roots(3, 10.0)[1]
    assert Mode(3, 1, root) in modes_below(root).modes
    assert Mode(3, 1, root) not in modes_below(np.nextafter(root, 0)).modes


@pytest.mark.parametrize(
    ("kernel_size", "cutoff", "complex_modes", "real_filters", "orders"),
    [(7, 1.0, 20, 36, 10), (7, 0.5, 7, 12, 5), (9, 1.0, 32, 59, 13), (9, 0.5, 10, 17, 6)],
)
def test_mode_counts(kernel_size, cutoff, complex_modes, real_filters, orders):
    modes = kernel_modes(kernel_size, cutoff)
    assert (len(modes), modes.num_real, modes.num_orders) == (complex_modes, real_filters, orders)


def test_one_pixel_holds_the_constant_alone():
    assert kernel_modes(1, 1.0).modes == (Mode(0, 0, 0.0),)
    assert Mode(0, 0, 0.0).norm == 1 / math.sqrt(math.pi)


@pytest.mark.parametrize("kernel_size", [1, 2, 3, 7, 12])
def test_order_slices_cover_each_real_number_once(kernel_size):
    modes = kernel_modes(kernel_size, 1.0)
    covered = []
    for v, (cosines, sines) in enumerate(modes.order_slices):
        covered += [*range(modes.num_real)[cosines], *range(modes.num_real)[sines]]
        assert cosines.stop - cosines.start == modes.radial_counts[v]
        assert sines.stop - sines.start == (modes.radial_counts[v] if v else 0)
    # Order by order: nothing is left out, and nothing stands elsewhere.
    assert covered == list(range(modes.num_real))


@pytest.mark.parametrize("alpha", [0.3, math.pi / 2, 2.0, 5.5])
def test_rotation_multiplies_by_a_phase(alpha):
    modes = kernel_modes(9, 1.0)
    cos, sin = math.cos(alpha), math.sin(alpha)
    phi = coefficients(modes, smooth_function)
    turned = coefficients(
        modes, lambda x, y: smooth_function(cos * x + sin * y, -sin * x + cos * y)
    )
    phases = np.exp([-1j * m.order * alpha for m in modes.modes])
    assert np.abs(turned - phases * phi).max() <= FLOAT64.equation


def test_reflection_swaps_v_and_minus_v():
    """Left to right: phi_{v,j} -> phi_{-v,j} = (-1)^v conj(phi_{v,j})."""
    modes = kernel_modes(9, 1.0)
    rho, theta, weights = nodes()
    signs = np.array([(-1) ** m.order for m in modes.modes])
    values = smooth_function(rho * np.cos(theta), rho * np.sin(theta))
    # phi_{-v,j} by its own integral: the basis function of order -v is (-1)^v N J_v e^{-iv theta}.
    minus_v = signs * (basis(modes, rho, theta) @ (weights * values))
    reflected = coefficients(modes, lambda x, y: smooth_function(-x, y))
    assert np.abs(reflected - minus_v).max() <= FLOAT64.equation
    phi = coefficients(modes, smooth_function)
    assert np.abs(reflected - signs * phi.conj()).max() <= FLOAT64.equation
