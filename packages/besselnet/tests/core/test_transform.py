"""The numerical parts of the whole-image transform, against library functions and exact values."""

import numpy as np
import pytest
from scipy.special import jv

from besselnet.core import kernel_modes, polar_rule
from besselnet.core._transform import bessel_values, lagrange_matrix, synthesis_tables


@pytest.mark.parametrize("largest", [3.0, 50.0, 400.0])
def test_bessel_values_are_those_of_the_library(largest):
    rng = np.random.default_rng(0)
    orders = rng.integers(0, int(largest) + 10, 100)
    arguments = largest * rng.random((100, 20))
    arguments[:, 0] = 0
    difference = bessel_values(orders, arguments) - jv(orders[:, None], arguments)
    # Rounding of x is amplified to eps * x in a function that oscillates as J_v does.
    assert np.abs(difference).max() < 1e-14 + np.finfo(float).eps * largest


def test_lagrange_matrix_is_exact_for_polynomials():
    nodes = polar_rule(12, 8).radii
    points = np.concatenate([np.linspace(0, 1, 30), nodes[3:5]])
    matrix = lagrange_matrix(nodes, points)
    for degree in range(12):
        assert np.abs(matrix @ nodes**degree - points**degree).max() < 1e-12


@pytest.mark.parametrize("size", [5, 8, 9])
def test_quarters_tile_the_disc(size):
    """Every pixel inside the disc is taken from one place, those outside from none."""
    tables = synthesis_tables(size, kernel_modes(size, 1.0), "bilinear")
    pixels = len(tables.pixel_radius)
    axis = np.arange(size) - (size - 1) / 2
    inside = axis[:, None] ** 2 + axis**2 <= ((size - 1) / 2) ** 2
    position = tables.position.reshape(size, size)
    assert np.array_equal(position < 4 * pixels, inside)
    taken = position[inside]
    assert len(np.unique(taken)) == len(taken)
