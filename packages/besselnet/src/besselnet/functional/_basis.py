"""``BasisSpec``: everything that determines the fixed tables of a Bessel convolution."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from torch import Tensor

from besselnet.checks import check_choice, check_cutoff, check_kernel_size, check_scales
from besselnet.core import SAMPLINGS, ModeSet, Sampling, kernel_modes, sampled_filters
from besselnet.functional._plan import Plan, expansion_tensors, make_plan

Symmetry = Literal["SO(2)", "O(2)"]
SYMMETRIES: tuple[str, ...] = get_args(Symmetry)
# Numbers of a filter bank: a gigabyte in float32.
LARGEST_TABLE = 2**28


@dataclass(frozen=True)
class BasisSpec:
    """Settings of a Fourier-Bessel basis: kernel size, symmetry, cut-off, sampling and scales; hashable."""

    kernel_size: int
    symmetry: Symmetry
    share: float
    """Cut-off as a fraction of the paper's k_max = pi k / 2."""
    sampling: Sampling
    scales: tuple[int, ...]
    # Fields, because forward passes read them under torch.compile, which should not see scipy.
    modes: ModeSet = field(init=False, repr=False, compare=False)
    """Modes of the base size; all scales use the same."""
    radial_counts: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """Number of radial functions of each order."""
    order_slices: tuple[tuple[slice, slice], ...] = field(init=False, repr=False, compare=False)
    """Positions of the cosines and the sines of each order in the weights and in a filter bank."""
    plan: Plan = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        modes = kernel_modes(self.kernel_size, self.share)
        object.__setattr__(self, "modes", modes)
        object.__setattr__(self, "radial_counts", modes.radial_counts)
        object.__setattr__(self, "order_slices", modes.order_slices)
        object.__setattr__(self, "plan", make_plan(modes.radial_counts, self.symmetry == "O(2)"))

    @classmethod
    def checked(
        cls,
        kernel_size: object,
        *,
        symmetry: str = "SO(2)",
        cutoff: str | float = "strong",
        sampling: str = "cubic",
        scales: Sequence[int] | None = None,
    ) -> "BasisSpec":
        """Build a spec from user arguments; raise ``ValueError`` for invalid ones."""
        size = check_kernel_size(kernel_size)
        check_choice("symmetry", symmetry, SYMMETRIES)
        check_choice("sampling", sampling, SAMPLINGS)
        share = check_cutoff(cutoff)
        offsets = check_scales(scales, size)
        # About (pi k share / 4)^2 filters, see `modes_below`: before they are counted one by one.
        numbers = max(1.0, (math.pi * size * share / 4) ** 2) * (size + max(offsets)) ** 2
        if numbers > LARGEST_TABLE:
            raise ValueError(
                f"kernel_size={kernel_size!r} with cutoff={cutoff!r} and scales={scales!r}: filters must "
                f"have at most {LARGEST_TABLE} numbers in total, got about {numbers:.0e}"
            )
        return cls(size, symmetry, share, sampling, offsets)  # type: ignore[arg-type]

    @property
    def num_weights(self) -> int:
        """Number of real weights per pair of input and output channel, and of filters in a bank."""
        return self.plan.num_filters

    @property
    def num_maps(self) -> int:
        """Number of real maps per output channel whose squares are summed."""
        return self.plan.num_maps

    def tables(
        self, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> list[Tensor]:
        """Return one filter bank per scale: (num_weights, k', k') real filters, order by order.

        Convolving with them gives the real and imaginary parts of phi (Equation 4.3).
        """
        dtype = dtype or torch.get_default_dtype()
        sizes = [self.kernel_size + offset for offset in self.scales]
        filters = [sampled_filters(size, self.modes, self.sampling) for size in sizes]
        return [torch.tensor(bank, dtype=dtype, device=device) for bank in filters]

    def expansion(
        self, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the tables for :func:`expand_filters`: (maps weights,) integers, (maps weights, 1) signs."""
        return expansion_tensors(self.plan, dtype, device)
