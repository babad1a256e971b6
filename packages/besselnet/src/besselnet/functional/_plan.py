"""What follows from integers alone: which weight takes which coefficient to which map. Planned once.

Real coordinates. With phi_{v,j} = c + i s (c: cosine part, s: sine part) and kappa_{v,j} = p + i q, the
products of the paper's Equations 5.6 and 5.7 are bilinear in the weights (p, q) and the coefficients (c, s):

    SO(2):  conj(kappa) phi = (p c + q s) + i (p s - q c)      two maps for each order, one for order 0
    O(2):   p c, p s, q c, q s                                 four maps for each order, one for order 0

The squares of all maps add up to the response. Weights and filters lie order by order, of each order first
the cosines, then the sines (:class:`besselnet.core.ModeSet`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor


class Window(NamedTuple):
    """Where a convolution reads its input."""

    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]

    def output_size(self, height: int, width: int, kernel_size: int) -> tuple[int, int]:
        sizes = zip((height, width), self.padding, self.dilation, self.stride)
        rows, columns = ((n + 2 * p - d * (kernel_size - 1) - 1) // s + 1 for n, p, d, s in sizes)
        return rows, columns


class Run(NamedTuple):
    """Neighbouring matrix products of one shape: from filters to maps."""

    filters: slice
    """Of all of them together, an equal share for each."""
    num_products: int
    num_maps: int
    """Of each."""


# Compared by identity: `make_plan` gives one object for the same integers.
@dataclass(frozen=True, eq=False)
class Plan:
    """The matrix products of one response.

    A product takes a run of filters to one map (order 0) or two. SO(2) mixes the cosines and sines of an
    order, O(2) keeps them apart.
    """

    radial_counts: tuple[int, ...]
    mirror: bool
    """O(2) instead of SO(2)."""
    num_filters: int
    num_maps: int
    products: tuple[Run, ...]
    """One product each."""
    runs: tuple[Run, ...]
    """The same, neighbours of one shape together."""
    weight_of: tuple[int, ...]
    """(2 F,): which weight takes each filter to the first map of its product, then to the second."""
    signs: tuple[int, ...]
    """(2 F,): with which sign; 0 where there is no second map."""

    @property
    def multiply_adds(self) -> int:
        """Per pixel and pair of channels: 4 for a mode, 1 for a mode of order 0."""
        return 4 * sum(self.radial_counts) - 3 * self.radial_counts[0]


@lru_cache(maxsize=256)
def make_plan(radial_counts: tuple[int, ...], mirror: bool) -> Plan:
    """The plan for orders of so many radial functions each."""
    products, first, second, signs = [], [], [], []
    start = 0
    for v, count in enumerate(radial_counts):
        p = list(range(start, start + count))
        q = [n + count for n in p] if v else []
        first += p + (p if mirror else q) if v else p
        second += (q + q if mirror else q + p) if v else p
        signs += ([1 if mirror else -1] * count + [1] * count) if v else [0] * count
        middle, stop = start + count, start + count + len(q)
        bounds = [(start, middle), (middle, stop)] if mirror and v else [(start, stop)]
        products += [Run(slice(*pair), 1, 2 if v else 1) for pair in bounds]
        start = stop
    runs = []
    for (_, num_maps), group in groupby(
        products, lambda r: (r.filters.stop - r.filters.start, r[2])
    ):
        alike = list(group)
        whole = slice(alike[0].filters.start, alike[-1].filters.stop)
        runs.append(Run(whole, len(alike), num_maps))
    return Plan(
        radial_counts=radial_counts,
        mirror=mirror,
        num_filters=start,
        num_maps=sum(run.num_maps for run in products),
        products=tuple(products),
        runs=tuple(runs),
        weight_of=tuple(first + second),
        signs=tuple([1] * start + signs),
    )


@lru_cache(maxsize=256)
def _mixing_tensors(plan: Plan, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    index = torch.tensor(plan.weight_of, device=device)
    return index, torch.tensor(plan.signs, dtype=dtype, device=device)[:, None, None]


def mixing_matrix(weight: Tensor, plan: Plan) -> Tensor:
    """Return the weights (O, C, F) as the matrix from coefficients to maps, (2, O, F, C)."""
    index, signs = _mixing_tensors(plan, weight.dtype, weight.device)
    chosen = weight.permute(2, 0, 1).index_select(0, index) * signs
    return chosen.unflatten(0, (2, -1)).transpose(1, 2).contiguous()


def weight_gradient(gradient: Tensor, plan: Plan) -> Tensor:
    """The transpose of :func:`mixing_matrix`: (2, O, F, C) -> (O, C, F)."""
    index, signs = _mixing_tensors(plan, gradient.dtype, gradient.device)
    chosen = gradient.transpose(1, 2).flatten(0, 1) * signs
    total = chosen.new_zeros(plan.num_filters, *chosen.shape[1:])
    return total.index_add_(0, index, chosen).permute(1, 2, 0)


@lru_cache(maxsize=256)
def expansion_table(plan: Plan) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """For each map and weight, (maps F,): the filter between them, and its sign, 0 where there is none."""
    index, signs = [], []
    for run in plan.products:
        for number in range(run.num_maps):
            between = {
                plan.weight_of[place]: (f, plan.signs[place])
                for f in range(run.filters.start, run.filters.stop)
                for place in (f + number * plan.num_filters,)
            }
            pairs = [between.get(n, (0, 0)) for n in range(plan.num_filters)]
            index += [f for f, _ in pairs]
            signs += [sign for _, sign in pairs]
    return tuple(index), tuple(signs)


def expansion_tensors(
    plan: Plan, dtype: torch.dtype | None, device: torch.device | str | None
) -> tuple[Tensor, Tensor]:
    """:func:`expansion_table` as tensors: (maps F,) integers, (maps F, 1) signs."""
    index, signs = expansion_table(plan)
    column = torch.tensor(signs, dtype=dtype or torch.get_default_dtype(), device=device)
    return torch.tensor(index, device=device), column.unsqueeze(1)
