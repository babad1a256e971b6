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
    """One product: which order's matrix, from which run of filters, to how many maps."""

    order: int
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
        for v, order in enumerate(self.orders()):
            maps = 2 if order.num_sines else 1
            middle = order.start + order.num_cosines
            if self.mirror and order.num_sines:
                products.append(Product(v, slice(order.start, middle), maps))
                products.append(Product(v, slice(middle, order.stop), maps))
            else:
                products.append(Product(v, slice(order.start, order.stop), maps))
        return products

    def output_size(self, height: int, width: int, kernel_size: int) -> tuple[int, int]:
        sizes = zip((height, width), self.padding, self.dilation, self.stride)
        rows, columns = ((n + 2 * p - d * (kernel_size - 1) - 1) // s + 1 for n, p, d, s in sizes)
        return rows, columns


def mixing_matrices(weight: Tensor, geometry: Geometry) -> list[Tensor]:
    """For each order the tensor (filters, C, maps, O) that mixes its coefficients.

    SO(2): the maps are the real and the imaginary part of sum conj(kappa) phi, from cosines and sines;
    O(2): they come from Re(kappa) and from Im(kappa), the same for cosines and sines; order 0: one map.
    """
    rows = weight.permute(2, 1, 0)[geometry.sorted_rows()]
    matrices = []
    for order in geometry.orders():
        p, q = rows[order.start : order.stop].split([order.num_cosines, order.num_sines])
        if not order.num_sines:
            matrices.append(p.unsqueeze(2))
        elif geometry.mirror:
            matrices.append(torch.stack([p, q], 2))
        else:
            matrices.append(torch.cat([torch.stack([p, -q], 2), torch.stack([q, p], 2)]))
    return matrices


def weight_gradient(gradients: list[Tensor], geometry: Geometry) -> Tensor:
    """The transpose of :func:`mixing_matrices`; (O, C, num_weights)."""
    real, imaginary = [gradients[0].squeeze(2)], []
    for order, gradient in zip(geometry.orders()[1:], gradients[1:]):
        first, second = gradient.unbind(2)
        if geometry.mirror:
            real.append(first)
            imaginary.append(second)
        else:
            n = order.num_cosines
            real.append(first[:n] + second[n:])
            imaginary.append(first[n:] - second[:n])
    return torch.cat(real + imaginary).permute(2, 1, 0)
