"""The two layouts of the factored algorithm in memory: columns for few channels, rows for many.

*Columns*: the channels are the batch of one ordinary convolution, which takes (channel, image) to all
filters. Its result, sorted by filter, is a matrix with rows (filter, channel) and columns (image, pixel):
each order is a run of rows, and orders with equally many radial functions make one batched product.

*Rows*: pixels are rows, and one filter at a time is a depthwise convolution. In channels-last memory its
result is a matrix (pixels, channels), ready for its product with the weights and still in the cache; many
channels fill the vector units without any copy.

Both take the batch in pieces, so that what is written is still in the cache when it is read. Both have the
same interface: `power`, `pull_back`, `weight_gradient`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from besselnet.functional._plan import Plan, Run, Window, mixing_matrix, weight_gradient

# Bound on what one piece of the batch needs at a time (one image at least), for each thread.
WORKSPACE_BYTES = 4 * 2**20
# Filters that columns analyse together even if one image then exceeds the workspace: fewer would leave the
# vector units empty.
FEWEST_FILTERS = 16
# Most channels that rows analyse at once.
SLAB_CHANNELS = 128


def workspace() -> int:
    """Bytes that one piece of the batch may need."""
    return WORKSPACE_BYTES * torch.get_num_threads()


class Layout(ABC):
    """One group of channels with its weights (O, C, F) and a bank of filters (F, k, k)."""

    bytes_per_image: int

    def __init__(
        self, weight: Tensor, bank: Tensor, plan: Plan, window: Window, height: int, width: int
    ) -> None:
        self.plan, self.window, self.bank = plan, window, bank
        self.outputs, self.channels = weight.shape[:2]
        self.size = window.output_size(height, width, bank.shape[-1])
        self.bytes_per_map = self.size[0] * self.size[1] * weight.element_size()

    def pieces(self, batch: int) -> Iterator[slice]:
        """Runs of the batch that go through together: one image at least."""
        size = max(1, workspace() // self.bytes_per_image)
        return (slice(start, min(start + size, batch)) for start in range(0, batch, size))

    @abstractmethod
    def power(self, images: Tensor, signed: bool) -> tuple[Tensor, Tensor | None]:
        """Sum of the squared maps of images (n, C, H, W), in float32 at least; (n, O, H', W').

        If ``signed``, the map of order 0 is left out of the sum and comes second.
        """

    @abstractmethod
    def pull_back(
        self, images: Tensor, slope: Tensor, linear: Tensor | None, with_input: bool
    ) -> Tensor | None:
        """Add up the gradient of the weights, and return that of the images, if wanted.

        ``slope`` (n, O, H', W') times a map is the gradient of that map; ``linear``, if given, is the
        gradient of the map of order 0 instead.
        """

    @abstractmethod
    def weight_gradient(self) -> Tensor:
        """(O, C, F), after all pieces."""


def synthesise(maps: Tensor, taps: Tensor, height: int, width: int, window: Window) -> Tensor:
    """The transpose of a depthwise convolution of (n, c, height, width) with taps (c, 1, k, k).

    ``maps`` (n, c, H', W') should lie in channels-last memory: the only depthwise convolution that is
    fast on CPUs.
    """
    stride, padding, dilation = window
    reach = [d * (taps.shape[-1] - 1) for d in dilation]
    if tuple(stride) == (1, 1) and all(r >= p for r, p in zip(reach, padding)):
        # With stride 1 it is a convolution with the filters rotated by half a turn, the faster call.
        margin = [r - p for r, p in zip(reach, padding)]
        return F.conv2d(maps, taps.flip(2, 3), None, 1, margin, dilation, len(taps))
    sizes = zip((height, width), padding, reach, stride)
    rest = [(n + 2 * p - r - 1) % s for n, p, r, s in sizes]
    return F.conv_transpose2d(maps, taps, None, stride, padding, rest, len(taps), dilation)


class Share(NamedTuple):
    """Neighbouring runs whose filters are analysed together."""

    filters: slice
    runs: tuple[Run, ...]
    num_maps: int


@lru_cache(maxsize=256)
def shares(plan: Plan, most: int) -> tuple[Share, ...]:
    """All runs in nearly equal shares of some ``most`` filters: a short rest would cost as much as one."""
    count = -(-plan.num_filters // most)
    parts: list[list[Run]] = [[]]
    for run in plan.runs:
        if parts[-1] and run.filters.stop * count > plan.num_filters * len(parts):
            parts.append([])
        parts[-1].append(run)
    return tuple(
        Share(
            slice(part[0].filters.start, part[-1].filters.stop),
            tuple(part),
            sum(run.num_products * run.num_maps for run in part),
        )
        for part in parts
    )


def batches(matrix: Tensor, count: int) -> Tensor:
    """Columns of a matrix cut into equal runs: (rows, count n) -> (count, rows, n), without a copy."""
    return matrix.unflatten(1, (count, -1)).transpose(0, 1)


class Columns(Layout):
    """The layout for few channels."""

    def __init__(
        self, weight: Tensor, bank: Tensor, plan: Plan, window: Window, height: int, width: int
    ) -> None:
        super().__init__(weight, bank, plan, window, height, width)
        self.matrix = mixing_matrix(weight, plan).flatten(2)  # (2, O, F C)
        # Two tensors like phi: it comes unsorted from the convolution, and its gradient is as large.
        most = max(FEWEST_FILTERS, workspace() // (2 * self.channels * self.bytes_per_map))
        self.shares = shares(plan, min(most, plan.num_filters))
        analysed = max(share.filters.stop - share.filters.start for share in self.shares)
        mixed = max(share.num_maps for share in self.shares)
        numbers = 2 * analysed * self.channels + (mixed + 1) * self.outputs
        self.bytes_per_image = numbers * self.bytes_per_map
        self.phi = self.maps = bank.new_empty(0)
        self.total: Tensor | None = None

    def _analyse(self, share: Share, planes: Tensor) -> Tensor:
        """phi of images (C, n, H, W), (filter channel, image pixel); the next call overwrites it."""
        bank = self.bank[share.filters].unsqueeze(1)
        maps = F.conv2d(planes.flatten(0, 1).unsqueeze(1), bank, None, *self.window)
        if self.phi.numel() < maps.numel():
            self.phi = torch.empty_like(maps).flatten()
        phi = self.phi[: maps.numel()].view(len(bank), len(maps), -1)
        phi.copy_(maps.flatten(2).transpose(0, 1))
        return phi.view(len(bank) * self.channels, -1)

    def _parts(
        self, share: Share, phi: Tensor, maps: Tensor, matrix: Tensor
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """For each run its coefficients, its maps and its part of a matrix (2, O, F C), product by product.

        phi (filter channel, columns), maps (maps, O, columns).
        """
        start, shift = 0, share.filters.start * self.channels
        for filters, count, num_maps in share.runs:
            rows = slice(filters.start * self.channels, filters.stop * self.channels)
            stop = start + count * num_maps
            yield (
                phi[rows.start - shift : rows.stop - shift].unflatten(0, (count, -1)),
                maps[start:stop].view(count, -1, maps.shape[2]),
                batches(matrix[:num_maps, :, rows].flatten(0, 1), count),
            )
            start = stop

    def _mix(self, share: Share, phi: Tensor) -> Tensor:
        """The maps (maps, O, columns); the next call overwrites them."""
        size = share.num_maps * self.outputs * phi.shape[1]
        if self.maps.numel() < size:
            self.maps = phi.new_empty(size)
        maps = self.maps[:size].view(share.num_maps, self.outputs, -1)
        for coefficients, products, matrices in self._parts(share, phi, maps, self.matrix):
            torch.bmm(matrices, coefficients, out=products)
        return maps

    def power(self, images: Tensor, signed: bool) -> tuple[Tensor, Tensor | None]:
        planes = images.transpose(0, 1).contiguous()
        precise = torch.promote_types(images.dtype, torch.float32)
        power = linear = None
        for share in self.shares:
            maps = self._mix(share, self._analyse(share, planes)).to(precise)
            if signed and linear is None:
                linear, maps = maps[0].clone(), maps[1:]
            squares = maps.square_().sum(0)
            power = squares if power is None else power.add_(squares)
        assert power is not None
        return self._as_maps(power), None if linear is None else self._as_maps(linear)

    def _as_maps(self, columns: Tensor) -> Tensor:
        return columns.view(len(columns), -1, *self.size).transpose(0, 1)

    def pull_back(
        self, images: Tensor, slope: Tensor, linear: Tensor | None, with_input: bool
    ) -> Tensor | None:
        planes = images.transpose(0, 1).contiguous()
        slope = _as_columns(slope)
        if self.total is None:
            self.total = torch.zeros_like(self.matrix)
        # Pixels are rows there: the synthesis is a depthwise convolution in channels-last memory.
        target = torch.zeros_like(planes.permute(1, 2, 3, 0)).contiguous() if with_input else None
        for share in self.shares:
            phi = self._analyse(share, planes)
            maps = self._mix(share, phi).mul_(slope)
            if linear is not None:
                maps[0], linear = _as_columns(linear), None
            for coefficients, products, total in self._parts(share, phi, maps, self.total):
                total.baddbmm_(products, coefficients.transpose(1, 2))
            if target is not None:
                # The gradient of phi takes its place, with pixels as rows.
                pulled = phi.view(phi.shape[1], -1)
                start = 0
                for _, products, matrices in self._parts(share, phi, maps, self.matrix):
                    stop = start + matrices.shape[0] * matrices.shape[2]
                    gradient = batches(pulled[:, start:stop], len(matrices))
                    torch.bmm(products.transpose(1, 2), matrices, out=gradient)
                    start = stop
                self._add_synthesis(share, pulled, target)
        return None if target is None else target.permute(0, 3, 1, 2)

    def _add_synthesis(self, share: Share, phi: Tensor, target: Tensor) -> None:
        """Add the transpose of the analysis of phi (image pixel, filter channel) to (n, H, W, C)."""
        taps = self.bank[share.filters].unsqueeze(1).repeat_interleave(self.channels, 0)
        images, height, width, _ = target.shape
        maps = phi.view(images, *self.size, len(taps)).permute(0, 3, 1, 2)
        result = synthesise(maps, taps, height, width, self.window)
        target += result.permute(0, 2, 3, 1).unflatten(3, (-1, self.channels)).sum(3)

    def weight_gradient(self) -> Tensor:
        assert self.total is not None
        return weight_gradient(self.total.unflatten(2, (-1, self.channels)), self.plan)


def _as_columns(maps: Tensor) -> Tensor:
    """(n, O, H', W') as a contiguous matrix (O, columns)."""
    return maps.transpose(0, 1).flatten(1).contiguous()


def slabs(channels: int) -> list[slice]:
    """Runs of at most SLAB_CHANNELS channels, of nearly equal length."""
    count = -(-channels // SLAB_CHANNELS)
    bounds = [channels * i // count for i in range(count + 1)]
    return [slice(*pair) for pair in pairwise(bounds)]


class Rows(Layout):
    """The layout for many channels."""

    def __init__(
        self, weight: Tensor, bank: Tensor, plan: Plan, window: Window, height: int, width: int
    ) -> None:
        super().__init__(weight, bank, plan, window, height, width)
        self.slabs = slabs(self.channels)
        # (F, C, 2, O)
        self.matrices = mixing_matrix(weight, plan).permute(2, 3, 0, 1).contiguous()
        self.total: Tensor | None = None
        # phi and its gradient, and the maps
        numbers = max(
            2 * (run.filters.stop - run.filters.start) * self.channels + run.num_maps * self.outputs
            for run in plan.products
        )
        self.bytes_per_image = numbers * self.bytes_per_map

    def _taps(self, filter: int, slab: slice) -> Tensor:
        return self.bank[filter].expand(slab.stop - slab.start, 1, -1, -1).contiguous()

    def _parts(self, product: Run) -> Iterator[tuple[slice, int]]:
        """(slab, filter) of a product."""
        for slab in self.slabs:
            for filter in range(product.filters.start, product.filters.stop):
                yield slab, filter

    def _analyse(self, images: Tensor, slab: slice, filter: int) -> Tensor:
        """phi of one filter, from channels-last images; (pixels, c)."""
        taps = self._taps(filter, slab)
        maps = F.conv2d(images[:, slab], taps, None, *self.window, len(taps))
        return maps.permute(0, 2, 3, 1).reshape(-1, len(taps))

    def _matrix(self, tensor: Tensor, slab: slice, filter: int, num_maps: int) -> Tensor:
        """The part (c, maps O) of a tensor (F, C, 2, O) that one filter and slab take part in."""
        return tensor[filter, slab, :num_maps].flatten(1)

    def _mix(self, product: Run, phis: Iterator[Tensor]) -> Tensor:
        """The maps of a product, from phi part by part; (pixels, maps O)."""
        maps: Tensor | None = None
        for (slab, filter), phi in zip(self._parts(product), phis):
            matrix = self._matrix(self.matrices, slab, filter, product.num_maps)
            maps = torch.mm(phi, matrix) if maps is None else maps.addmm_(phi, matrix)
        assert maps is not None
        return maps

    def power(self, images: Tensor, signed: bool) -> tuple[Tensor, Tensor | None]:
        images = images.contiguous(memory_format=torch.channels_last)
        precise = torch.promote_types(images.dtype, torch.float32)
        pixels = len(images) * self.size[0] * self.size[1]
        power = torch.zeros(pixels, self.outputs, dtype=precise, device=images.device)
        linear: Tensor | None = None
        for product in self.plan.products:
            phis = (self._analyse(images, *part) for part in self._parts(product))
            maps = self._mix(product, phis).to(precise)
            if signed and linear is None:
                linear = maps
                continue
            for part in maps.split(self.outputs, 1):
                power.addcmul_(part, part)
        return self._as_maps(power), None if linear is None else self._as_maps(linear)

    def _as_maps(self, rows: Tensor) -> Tensor:
        return rows.view(-1, *self.size, rows.shape[1]).permute(0, 3, 1, 2)

    def pull_back(
        self, images: Tensor, slope: Tensor, linear: Tensor | None, with_input: bool
    ) -> Tensor | None:
        images = images.contiguous(memory_format=torch.channels_last)
        slope = _as_rows(slope).unsqueeze(1)
        if self.total is None:
            self.total = torch.zeros_like(self.matrices)
        target = torch.zeros_like(images) if with_input else None
        height, width = images.shape[2:]
        for product in self.plan.products:
            phis = [self._analyse(images, *part) for part in self._parts(product)]
            if linear is not None:
                maps, linear = _as_rows(linear), None
            else:
                maps = self._mix(product, iter(phis))
                maps.view(len(maps), product.num_maps, -1).mul_(slope)
            for (slab, filter), phi in zip(self._parts(product), phis):
                total = self._matrix(self.total, slab, filter, product.num_maps)
                total.addmm_(phi.t(), maps)
                if target is not None:
                    matrix = self._matrix(self.matrices, slab, filter, product.num_maps)
                    torch.mm(maps, matrix.t(), out=phi)
                    part, taps = target[:, slab], self._taps(filter, slab)
                    part += synthesise(self._as_maps(phi), taps, height, width, self.window)
        return target

    def weight_gradient(self) -> Tensor:
        assert self.total is not None
        return weight_gradient(self.total.permute(2, 3, 0, 1), self.plan)


def _as_rows(maps: Tensor) -> Tensor:
    """(n, O, H', W') as a contiguous matrix (pixels, O)."""
    return maps.permute(0, 2, 3, 1).reshape(-1, maps.shape[1]).contiguous()
