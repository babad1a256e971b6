"""The Fourier-Bessel functions that a kernel can represent.

The basis of the paper (Equation 4.1) on the unit disc is N_{v,j} J_v(k_{v,j} rho) exp(i v theta), where
k_{v,j} is the j-th root of J'_v (Neumann condition). Functions with a root above a cut-off oscillate too
fast for the pixel grid and are left out (Equation 4.7).

Symbols: ``v`` angular order, ``j`` radial index from 0, ``k_{v,j}`` is called ``root``.
Nothing here knows about pixels.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

# Its rooms load when they are first used: scipy.special takes longer to import than all of besselnet.
import scipy
from numpy.typing import NDArray


class Mode(NamedTuple):
    """One basis function: angular order v >= 0, radial index j >= 0 and root k_{v,j} of J'_v."""

    order: int
    radial: int
    root: float

    @property
    def norm(self) -> float:
        """Return N_{v,j}, for which the function has unit norm on the unit disc.

        J'_v(k) = 0, so 1 / N^2 = pi (1 - v^2 / k^2) J_v(k)^2. (The paper's Appendix A prints J_v instead of
        J_v^2.)
        """
        v, _, k = self
        if k == 0:
            return 1 / math.sqrt(math.pi)
        return 1 / math.sqrt(math.pi * (1 - (v / k) ** 2) * scipy.special.jv(v, k) ** 2)

    def radial_function(self, rho: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return N_{v,j} J_v(k_{v,j} rho)."""
        return self.norm * scipy.special.jv(self.order, self.root * rho)


def derivative_roots(order: int, upper: float) -> NDArray[np.float64]:
    """Return the roots of J'_v in [0, upper] in ascending order; for v = 0, the first is 0.

    >>> derivative_roots(0, 4.0).round(4)
    array([0.    , 3.8317])
    """
    if order == 0:
        # J'_0 = -J_1, whose positive roots are tabulated to full precision.
        positive = scipy.special.jn_zeros(1, max(1, math.ceil(upper / math.pi) + 1))
        roots = np.concatenate([[0.0], positive])
    else:
        # The first root exceeds v, and neighbours are less than 2 v^{1/3} + pi apart and more than pi.
        roots = scipy.special.jnp_zeros(order, max(1, math.ceil((upper - order) / math.pi) + 2))
    return roots[roots <= upper]


@dataclass(frozen=True)
class ModeSet:
    """All modes with root <= k_max, ordered by v, then j.

    A real image has phi_{-v,j} = (-1)^v conj(phi_{v,j}) (Equation 4.6), so v >= 0 suffices, and
    phi_{0,j} is real. In real numbers, a mode is a cosine and, for v > 0, a sine. They are stored order by
    order: first all cosines of an order, then all its sines.
    """

    modes: tuple[Mode, ...]

    def __len__(self) -> int:
        return len(self.modes)

    @cached_property
    def radial_counts(self) -> tuple[int, ...]:
        """Number of radial functions of each order v = 0, 1, ..."""
        orders = [mode.order for mode in self.modes]
        return tuple(orders.count(v) for v in range(orders[-1] + 1))

    @property
    def num_orders(self) -> int:
        return len(self.radial_counts)

    @property
    def num_real(self) -> int:
        """Number of real coefficients of a real function: 2 per mode, 1 per mode of order 0."""
        return 2 * len(self) - self.radial_counts[0]

    @cached_property
    def order_slices(self) -> tuple[tuple[slice, slice], ...]:
        """Positions of the cosines and the sines of each order among the real coefficients.

        Order 0 has no sines: its second slice is empty.
        """
        slices, start = [], 0
        for v, count in enumerate(self.radial_counts):
            middle, stop = start + count, start + (2 * count if v else count)
            slices.append((slice(start, middle), slice(middle, stop)))
            start = stop
        return tuple(slices)


@lru_cache(maxsize=256)
def modes_below(k_max: float) -> ModeSet:
    """Return the modes with root <= k_max (Equation 4.7)."""
    modes: list[Mode] = []
    order = 0
    while len(roots := derivative_roots(order, k_max)):
        modes.extend(Mode(order, j, float(root)) for j, root in enumerate(roots))
        order += 1
    return ModeSet(tuple(modes))


def kernel_modes(kernel_size: int, cutoff: float) -> ModeSet:
    """Return the modes of a kernel of k pixels, with k_max = cutoff * pi k / 2.

    cutoff = 1 is the paper's k_max ("soft"), 1/2 is its k_max / 2 ("strong"). A kernel of one pixel has
    only the constant.

    >>> [kernel_modes(7, c).num_real for c in (1.0, 0.5)]
    [36, 12]
    """
    return modes_below(0.0 if kernel_size == 1 else cutoff * math.pi * kernel_size / 2)
