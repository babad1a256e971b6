"""The one table of tolerances: how far two ways of computing the same thing may lie apart.

Differences are relative to the largest number in the result, see :func:`assert_same`.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Tolerance(NamedTuple):
    rounding: float
    """Same sums in another order: a rotated image, a compiled layer."""
    equation: float
    """Another formula for the same number: loops, analytic identities."""


TOLERANCES = {
    torch.float64: Tolerance(rounding=1e-12, equation=1e-10),
    torch.float32: Tolerance(rounding=1e-5, equation=1e-4),
    # 8 bits of mantissa: 0.4% for each number; squares double it.
    torch.bfloat16: Tolerance(rounding=1e-2, equation=3e-2),
}
FLOAT64 = TOLERANCES[torch.float64]


def relative_difference(actual: Tensor, expected: Tensor) -> float:
    """Largest difference over the largest number expected; the shapes must agree."""
    assert actual.shape == expected.shape
    difference = (actual.double() - expected.double()).abs().max()
    return (difference / expected.double().abs().max()).item()


def assert_same(actual: Tensor, expected: Tensor, tolerance: float) -> None:
    """Fail, also for NaN, unless the relative difference is within the tolerance."""
    difference = relative_difference(actual, expected)
    assert difference <= tolerance, f"relative difference {difference:.2e} > {tolerance:.0e}"
