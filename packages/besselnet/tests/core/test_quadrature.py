import numpy as np
import pytest

from besselnet.core import polar_rule
from tolerances import FLOAT64


@pytest.mark.parametrize("degree", range(18))
def test_exact_for_polynomials_in_the_radius(degree):
    """The integral of rho^n over the disc is 2 pi / (n + 2)."""
    rule = polar_rule(10, 8)
    integral = rule.weights @ rule.radii**degree * len(rule.angles)
    assert abs(integral - 2 * np.pi / (degree + 2)) <= FLOAT64.rounding


@pytest.mark.parametrize("order", range(1, 16))
def test_exact_for_angular_orders_below_the_number_of_angles(order):
    rule = polar_rule(4, 16)
    assert abs(np.exp(1j * order * rule.angles).sum()) <= FLOAT64.rounding


@pytest.mark.parametrize("num_angles", [1, 8, 9, 100])
def test_nodes_are_carried_into_each_other(num_angles):
    """By quarter turns and by reflections; their number is rounded up to a multiple of 8."""
    angles = polar_rule(3, num_angles).angles
    assert len(angles) % 8 == 0
    assert 0 <= len(angles) - num_angles < 8
    points = np.exp(1j * angles)
    for moved in (1j * points, points.conj(), -points.conj()):
        distance = np.abs(moved[:, None] - points).min(1)
        assert distance.max() <= FLOAT64.rounding
