"""Integration over the unit disc in polar coordinates.

Gauss-Legendre nodes in rho and uniform nodes in theta. The number of angles is a multiple of 8, and no
node lies on an axis, so quarter turns and reflections map the nodes onto each other.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class PolarRule(NamedTuple):
    """Nodes and weights: the integral of f over the disc is sum_{r,t} weights[r] f(radii[r], angles[t])."""

    radii: NDArray[np.float64]
    angles: NDArray[np.float64]
    weights: NDArray[np.float64]
    """One per radius, including the area element rho and the angular step."""


@lru_cache(maxsize=64)
def polar_rule(num_radii: int, num_angles: int) -> PolarRule:
    """Return a quadrature rule for the unit disc.

    It is exact for a polynomial of degree < 2 num_radii - 1 in rho times exp(i v theta) with
    abs(v) < num_angles. ``num_angles`` is rounded up to a multiple of 8.
    """
    num_angles = -(-num_angles // 8) * 8
    nodes, weights = np.polynomial.legendre.leggauss(num_radii)
    radii = (nodes + 1) / 2
    angles = (np.arange(num_angles) + 0.5) * (2 * np.pi / num_angles)
    return PolarRule(radii, angles, weights / 2 * radii * (2 * np.pi / num_angles))
