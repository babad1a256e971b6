"""The layout for few channels: they are the batch of one ordinary convolution, and pixels are columns.

One convolution takes a batch of (channel, image) to all filters. Its result, sorted by filter, is a matrix
with rows (filter, channel) and columns (image, pixel): each order is a run of rows, and orders with equally
many radial functions make one batched product.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from besselnet.functional._orders import Geometry, Product, mixing_matrix, weight_gradient
from besselnet.functional._pieces import pieces, synthesise, workspace

# Filters that are analysed together even if one image then exceeds the workspace: fewer would leave the
# vector units empty.
FEWEST_FILTERS = 16


class Run(NamedTuple):
    """Neighbouring products of the same shape."""

    filters: slice
    num_products: int
    num_maps: int


def runs(geometry: Geometry) -> list[Run]:
    """All products, neighbours of the same shape together."""

    def shape(product: Product) -> tuple[int, int]:
        return product.filters.stop - product.filters.start, product.num_maps

    found = []
    for (_, num_maps), group in groupby(geometry.products(), shape):
        products = list(group)
        filters = slice(products[0].filters.start, products[-1].filters.stop)
        found.append(Run(filters, len(products), num_maps))
    return found


def bundles(geometry: Geometry, most: int) -> list[list[Run]]:
    """All runs in nearly equal shares of some ``most`` filters: a short rest would cost as much as a
    whole share.
    """
    everything = runs(geometry)
    filters = everything[-1].filters.stop
    count = -(-filters // most)
    shares: list[list[Run]] = [[]]
    for run in everything:
        if shares[-1] and run.filters.stop * count > filters * len(shares):
            shares.append([])
        shares[-1].append(run)
    return shares


class Step(NamedTuple):
    """The products of a run."""

    rows: slice
    """Of phi."""
    columns: slice
    """The same in the whole mixing matrix."""
    maps: slice
    """Of the maps."""
    matrices: Tensor
    """(products, maps O, rows of one product)."""

    def coefficients(self, phi: Tensor) -> Tensor:
        """The step's rows of phi (rows, columns), one matrix for each product."""
        return phi[self.rows].unflatten(0, (len(self.matrices), -1))

    def products(self, maps: Tensor) -> Tensor:
        """The step's part of the maps (maps, O, columns), one matrix for each product."""
        return maps[self.maps].view(len(self.matrices), -1, maps.shape[2])


def batches(matrix: Tensor, count: int) -> Tensor:
    """Columns of a matrix cut into equal runs: (rows, count n) -> (count, rows, n), without a copy."""
    return matrix.unflatten(1, (count, -1)).transpose(0, 1)


def as_columns(maps: Tensor) -> Tensor:
    """(n, O, H', W') as a contiguous matrix (O, columns)."""
    return maps.transpose(0, 1).flatten(1).contiguous()


class Bundle:
    """Some of the orders: all that is the same for every piece of the batch.

    Rows of phi are (filter, channel), those of the maps (map, output channel); columns are
    (image, pixel).
    """

    def __init__(self, bundle: list[Run], bank: Tensor, matrix: Tensor, geometry: Geometry) -> None:
        self.geometry = geometry
        self.outputs, _, self.channels = matrix.shape[1:]
        first, last = bundle[0].filters.start, bundle[-1].filters.stop
        self.bank = bank[first:last].unsqueeze(1)
        self.steps = []
        self.num_maps = 0
        for filters, count, num_maps in bundle:
            columns = slice(filters.start * self.channels, filters.stop * self.channels)
            start = first * self.channels
            rows = slice(columns.start - start, columns.stop - start)
            maps = slice(self.num_maps, self.num_maps + count * num_maps)
            self.num_maps = maps.stop
            part = matrix[:num_maps].flatten(0, 1).flatten(1)[:, columns]
            self.steps.append(Step(rows, columns, maps, batches(part, count)))
        self.phi = self.maps = bank.new_empty(0)

    def analyse(self, images: Tensor) -> Tensor:
        """phi of images (C, n, H, W); the next call overwrites it."""
        g = self.geometry
        maps = F.conv2d(
            images.flatten(0, 1)[:, None], self.bank, None, g.stride, g.padding, g.dilation
        )
        if self.phi.numel() < maps.numel():
            self.phi = torch.empty_like(maps).flatten()
        phi = self.phi[: maps.numel()].view(len(self.bank), len(maps), -1)
        phi.copy_(maps.flatten(2).transpose(0, 1))
        return phi.view(len(self.bank) * self.channels, -1)

    def mix(self, phi: Tensor) -> Tensor:
        """The maps (maps, O, columns); the next call overwrites them."""
        size = self.num_maps * self.outputs * phi.shape[1]
        if self.maps.numel() < size:
            self.maps = phi.new_empty(size)
        maps = self.maps[:size].view(self.num_maps, self.outputs, -1)
        for step in self.steps:
            torch.bmm(step.matrices, step.coefficients(phi), out=step.products(maps))
        return maps

    def add_power(self, images: Tensor, power: Tensor, linear: Tensor | None) -> None:
        """Add the squares of the maps to ``power`` (O, columns).

        With ``linear`` the first map, that of order 0, is written there and left out of the sum.
        """
        maps = self.mix(self.analyse(images))
        if linear is not None:
            linear.copy_(maps[0])
            maps = maps[1:]
        power += maps.to(power.dtype).square_().sum(0)

    def pull_back(
        self,
        images: Tensor,
        slope: Tensor,
        linear: Tensor | None,
        total: Tensor,
        target: Tensor | None,
    ) -> None:
        """Add the gradient of the mixing matrix to ``total`` and that of the images to ``target``.

        ``slope`` (O, columns) times a map is the gradient of that map; ``linear`` (O, columns), if
        given, is the gradient of the first map instead. ``target`` (n, H, W, C) is None if the gradient
        of the images is not wanted.
        """
        phi = self.analyse(images)
        maps = self.mix(phi).mul_(slope)
        if linear is not None:
            maps[0] = linear
        for step in self.steps:
            count, rows, _ = step.matrices.shape
            gradient = batches(total[:rows, step.columns], count)
            gradient.baddbmm_(step.products(maps), step.coefficients(phi).transpose(1, 2))
        if target is not None:
            # The gradient of phi takes its place, with pixels as rows.
            pulled = phi.view(phi.shape[1], -1)
            for step in self.steps:
                gradient = batches(pulled[:, step.rows], len(step.matrices))
                torch.bmm(step.products(maps).transpose(1, 2), step.matrices, out=gradient)
            self._add_synthesis(pulled, target)

    def _add_synthesis(self, phi: Tensor, target: Tensor) -> None:
        """Add the transpose of the analysis of phi, (image pixel, filter channel), to ``target``."""
        taps = self.bank.repeat_interleave(self.channels, 0)
        images, height, width, _ = target.shape
        size = self.geometry.output_size(height, width, taps.shape[-1])
        maps = phi.view(images, *size, len(taps)).permute(0, 3, 1, 2)
        result = synthesise(maps, taps, height, width, self.geometry)
        target += result.permute(0, 2, 3, 1).unflatten(3, (-1, self.channels)).sum(3)


class Columns:
    """One group of channels with its weights (O, C, num_weights) and a bank sorted by order."""

    def __init__(
        self, weight: Tensor, bank: Tensor, geometry: Geometry, height: int, width: int
    ) -> None:
        self.geometry = geometry
        self.matrix = mixing_matrix(weight, geometry)
        self.total = self.matrix.new_zeros(2 * len(weight), self.matrix[0, 0].numel())
        self.size = geometry.output_size(height, width, bank.shape[-1])
        outputs, channels = weight.shape[:2]
        number = weight.element_size() * self.size[0] * self.size[1]
        # Two tensors like phi: it comes unsorted from the convolution, and its gradient is as large.
        most = max(FEWEST_FILTERS, workspace() // (2 * channels * number))
        shares = bundles(geometry, most)
        self.bundles = [Bundle(share, bank, self.matrix, geometry) for share in shares]
        analysed = max(len(bundle.bank) for bundle in self.bundles)
        mixed = max(bundle.num_maps for bundle in self.bundles)
        self.bytes_per_image = (2 * analysed * channels + (mixed + 1) * outputs) * number

    def pieces(self, batch: int) -> Iterator[slice]:
        """Runs of the batch that go through together."""
        return pieces(batch, self.bytes_per_image)

    def power(self, images: Tensor, signed: bool) -> tuple[Tensor, Tensor | None]:
        """Sum of the squared maps of images (n, C, H, W), in float32 at least; (n, O, H', W').

        If ``signed``, the map of order 0 is left out of the sum and comes second.
        """
        planes = images.transpose(0, 1).contiguous()
        outputs, columns = self.matrix.shape[1], len(images) * self.size[0] * self.size[1]
        precise = torch.promote_types(images.dtype, torch.float32)
        power = torch.zeros(outputs, columns, dtype=precise, device=images.device)
        linear = torch.empty_like(power) if signed else None
        for bundle in self.bundles:
            bundle.add_power(planes, power, linear if bundle is self.bundles[0] else None)
        return self._as_maps(power), None if linear is None else self._as_maps(linear)

    def _as_maps(self, columns: Tensor) -> Tensor:
        return columns.view(len(columns), -1, *self.size).transpose(0, 1)

    def pull_back(
        self, images: Tensor, slope: Tensor, linear: Tensor | None, with_input: bool
    ) -> Tensor | None:
        """Add up the gradient of the weights, and return that of the images, if wanted.

        ``slope`` (n, O, H', W') times a map is the gradient of that map; ``linear``, if given, is the
        gradient of the map of order 0 instead.
        """
        planes = images.transpose(0, 1).contiguous()
        slope = as_columns(slope)
        first = None if linear is None else as_columns(linear)
        # Pixels are rows there: the synthesis is a depthwise convolution in channels-last memory.
        target = torch.zeros_like(planes.permute(1, 2, 3, 0)).contiguous() if with_input else None
        for bundle in self.bundles:
            bundle.pull_back(planes, slope, first, self.total, target)
            first = None
        return None if target is None else target.permute(0, 3, 1, 2)

    def weight_gradient(self) -> Tensor:
        """(O, C, num_weights), after all pieces."""
        return weight_gradient(self.total.view_as(self.matrix), self.geometry)
