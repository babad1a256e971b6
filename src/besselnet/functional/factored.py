"""The Bessel convolution in two linear steps: analyse each channel once, then mix per angular order.

By linearity sum_{c,j} conj(kappa) phi needs no filter of its own for every pair of channels:

1. *analyse*: phi_{v,j} of every input channel, with one fixed bank of F filters;
2. *mix*: for each order v one matrix product over (filter, channel), then square and add.

That is O(W H n^2 C_in (n^2 + C_out)) operations against O(W H n^3 C_in C_out) of Algorithm 1. Only the
input and the weights (and the response, for the amplitude) are kept for the backward pass, which computes
phi again.

What makes it fast in practice is the layout. Pixels are rows; (filter, channel) pairs, sorted by order,
are columns. The analysis is then one depthwise convolution in channels-last memory of the channels,
repeated once for each filter, and each order is a run of columns, ready for its product. The batch goes
through in pieces and the channels in slabs, so that what is written is still in the cache when it is read.

Both passes are registered with torch as operators, so that ``torch.compile`` and ``torch.export`` see one
node each. Inside them there is no autograd, and buffers are reused.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from besselnet.functional.basis import BasisSpec

# Bound on the temporaries of one piece of the batch (one image at least), so that they stay in the cache.
WORKSPACE_BYTES = 4 * 2**20
# Channels analysed at once: enough columns for the products, few enough for the inner cache.
SLAB_CHANNELS = 32


class Order(NamedTuple):
    """Where one angular order stands in a bank that is sorted by order (cosines, then sines)."""

    start: int
    num_cosines: int
    num_sines: int

    @property
    def stop(self) -> int:
        return self.start + self.num_cosines + self.num_sines


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

    def products(self) -> list["Product"]:
        """The matrix products of one response: SO(2) mixes cosines and sines, O(2) keeps them apart."""
        products, first = [], 0
        for v, order in enumerate(self.orders()):
            middle = order.start + order.num_cosines
            if not order.num_sines:
                runs = [(order.start, order.stop)]
            elif self.mirror:
                runs = [(order.start, middle), (middle, order.stop)]
            else:
                runs = [(order.start, order.stop)]
            for run in runs:
                maps = 2 if order.num_sines else 1
                products.append(Product(v, slice(*run), slice(first, first + maps)))
                first += maps
        return products

    def output_size(self, height: int, width: int, kernel_size: int) -> tuple[int, int]:
        sizes = zip((height, width), self.padding, self.dilation, self.stride)
        rows, columns = ((n + 2 * p - d * (kernel_size - 1) - 1) // s + 1 for n, p, d, s in sizes)
        return rows, columns


class Product(NamedTuple):
    """One product: which order's matrix, from which run of filters, to which run of maps."""

    order: int
    filters: slice
    maps: slice


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


def repeated_taps(bank: Tensor, channels: int) -> Tensor:
    """The bank as a depthwise filter for columns (filter, channel); (F C, 1, k, k)."""
    return bank.repeat_interleave(channels, 0).unsqueeze(1)


def analyse(slab: Tensor, bank: Tensor, geometry: Geometry) -> Tensor:
    """phi of a slab (n, c, H, W) of channels as a matrix (pixels, F, c)."""
    settings = (geometry.stride, geometry.padding, geometry.dilation)
    filters, channels = len(bank), slab.shape[1]
    if channels == 1:
        maps = F.conv2d(slab, bank.unsqueeze(1), None, *settings)
    else:
        # repeat() lays its result out contiguously: repeat the channels-last view.
        repeated = slab.permute(0, 2, 3, 1).repeat(1, 1, 1, filters).permute(0, 3, 1, 2)
        taps = repeated_taps(bank, channels)
        maps = F.conv2d(repeated, taps, None, *settings, filters * channels)
    return maps.permute(0, 2, 3, 1).reshape(-1, filters, channels)


def synthesise(phi: Tensor, bank: Tensor, geometry: Geometry, shape: torch.Size) -> Tensor:
    """The transpose of :func:`analyse`: (pixels, F, c) to an image of ``shape`` (n, c, H, W)."""
    filters, channels = phi.shape[1:]
    rows = geometry.output_size(shape[2], shape[3], bank.shape[-1])
    maps = phi.view(shape[0], *rows, filters * channels).permute(0, 3, 1, 2)
    taps = repeated_taps(bank, channels)
    reach = [d * (bank.shape[-1] - 1) for d in geometry.dilation]
    if tuple(geometry.stride) == (1, 1) and all(r >= p for r, p in zip(reach, geometry.padding)):
        # With stride 1 it is a convolution with the filters turned by half, the faster call.
        margin = [r - p for r, p in zip(reach, geometry.padding)]
        images = F.conv2d(
            maps, taps.flip(2, 3), None, 1, margin, geometry.dilation, filters * channels
        )
    else:
        sizes = zip(shape[2:], geometry.padding, reach, geometry.stride)
        rest = [(n + 2 * p - r - 1) % s for n, p, r, s in sizes]
        images = F.conv_transpose2d(
            maps,
            taps,
            None,
            geometry.stride,
            geometry.padding,
            rest,
            filters * channels,
            geometry.dilation,
        )
    return images.permute(0, 2, 3, 1).unflatten(3, (filters, channels)).sum(3).permute(0, 3, 1, 2)


def slabs(channels: int) -> list[slice]:
    """Runs of at most SLAB_CHANNELS channels, of nearly equal length."""
    count = -(-channels // SLAB_CHANNELS)
    bounds = [channels * i // count for i in range(count + 1)]
    return [slice(*pair) for pair in pairwise(bounds)]


def pieces(input: Tensor, weight: Tensor, bank: Tensor, geometry: Geometry) -> Iterator[slice]:
    """Runs of the batch whose temporaries stay below WORKSPACE_BYTES (one image at least)."""
    rows, columns = geometry.output_size(input.shape[2], input.shape[3], bank.shape[-1])
    channels = weight.shape[1]
    maps = geometry.products()[-1].maps.stop
    floats = len(bank) * (channels + min(channels, SLAB_CHANNELS)) + maps * weight.shape[0]
    size = max(1, WORKSPACE_BYTES // (floats * rows * columns * input.element_size()))
    for start in range(0, len(input), size):
        yield slice(start, min(start + size, len(input)))


class Piece:
    """phi and the maps of one piece of the batch and one group of channels."""

    def __init__(
        self, input: Tensor, bank: Tensor, matrices: list[Tensor], geometry: Geometry
    ) -> None:
        self.input = input.contiguous(memory_format=torch.channels_last)
        self.bank = bank
        self.matrices = matrices
        self.geometry = geometry
        self.slabs = slabs(input.shape[1])
        self.phi = [analyse(self.input[:, slab], bank, geometry) for slab in self.slabs]

    def maps(self) -> Tensor:
        """All maps whose squares make the response; (pixels, maps, O)."""
        products = self.geometry.products()
        out_channels = self.matrices[0].shape[-1]
        maps = self.phi[0].new_empty(len(self.phi[0]), products[-1].maps.stop, out_channels)
        for product in products:
            target = maps[:, product.maps].flatten(1)
            for i, (slab, phi) in enumerate(zip(self.slabs, self.phi)):
                coefficients = phi[:, product.filters].flatten(1)
                matrix = self.matrices[product.order][:, slab].flatten(0, 1).flatten(1)
                torch.addmm(target, coefficients, matrix, beta=float(i > 0), out=target)
        return maps

    def add_weight_gradients(self, maps: Tensor, totals: list[list[Tensor]]) -> None:
        """Add phi^T times the gradient of the maps to ``totals[slab][order]``."""
        for product in self.geometry.products():
            source = maps[:, product.maps].flatten(1)
            for phi, total in zip(self.phi, totals):
                total[product.order].addmm_(phi[:, product.filters].flatten(1).t(), source)

    def input_gradient(self, maps: Tensor) -> Tensor:
        """The gradient of the input from that of the maps. Overwrites phi."""
        gradients = []
        for slab, phi in zip(self.slabs, self.phi):
            for product in self.geometry.products():
                matrix = self.matrices[product.order][:, slab].flatten(0, 1).flatten(1)
                target = phi[:, product.filters].flatten(1)
                torch.mm(maps[:, product.maps].flatten(1), matrix.t(), out=target)
            shape = self.input[:, slab].shape
            gradients.append(synthesise(phi, self.bank, self.geometry, shape))
        return gradients[0] if len(gradients) == 1 else torch.cat(gradients, 1)


def full_precision(tensor: Tensor) -> Tensor:
    """Half precision holds neither squares nor their sums."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def group_slices(groups: int, channels: int) -> list[slice]:
    each = channels // groups
    return [slice(g * each, (g + 1) * each) for g in range(groups)]


def as_rows(maps: Tensor) -> Tensor:
    """(n, O, H', W') as a contiguous matrix (pixels, O)."""
    return maps.permute(0, 2, 3, 1).reshape(-1, maps.shape[1]).contiguous()


@torch.library.custom_op("besselnet::factored_response", mutates_args=())
def factored_response(
    input: Tensor,
    weight: Tensor,
    bank: Tensor,
    radial_counts: Sequence[int],
    mirror: bool,
    amplitude: bool,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """Power or amplitude of a Bessel convolution, (N, O, H', W')."""
    geometry = Geometry(radial_counts, mirror, stride, padding, dilation)
    output = _empty_response(input, weight, bank, geometry)
    bank = bank[geometry.sorted_rows()]
    for group, outs in zip(group_slices(groups, input.shape[1]), group_slices(groups, len(weight))):
        matrices = mixing_matrices(weight[outs], geometry)
        for run in pieces(input, weight[outs], bank, geometry):
            maps = Piece(input[run, group], bank, matrices, geometry).maps()
            power = full_precision(maps).square_().sum(1)
            if amplitude:
                power.clamp_min_(torch.finfo(power.dtype).tiny).sqrt_()
            target = output[run, outs]
            target.copy_(power.view(len(target), *target.shape[2:], -1).permute(0, 3, 1, 2))
    return output


def _empty_response(input: Tensor, weight: Tensor, bank: Tensor, geometry: Geometry) -> Tensor:
    size = geometry.output_size(input.shape[2], input.shape[3], bank.shape[-1])
    last = input.is_contiguous(memory_format=torch.channels_last) and not input.is_contiguous()
    return torch.empty(
        (input.shape[0], weight.shape[0], *size),
        dtype=torch.promote_types(input.dtype, torch.float32),
        device=input.device,
        memory_format=torch.channels_last if last else torch.contiguous_format,
    )


@factored_response.register_fake
def _(input, weight, bank, radial_counts, mirror, amplitude, stride, padding, dilation, groups):  # type: ignore[no-untyped-def]
    geometry = Geometry(radial_counts, mirror, stride, padding, dilation)
    return _empty_response(input, weight, bank, geometry)


@torch.library.custom_op("besselnet::factored_gradient", mutates_args=())
def factored_gradient(
    gradient: Tensor,
    response: Tensor | None,
    input: Tensor,
    weight: Tensor,
    bank: Tensor,
    radial_counts: Sequence[int],
    mirror: bool,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    with_input: bool,
) -> tuple[Tensor, Tensor]:
    """Gradients of the input (empty if not wanted) and of the weight.

    ``response`` is the amplitude, or None if the power was the result.
    """
    geometry = Geometry(radial_counts, mirror, stride, padding, dilation)
    input_gradient = torch.empty_like(input) if with_input else input.new_empty(0)
    weight_gradients = []
    bank = bank[geometry.sorted_rows()]
    for group, outs in zip(group_slices(groups, input.shape[1]), group_slices(groups, len(weight))):
        matrices = mixing_matrices(weight[outs], geometry)
        totals = [
            [m.new_zeros(len(m) * (s.stop - s.start), m.shape[2] * m.shape[3]) for m in matrices]
            for s in slabs(weight.shape[1])
        ]
        for run in pieces(input, weight[outs], bank, geometry):
            piece = Piece(input[run, group], bank, matrices, geometry)
            maps = piece.maps()
            # d response / d map = map / amplitude, or 2 map for the power
            slope = as_rows(gradient[run, outs])
            slope = slope * 2 if response is None else slope.div_(as_rows(response[run, outs]))
            maps.mul_(slope.to(maps.dtype).unsqueeze(1))
            piece.add_weight_gradients(maps, totals)
            if with_input:
                input_gradient[run, group] = piece.input_gradient(maps)
        whole = [
            torch.cat([t.view(len(m), -1, *m.shape[2:]) for t in parts], 1)
            for m, parts in zip(matrices, zip(*totals))
        ]
        weight_gradients.append(weight_gradient(whole, geometry))
    return input_gradient, torch.cat(weight_gradients)


@factored_gradient.register_fake
def _(  # type: ignore[no-untyped-def]
    gradient,
    response,
    input,
    weight,
    bank,
    radial_counts,
    mirror,
    stride,
    padding,
    dilation,
    groups,
    with_input,
):
    return torch.empty_like(input) if with_input else input.new_empty(0), weight.new_empty(
        weight.shape
    )


def _keep(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    input, weight, bank, counts, mirror, amplitude, *geometry = inputs
    ctx.save_for_backward(input, weight, bank, output if amplitude else None)
    ctx.geometry = (counts, mirror, *geometry)


def _backward(ctx, gradient):  # type: ignore[no-untyped-def]
    input, weight, bank, response = ctx.saved_tensors
    with_input = ctx.needs_input_grad[0]
    to_input, to_weight = factored_gradient(
        gradient, response, input, weight, bank, *ctx.geometry, with_input
    )
    return to_input if with_input else None, to_weight, *[None] * 8


def _refuse_second_backward(ctx, *gradients):  # type: ignore[no-untyped-def]
    raise RuntimeError(
        'the factored Bessel convolution has no second derivative: use algorithm="direct" for it'
    )


factored_response.register_autograd(_backward, setup_context=_keep)
factored_gradient.register_autograd(_refuse_second_backward)


def factored(
    input: Tensor,
    weight: Tensor,
    bank: Tensor,
    spec: BasisSpec,
    amplitude: bool,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """:func:`factored_response` in the terms of a :class:`BasisSpec`."""
    mirror = spec.symmetry == "O(2)"
    return factored_response(
        input,
        weight,
        bank,
        spec.radial_counts,
        mirror,
        amplitude,
        stride,
        padding,
        dilation,
        groups,
    )
