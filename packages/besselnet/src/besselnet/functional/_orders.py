"""What belongs to which angular order: filters, weights, matrix products. No arithmetic on images.

A filter bank lists all cosines, then all sines (:class:`besselnet.core.ModeSet`); the factored algorithm
wants them sorted by order, so that each order is one matrix product.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Order(NamedTuple):
    """Where one angular order stands in a bank that is sorted by order (cosines, then sines)."""

    start: int
    num_cosines: int
    num_sines: int

    @property
    def stop(self) -> int:
        return self.start + self.num_cosines + self.num_sines


class Product(NamedTuple):
    """One matrix product: from which run of filters, to how many maps."""

    filters: slice
    num_maps: int


class Geometry(NamedTuple):
    """What a call is about, in plain integers."""

    radial_counts: Sequence[int]
    mirror: bool
    """O(2) instead of SO(2)."""
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]

    def orders(self) -> list[Order]:
        orders, start = [], 0
        for v, count in enumerate(self.radial_counts):
            orders.append(Order(start, count, count if v else 0))
            start = orders[-1].stop
        return orders

    def sorted_rows(self) -> list[int]:
        """Rows of a bank (all cosines, then all sines) in the order of :class:`Order`."""
        rows: list[int] = []
        first, shift = 0, sum(self.radial_counts[1:])
        for order in self.orders():
            cosines = range(first, first + order.num_cosines)
            rows += [*cosines, *(n + shift for n in cosines if order.num_sines)]
            first = cosines.stop
        return rows

    def products(self) -> list[Product]:
        """The matrix products of one response: SO(2) mixes cosines and sines, O(2) keeps them apart."""
        products = []
        for order in self.orders():
            maps = 2 if order.num_sines else 1
            middle = order.start + order.num_cosines
            if self.mirror and order.num_sines:
                products.append(Product(slice(order.start, middle), maps))
                products.append(Product(slice(middle, order.stop), maps))
            else:
                products.append(Product(slice(order.start, order.stop), maps))
        return products

    def output_size(self, height: int, width: int, kernel_size: int) -> tuple[int, int]:
        sizes = zip((height, width), self.padding, self.dilation, self.stride)
        rows, columns = ((n + 2 * p - d * (kernel_size - 1) - 1) // s + 1 for n, p, d, s in sizes)
        return rows, columns


def mixing_table(geometry: Geometry) -> tuple[list[int], list[int]]:
    """Which weight, with which sign, takes which filter to which map: two lists of 2 F.

    The first F entries are for the first map of each order, the others for the second. With weights p
    (cosines) and q (sines): SO(2) has p c + q s and p s - q c, O(2) has p and q on cosines and on sines.
    Order 0 has no second map: there the sign is 0.
    """
    rows, shift = geometry.sorted_rows(), sum(geometry.radial_counts[1:])
    first, second, signs = [], [], []
    for order in geometry.orders():
        cosines = rows[order.start : order.start + order.num_cosines]
        sines = rows[order.start + order.num_cosines : order.stop]
        others = [n + shift for n in cosines] if sines else cosines
        first += cosines + (cosines if geometry.mirror and sines else sines)
        second += others + ([] if not sines else others if geometry.mirror else cosines)
        sign = 0 if not sines else 1 if geometry.mirror else -1
        signs += [sign] * len(cosines) + [1] * len(sines)
    return first + second, [1] * len(first) + signs


def mixing_matrix(weight: Tensor, geometry: Geometry) -> Tensor:
    """The weights (O, C, num_weights) as the matrix from coefficients to maps, (2, O, F, C).

    The filters are sorted by order; those of one product make a run of columns.
    """
    index, signs = mixing_table(geometry)
    chosen = weight.permute(2, 0, 1)[index] * weight.new_tensor(signs)[:, None, None]
    return chosen.unflatten(0, (2, -1)).transpose(1, 2).contiguous()


def weight_gradient(gradient: Tensor, geometry: Geometry) -> Tensor:
    """The transpose of :func:`mixing_matrix`: (2, O, F, C) -> (O, C, num_weights)."""
    index, signs = mixing_table(geometry)
    chosen = gradient.transpose(1, 2).flatten(0, 1) * gradient.new_tensor(signs)[:, None, None]
    total = chosen.new_zeros(len(index) // 2, *chosen.shape[1:])
    total.index_add_(0, torch.tensor(index, device=chosen.device), chosen)
    return total.permute(1, 2, 0)
