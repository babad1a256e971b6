"""The fixed tables of a Bessel convolution as tensors.

Real coordinates. With phi_{v,j} = c + i s (c: cosine part, s: sine part) and kappa_{v,j} = p + i q, the
products of the paper's Equations 5.6 and 5.7 are real linear maps of the pairs (c, s):

    SO(2):  conj(kappa) phi = (p c + q s) + i (p s - q c)      two maps for each order, one for order 0
    O(2):   p c, p s, q c, q s                                 four maps for each order, one for order 0

The squares of all maps add up to the response.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from besselnet.core import SAMPLINGS, ModeSet, Sampling, kernel_modes, sampled_basis

Symmetry = Literal["SO(2)", "O(2)"]
SYMMETRIES: tuple[str, ...] = get_args(Symmetry)
CUTOFFS = {"soft": 1.0, "strong": 0.5}
ModeNorms = Literal["unit", "authors", "authors-pixels"]
MODE_NORMS: tuple[str, ...] = get_args(ModeNorms)


def check_choice(name: str, value: object, allowed: Sequence[str]) -> None:
    """Refuse a value that is not one of the words allowed for an argument."""
    if value not in allowed:
        raise ValueError(f"{name}={value!r}: allowed are {', '.join(map(repr, allowed))}")


def cutoff_share(cutoff: str | float) -> float:
    """The cut-off as a share of the paper's k_max = pi k / 2."""
    if isinstance(cutoff, str) and cutoff in CUTOFFS:
        return CUTOFFS[cutoff]
    if isinstance(cutoff, (int, float)) and not isinstance(cutoff, bool):
        share = float(cutoff)
        if math.isfinite(share) and share > 0:
            return share
    raise ValueError(
        f"cutoff={cutoff!r}: allowed are 'soft', 'strong' or a finite number > 0, a share of pi k / 2"
    )


def check_kernel_size(kernel_size: object) -> int:
    """A square kernel, given as a positive integer or as a pair of equal ones."""
    size = kernel_size
    if isinstance(size, (tuple, list)) and len(size) == 2 and size[0] == size[1]:
        size = size[0]
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1:
        raise ValueError(
            f"kernel_size={kernel_size!r}: allowed is an integer >= 1 or a pair of equal ones "
            "(a disc has one radius)"
        )
    return int(size)


def check_scales(scales: object, kernel_size: int) -> tuple[int, ...]:
    """Size offsets of a multi-scale layer; no scales means the base size alone."""
    if scales is None:
        return (0,)
    offsets = tuple(scales) if isinstance(scales, (tuple, list)) else ()
    good = all(isinstance(s, int) and not isinstance(s, bool) and s % 2 == 0 for s in offsets)
    if not offsets or not good or len(set(offsets)) != len(offsets):
        raise ValueError(
            f"scales={scales!r}: allowed is None or a list of different even integers such as "
            "(-2, 0, 2), added to kernel_size (even, so that the centres agree)"
        )
    if kernel_size + min(offsets) < 1:
        raise ValueError(
            f"scales={scales!r} with kernel_size={kernel_size}: allowed are offsets that leave every "
            f"kernel at least 1 pixel, that is >= {1 - kernel_size}"
        )
    return offsets


@dataclass(frozen=True)
class BasisSpec:
    """Everything that determines the tables of a Bessel convolution; hashable."""

    kernel_size: int
    symmetry: Symmetry
    share: float
    sampling: Sampling
    scales: tuple[int, ...]
    mode_norms: ModeNorms = "unit"
    modes: ModeSet = field(init=False, repr=False, compare=False)
    """The modes of the base size; every scale uses the same."""
    radial_counts: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """How many radial functions each order has."""
    order_slices: tuple[tuple[slice, slice], ...] = field(init=False, repr=False, compare=False)
    """Where the cosines and the sines of each order stand among the weights and in a filter bank."""

    def __post_init__(self) -> None:
        # Kept as fields: forward passes read them under torch.compile, which should not see scipy.
        object.__setattr__(self, "modes", kernel_modes(self.kernel_size, self.share))
        object.__setattr__(self, "radial_counts", self.modes.radial_counts)
        object.__setattr__(self, "order_slices", tuple(self.modes.order_slices()))

    @classmethod
    def checked(
        cls,
        kernel_size: object,
        *,
        symmetry: str = "SO(2)",
        cutoff: str | float = "strong",
        sampling: str = "bilinear",
        scales: Sequence[int] | None = None,
        mode_norms: str = "unit",
    ) -> "BasisSpec":
        """Build from what a user wrote, or raise a ``ValueError`` that says what is allowed."""
        size = check_kernel_size(kernel_size)
        check_choice("symmetry", symmetry, SYMMETRIES)
        check_choice("sampling", sampling, SAMPLINGS)
        check_choice("mode_norms", mode_norms, MODE_NORMS)
        return cls(
            kernel_size=size,
            symmetry=symmetry,  # type: ignore[arg-type]
            share=cutoff_share(cutoff),
            sampling=sampling,  # type: ignore[arg-type]
            scales=check_scales(scales, size),
            mode_norms=mode_norms,  # type: ignore[arg-type]
        )

    @property
    def num_weights(self) -> int:
        """Real weights per pair of input and output channel."""
        return 2 * sum(self.radial_counts) - self.radial_counts[0]

    @property
    def num_maps(self) -> int:
        """Real maps per output channel whose squares are summed."""
        per_order = 2 if self.symmetry == "SO(2)" else 4
        return per_order * (len(self.radial_counts) - 1) + 1

    def tables(
        self, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> list[Tensor]:
        """One filter bank for each scale: (num_weights, k', k') real filters, cosines then sines.

        A convolution with them gives the real and imaginary parts of phi (Equation 4.3), times a
        factor for each mode where `mode_norms` is not "unit".
        """
        factors = self._mode_factors()
        return [
            torch.tensor(
                filter_bank(self.kernel_size + offset, self.modes, self.sampling) * factors,
                dtype=dtype or torch.get_default_dtype(),
                device=device,
            )
            for offset in self.scales
        ]

    def _mode_factors(self) -> NDArray[np.float64]:
        """What the filters are multiplied with, (num_weights, 1, 1): 1 for unit norms.

        The authors' code takes the norm of J_v(k_{v,j} r) for r from 0 to the radius in pixels, where
        1 is the rim; as a sum over whole r, and filters without the area of a pixel. "authors" has the
        first of these alone, as an integral. Every scale has the factors of the base size, so that their
        powers compare.
        """
        if self.mode_norms == "unit":
            return np.ones((1, 1, 1))
        radius = max(1.0, (self.kernel_size - 1) / 2)
        modes = self.modes.modes
        if self.mode_norms == "authors":
            norms = [mode.norm_up_to(radius) for mode in modes]
        else:
            norms = [radius**2 * mode.norm_on_pixels(int(radius)) for mode in modes]
        factors = np.array([norm / mode.norm for norm, mode in zip(norms, modes)])
        return np.concatenate([factors, factors[self.radial_counts[0] :]])[:, None, None]


def filter_bank(kernel_size: int, modes: ModeSet, sampling: Sampling) -> NDArray[np.float64]:
    """Real parts of all T_{v,j}, then imaginary parts of those with v > 0; (num_real, k, k)."""
    taps = sampled_basis(kernel_size, modes, sampling)
    return np.concatenate([taps.real, taps.imag[modes.radial_counts[0] :]])
