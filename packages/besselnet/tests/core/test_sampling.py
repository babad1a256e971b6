"""From the disc to pixels."""

import cmath
import math

import numpy as np
import pytest
from scipy.special import jv

from besselnet.core import (
    SAMPLINGS,
    disc_radius,
    interpolation_matrix,
    kernel_modes,
    polar_rule,
    sampled_basis,
    sampled_filters,
)
from besselnet.core import _sampling as sampling_module
from tolerances import FLOAT64

KERNEL_SIZES = range(1, 10)
ALL = [(k, s) for k in KERNEL_SIZES for s in SAMPLINGS]


@pytest.mark.parametrize(("sampling", "degree"), [("bilinear", 1), ("cubic", 2)])
@pytest.mark.parametrize("size", [3, 4, 7])
def test_interpolation_reproduces_polynomials(sampling, degree, size):
    """Also between the last two pixels, where Keys' kernel reads beyond the edge."""
    positions = np.linspace(0, size - 1, 41)
    matrix = interpolation_matrix(positions, size, sampling)
    for power in range(degree + 1):
        values = matrix @ np.arange(size, dtype=float) ** power
        assert np.abs(values - positions**power).max() <= FLOAT64.equation


@pytest.mark.parametrize("sampling", ["bilinear", "cubic"])
@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_interpolation_passes_through_the_pixels(sampling, size):
    matrix = interpolation_matrix(np.arange(size, dtype=float), size, sampling)
    assert np.abs(matrix - np.eye(size)).max() <= FLOAT64.rounding


@pytest.mark.parametrize(("kernel_size", "sampling"), ALL)
def test_quarter_turn_multiplies_each_filter_by_its_phase(kernel_size, sampling):
    modes = kernel_modes(kernel_size, 1.0)
    taps = sampled_basis(kernel_size, modes, sampling)
    for mode, filter_ in zip(modes.modes, taps):
        # The filter conjugates: turning it counter-clockwise by 90 degrees gives i^v.
        assert np.abs(np.rot90(filter_) - 1j**mode.order * filter_).max() <= FLOAT64.rounding


@pytest.mark.parametrize(("kernel_size", "sampling"), ALL)
def test_each_filter_is_even_or_odd_as_its_order_says(kernel_size, sampling):
    """Cosines are even in y and in x as v is; sines are odd in y and in x as v is not."""
    modes = kernel_modes(kernel_size, 1.0)
    bank = sampled_filters(kernel_size, modes, sampling)
    bound = FLOAT64.rounding * np.abs(bank).max()
    for order, (cosines, sines) in enumerate(modes.order_slices):
        sign = (-1) ** order
        for filters, in_y, in_x in ((bank[cosines], 1, sign), (bank[sines], -1, -sign)):
            assert np.abs(filters - in_y * filters[:, ::-1]).max(initial=0) <= bound
            assert np.abs(filters - in_x * filters[:, :, ::-1]).max(initial=0) <= bound


@pytest.mark.parametrize(("kernel_size", "sampling"), ALL)
def test_mirroring_conjugates_each_filter(kernel_size, sampling):
    modes = kernel_modes(kernel_size, 1.0)
    taps = sampled_basis(kernel_size, modes, sampling)
    signs = np.array([(-1) ** m.order for m in modes.modes])[:, None, None]
    assert np.abs(taps[:, :, ::-1] - signs * taps.conj()).max() <= FLOAT64.rounding


@pytest.mark.parametrize("sampling", ["bilinear", "cubic"])
@pytest.mark.parametrize("kernel_size", KERNEL_SIZES)
def test_a_constant_image_excites_the_constant_alone(kernel_size, sampling):
    """phi_{0,0} = sqrt(pi) for the image 1, whatever the kernel's size: scales are comparable."""
    taps = sampled_basis(kernel_size, kernel_modes(kernel_size, 1.0), sampling)
    sums = taps.sum((1, 2))
    assert abs(sums[0] - math.sqrt(math.pi)) <= FLOAT64.equation
    assert np.abs(sums[1:]).max(initial=0) <= FLOAT64.equation


def looped_taps(kernel_size, modes, sampling):
    """The integral of conj(N J_v e^{iv theta}) times each pixel's interpolation kernel, node by node."""
    radius = disc_radius(kernel_size, sampling)
    num_radii = math.ceil(sampling_module.NODES_PER_PIXEL * radius) + modes.num_orders
    rule = polar_rule(num_radii, math.ceil(sampling_module.NODES_PER_PIXEL * 2 * math.pi * radius))
    taps = np.zeros((len(modes), kernel_size, kernel_size), dtype=complex)
    centre = (kernel_size - 1) / 2
    for rho, weight in zip(rule.radii, rule.weights):
        for theta in rule.angles:
            row = centre - radius * rho * math.sin(theta)
            column = centre + radius * rho * math.cos(theta)
            top, left = math.floor(row), math.floor(column)
            for i, mode in enumerate(modes.modes):
                v, _, k = mode
                norm = 1 / math.sqrt(math.pi)
                if k:
                    norm = 1 / math.sqrt(math.pi * (1 - v**2 / k**2) * jv(v, k) ** 2)
                value = weight * norm * jv(v, k * rho) * cmath.exp(-1j * v * theta)
                for r in (top, top + 1):
                    for c in (left, left + 1):
                        taps[i, r, c] += value * (1 - abs(row - r)) * (1 - abs(column - c))
    return taps


@pytest.mark.parametrize("kernel_size", [2, 3, 4])
def test_bilinear_taps_are_the_integral_with_the_tent(kernel_size):
    modes = kernel_modes(kernel_size, 1.0)
    expected = looped_taps(kernel_size, modes, "bilinear")
    taps = sampled_basis(kernel_size, modes, "bilinear")
    assert np.abs(taps - expected).max() <= FLOAT64.equation


@pytest.mark.parametrize("kernel_size", [3, 5, 8])
def test_point_taps_are_equation_6_3(kernel_size):
    modes = kernel_modes(kernel_size, 1.0)
    taps = sampled_basis(kernel_size, modes, "point")
    n = (kernel_size - 1) / 2
    for (v, _, k), filter_ in zip(modes.modes, taps):
        norm = 1 / math.sqrt(math.pi)
        if k:
            norm = 1 / math.sqrt(math.pi * (1 - v**2 / k**2) * jv(v, k) ** 2)
        for row in range(kernel_size):
            for column in range(kernel_size):
                x, y = (column - n) / n, (n - row) / n
                rho, theta = math.hypot(x, y), math.atan2(y, x)
                inside = rho <= 1 + 1e-9
                expected = inside * norm * jv(v, k * rho) * cmath.exp(-1j * v * theta) / n**2
                assert abs(filter_[row, column] - expected) <= FLOAT64.equation


@pytest.mark.parametrize("sampling", ["bilinear", "cubic"])
def test_coefficients_of_a_smooth_function_converge(sampling):
    """The taps turn pixels into the coefficients of the function behind them, better for larger k."""

    def function(x, y):
        return np.exp(0.7 * x - 0.4 * y) * np.cos(2.1 * x + 1.3 * y + 0.5)

    modes = kernel_modes(5, 0.5)
    rule = polar_rule(40, 64)
    rho, theta = (a.ravel() for a in np.meshgrid(rule.radii, rule.angles, indexing="ij"))
    values = np.repeat(rule.weights, len(rule.angles))
    values = values * function(rho * np.cos(theta), rho * np.sin(theta))
    exact = np.array(
        [(m.radial_function(rho) * np.exp(-1j * m.order * theta)) @ values for m in modes.modes]
    )
    errors = []
    for kernel_size in (5, 9, 17):
        radius = disc_radius(kernel_size, sampling)
        axis = (np.arange(kernel_size) - (kernel_size - 1) / 2) / radius
        taps = sampled_basis(kernel_size, modes, sampling)
        phi = (taps * function(axis[None, :], -axis[:, None])).sum((1, 2))
        errors.append(np.abs(phi - exact).max() / np.abs(exact).max())
    # The error of a linear interpolant falls as 1 / n^2, that of a cubic one faster: a factor of 4 or
    # more for each doubling of n, less what the first size is still away from its limit.
    assert errors[1] < errors[0] / 3
    assert errors[2] < errors[1] / 3


@pytest.mark.parametrize(("kernel_size", "sampling"), ALL)
def test_the_disc_lies_inside_the_kernel(kernel_size, sampling):
    radius = disc_radius(kernel_size, sampling)
    assert 0 < radius <= max((kernel_size - 1) / 2, 0.71)


def test_tables_are_shared_and_read_only():
    modes = kernel_modes(5, 0.5)
    taps = sampled_basis(5, modes, "bilinear")
    assert sampled_basis(5, kernel_modes(5, 0.5), "bilinear") is taps
    with pytest.raises(ValueError, match="read-only"):
        taps[0] = 0
