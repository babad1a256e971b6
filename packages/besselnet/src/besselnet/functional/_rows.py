"""The layout for many channels: pixels are rows, and one filter at a time is a depthwise convolution.

In channels-last memory the result of that convolution is a matrix (pixels, channels), ready for its
product with the weights, and still in the cache. Many channels fill the vector units without any copy.
"""

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F

from besselnet.functional._orders import Geometry, Product, mixing_matrix, weight_gradient
from besselnet.functional._pieces import pieces, synthesise

# Most channels analysed at once.
SLAB_CHANNELS = 128


def slabs(channels: int) -> list[slice]:
    """Runs of at most SLAB_CHANNELS channels, of nearly equal length."""
    count = -(-channels // SLAB_CHANNELS)
    bounds = [channels * i // count for i in range(count + 1)]
    return [slice(*pair) for pair in pairwise(bounds)]


def as_rows(maps: Tensor) -> Tensor:
    """(n, O, H', W') as a contiguous matrix (pixels, O)."""
    return maps.permute(0, 2, 3, 1).reshape(-1, maps.shape[1]).contiguous()


class Rows:
    """One group of channels with its weights (O, C, num_weights) and a bank sorted by order."""

    def __init__(
        self, weight: Tensor, bank: Tensor, geometry: Geometry, height: int, width: int
    ) -> None:
        self.geometry = geometry
        self.bank = bank
        outputs, channels = weight.shape[:2]
        self.slabs = slabs(channels)
        # (F, C, 2, O)
        self.matrices = mixing_matrix(weight, geometry).permute(2, 3, 0, 1).contiguous()
        self.totals = torch.zeros_like(self.matrices)
        self.size = geometry.output_size(height, width, bank.shape[-1])
        # phi and its gradient, and the maps
        numbers = max(
            2 * (filters.stop - filters.start) * channels + num_maps * outputs
            for filters, num_maps in geometry.products()
        )
        self.bytes_per_image = numbers * self.size[0] * self.size[1] * weight.element_size()

    def pieces(self, batch: int) -> Iterator[slice]:
        """Runs of the batch that go through together."""
        return pieces(batch, self.bytes_per_image)

    def _taps(self, filter: int, slab: slice) -> Tensor:
        return self.bank[filter].expand(slab.stop - slab.start, 1, -1, -1).contiguous()

    def _parts(self, product: Product) -> Iterator[tuple[slice, int]]:
        """(slab, filter) of a product."""
        for slab in self.slabs:
            for filter in range(product.filters.start, product.filters.stop):
                yield slab, filter

    def _analyse(self, images: Tensor, slab: slice, filter: int) -> Tensor:
        """phi of one filter, from channels-last images; (pixels, c)."""
        g, taps = self.geometry, self._taps(filter, slab)
        maps = F.conv2d(images[:, slab], taps, None, g.stride, g.padding, g.dilation, len(taps))
        return maps.permute(0, 2, 3, 1).reshape(-1, len(taps))

    def _matrix(self, tensor: Tensor, slab: slice, filter: int, num_maps: int) -> Tensor:
        """The part (c, maps O) of a tensor (F, C, 2, O) that one filter and slab take part in."""
        return tensor[filter, slab, :num_maps].flatten(1)

    def _mix(self, product: Product, phis: Iterator[Tensor]) -> Tensor:
        """The maps of a product, from phi part by part; (pixels, maps O)."""
        maps: Tensor | None = None
        for (slab, filter), phi in zip(self._parts(product), phis):
            matrix = self._matrix(self.matrices, slab, filter, product.num_maps)
            maps = torch.mm(phi, matrix) if maps is None else maps.addmm_(phi, matrix)
        assert maps is not None
        return maps

    def power(self, images: Tensor, signed: bool) -> tuple[Tensor, Tensor | None]:
        """Sum of the squared maps of images (n, C, H, W), in float32 at least; (n, O, H', W').

        If ``signed``, the map of order 0 is left out of the sum and comes second.
        """
        images = images.contiguous(memory_format=torch.channels_last)
        precise = torch.promote_types(images.dtype, torch.float32)
        outputs, pixels = self.matrices.shape[-1], len(images) * self.size[0] * self.size[1]
        power = torch.zeros(pixels, outputs, dtype=precise, device=images.device)
        linear: Tensor | None = None
        for product in self.geometry.products():
            phis = (self._analyse(images, *part) for part in self._parts(product))
            maps = self._mix(product, phis).to(precise)
            if signed and linear is None:
                linear = maps
                continue
            for part in maps.split(outputs, 1):
                power.addcmul_(part, part)
        return self._as_maps(power), None if linear is None else self._as_maps(linear)

    def _as_maps(self, rows: Tensor) -> Tensor:
        return rows.view(-1, *self.size, rows.shape[1]).permute(0, 3, 1, 2)

    def pull_back(
        self, images: Tensor, slope: Tensor, linear: Tensor | None, with_input: bool
    ) -> Tensor | None:
        """Add up the gradient of the weights, and return that of the images, if wanted.

        ``slope`` (n, O, H', W') times a map is the gradient of that map; ``linear``, if given, is the
        gradient of the map of order 0 instead.
        """
        images = images.contiguous(memory_format=torch.channels_last)
        slope = as_rows(slope).unsqueeze(1)
        target = torch.zeros_like(images) if with_input else None
        height, width = images.shape[2:]
        for product in self.geometry.products():
            phis = [self._analyse(images, *part) for part in self._parts(product)]
            if linear is not None:
                maps, linear = as_rows(linear), None
            else:
                maps = self._mix(product, iter(phis))
                maps.view(len(maps), product.num_maps, -1).mul_(slope)
            for (slab, filter), phi in zip(self._parts(product), phis):
                total = self._matrix(self.totals, slab, filter, product.num_maps)
                total.addmm_(phi.t(), maps)
                if target is not None:
                    matrix = self._matrix(self.matrices, slab, filter, product.num_maps)
                    torch.mm(maps, matrix.t(), out=phi)
                    part, taps = target[:, slab], self._taps(filter, slab)
                    part += synthesise(self._as_maps(phi), taps, height, width, self.geometry)
        return target

    def weight_gradient(self) -> Tensor:
        """(O, C, num_weights), after all pieces."""
        return weight_gradient(self.totals.permute(2, 3, 0, 1), self.geometry)
