"""What the networks of besselnet are made of: convolution, normalisation, activation."""

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from besselnet.checks import check_choice, check_count, check_cutoff
from besselnet.functional import Algorithm, Response
from besselnet.nn import AttentiveNorm2d, BesselConv2d, Softsign

# Hundreds of times what the networks here have.
_MOST_LAYERS = 1000
_ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU, "softsign": Softsign}
_NORMALIZATIONS = {"batch": nn.BatchNorm2d, "attentive": AttentiveNorm2d, "none": nn.Identity}


# One for all stages, or one for each; further stages repeat the last.
Cutoffs = str | float | Sequence[str | float]


@dataclass(frozen=True)
class Blocks:
    """The options that all blocks of a network share, see `besselnet.models._besselnet.besselnet`."""

    symmetry: str
    cutoff: Cutoffs
    scales: Sequence[int] | None
    response: Response
    sampling: str
    activation: str
    normalization: str
    algorithm: Algorithm

    def __post_init__(self) -> None:
        check_choice("symmetry", self.symmetry, ("SO(2)", "O(2)", "none"))
        check_choice("activation", self.activation, tuple(_ACTIVATIONS))
        check_choice("normalization", self.normalization, tuple(_NORMALIZATIONS))
        if not self._cutoffs():
            raise ValueError("cutoff=[]: must have a cut-off for the first stage at least")
        for cutoff in self._cutoffs():
            check_cutoff(cutoff)

    def _cutoffs(self) -> Sequence[str | float]:
        return self.cutoff if isinstance(self.cutoff, list | tuple) else (self.cutoff,)

    def layers(self, n_in: int, n_out: int, size: int, padding: int, stage: int) -> list[nn.Module]:
        """Convolution with a kernel of this size, normalisation, activation; stages count from 0."""
        return [
            self._convolution(n_in, n_out, size, padding, stage),
            _NORMALIZATIONS[self.normalization](n_out),
            _ACTIVATIONS[self.activation](),
        ]

    def _convolution(self, n_in: int, n_out: int, size: int, padding: int, stage: int) -> nn.Module:
        bias = self.normalization == "none"  # a normalisation takes a constant out again
        if self.symmetry == "none":
            return nn.Conv2d(n_in, n_out, size, padding=padding, bias=bias)
        cutoffs = self._cutoffs()
        return BesselConv2d(
            n_in,
            n_out,
            size,
            padding=padding,
            bias=bias,
            symmetry=self.symmetry,
            cutoff=cutoffs[min(stage, len(cutoffs) - 1)],
            scales=self.scales,
            response=self.response,
            sampling=self.sampling,
            algorithm=self.algorithm,
        )


def widened(channels: int, width: float) -> int:
    """Return channels times width, rounded down, at least 1."""
    # 40 * 0.725 is 29 on paper and 28.999... in floating point.
    return max(1, int(channels * width + 1e-9))


def check_odd_kernel(kernel_size: object) -> None:
    """Refuse a side of kernels that is not odd and at least 3."""
    if check_count("kernel_size", kernel_size, 3) % 2 == 0:
        raise ValueError(f"kernel_size={kernel_size}: must be an odd integer >= 3")


def check_channels(channels: object) -> tuple[tuple[int, ...], ...]:
    """A list of channels for every stage, or a `ValueError`."""
    try:
        plan = tuple(tuple(check_count("channels", c) for c in stage) for stage in channels)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        plan = ()
    if not plan or not all(plan) or sum(map(len, plan)) > _MOST_LAYERS:
        raise ValueError(
            f"channels={reprlib.repr(channels)}: must be a list of integers >= 1 for each stage, such as "
            "[[16], [32, 32], [64, 64]]"
        )
    return plan
