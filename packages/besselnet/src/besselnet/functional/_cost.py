"""Cost of the two algorithms, and the choice of ``algorithm="auto"``.

The cost is counted per output pixel in multiply-adds. Every number that passes through memory counts as
``OPERATIONS_PER_NUMBER`` of them: a core of a current CPU does tens of multiply-adds in the time it takes
to write a number to the cache and read it again.
"""

from functools import lru_cache
from typing import Literal, NamedTuple

import torch

from besselnet.functional._basis import BasisSpec

OPERATIONS_PER_NUMBER = 16
# What the factored algorithm needs for the same count: its convolutions have one channel each, its products
# are small, and groups go one after the other. From `besselnet-lab bench choice`.
FACTORED_HANDICAP = 1.65
# What its many small steps cost besides, however few pixels there are.
FACTORED_STEPS = 2e7


class Cost(NamedTuple):
    """Multiply-adds, and intermediate numbers written and read, of a forward pass, per output pixel."""

    operations: int
    numbers: int

    @property
    def total(self) -> int:
        return self.operations + OPERATIONS_PER_NUMBER * self.numbers


def direct_cost(spec: BasisSpec, in_channels: int, out_channels: int, groups: int) -> Cost:
    """Return the cost of ``num_maps`` plain convolutions; all maps are written."""
    maps = spec.num_maps * out_channels
    return Cost(maps * in_channels // groups * spec.kernel_size**2, maps)


def factored_cost(spec: BasisSpec, in_channels: int, out_channels: int, groups: int) -> Cost:
    """Return the cost of the factored algorithm.

    Analysis: every filter on every channel. Mixing: 4 products per mode, 1 per mode of order 0.
    """
    analysed = spec.num_weights * in_channels
    maps = spec.num_maps * out_channels
    mixed = spec.plan.multiply_adds * in_channels // groups * out_channels
    # Coefficients are written and sorted, and read again for the product.
    return Cost(analysed * spec.kernel_size**2 + mixed, 2 * analysed + maps)


def cheaper_algorithm(
    spec: BasisSpec,
    in_channels: int,
    out_channels: int,
    groups: int,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    pixels: int | None = None,
    fused: bool = False,
) -> Literal["factored", "direct"]:
    """Return the algorithm with the smaller total cost, including a handicap for "factored".

    With several scales, the base size decides. ``pixels`` is the number of output pixels in the batch, None
    for many. On CPUs, torch has no fast depthwise convolution in float64, which the analysis needs. If
    ``fused``, the native kernel computes the factored algorithm, and it is always chosen: it is the faster
    one on every shape of `besselnet-lab bench layer`. `bench choice` tests other shapes.
    """
    if device == "cpu" and dtype == torch.float64:
        return "direct"
    if fused:
        return "factored"
    # A graph is planned once, and needs no cache.
    compare = saving.__wrapped__ if torch.compiler.is_compiling() else saving
    steps = 0 if pixels is None else FACTORED_STEPS / max(pixels, 1)
    return "factored" if compare(spec, in_channels, out_channels, groups) > steps else "direct"


@lru_cache(maxsize=1024)
def saving(spec: BasisSpec, in_channels: int, out_channels: int, groups: int) -> float:
    """What the factored algorithm saves per pixel."""
    shape = (spec, in_channels, out_channels, groups)
    return direct_cost(*shape).total - FACTORED_HANDICAP * factored_cost(*shape).total
