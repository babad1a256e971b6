"""The Bessel convolution in two linear steps: analyse each channel once, then mix per angular order.

By linearity sum_{c,j} conj(kappa) phi needs no filter of its own for every pair of channels:

1. *analyse*: phi_{v,j} of every input channel, with one fixed bank of F filters;
2. *mix*: for each order v one matrix product over (filter, channel), then square and add.

That is O(W H n^2 C_in (n^2 + C_out)) operations against O(W H n^3 C_in C_out) of Algorithm 1. Only the
input and the weights (and the response, if it is the amplitude) are kept for the backward pass, which
computes phi again.

What makes it fast in practice is the layout. Pixels are rows; (filter, channel) pairs, sorted by order,
are columns. The analysis is then one depthwise convolution in channels-last memory of the channels,
repeated once for each filter, and each order is a run of columns, ready for its product. The batch goes
through in pieces, the channels in slabs and the orders in bundles, so that what is written is still in the
cache when it is read.

Both passes are registered with torch as operators, so that ``torch.compile`` and ``torch.export`` see one
node each. Inside them there is no autograd, and buffers are reused.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import register_flop_formula

from besselnet.functional.basis import BasisSpec
from besselnet.functional.orders import Geometry, Product, mixing_matrices, weight_gradient

# Bound on what one piece of the batch needs at a time (one image at least), for each thread.
WORKSPACE_BYTES = 4 * 2**20
# Columns (filter, channel) analysed before they are mixed (one order at least).
BUNDLE_COLUMNS = 1024
# From this many channels on, one filter alone fills the vector units and makes a product large enough.
WIDE = 48
# Most channels analysed at once.
SLAB_CHANNELS = 128


def bundles(geometry: Geometry, channels: int) -> list[list[Product]]:
    """Runs of products with at most BUNDLE_COLUMNS columns together (one product at least)."""
    most = 0 if channels >= WIDE else BUNDLE_COLUMNS // channels
    runs: list[list[Product]] = []
    for product in geometry.products():
        filters = product.filters.stop - runs[-1][0].filters.start if runs else 0
        if not runs or filters > most:
            runs.append([])
        runs[-1].append(product)
    return runs


class Block(NamedTuple):
    """A run of filters that one convolution applies to all channels of a slab."""

    filters: int
    taps: Tensor
    """Depthwise filter for columns (filter, channel); (filters c, 1, k, k)."""


class Step(NamedTuple):
    """One matrix product between a block and the maps."""

    block: int
    columns: slice
    """Of the block."""
    target: slice
    """Columns of the maps."""
    order: int
    rows: slice
    """Filters of the order's mixing matrix."""
    matrix: Tensor


class Slab:
    """A bundle of products for some of the input channels: all that is the same for every piece.

    Few channels would leave the vector units empty: there one block holds all filters of the bundle, and
    the channels are repeated for it. Many channels take a block for each filter, without any copy.
    """

    def __init__(
        self,
        channels: slice,
        bundle: list[Product],
        bank: Tensor,
        matrices: list[Tensor],
        geometry: Geometry,
    ) -> None:
        self.channels = channels
        self.geometry = geometry
        self.size = channels.stop - channels.start
        first, last = bundle[0].filters.start, bundle[-1].filters.stop
        each = 1 if self.size >= WIDE else last - first
        self.blocks = [
            Block(each, bank[n : n + each].repeat_interleave(self.size, 0).unsqueeze(1))
            for n in range(first, last, each)
        ]
        self.steps: list[Step] = []
        column = 0
        for order, filters, num_maps in bundle:
            width = num_maps * matrices[order].shape[-1]
            target = slice(column, column + width)
            column += width
            run = 1 if each == 1 else filters.stop - filters.start
            for n in range(filters.start, filters.stop, run):
                rows = slice(n - filters.start, n - filters.start + run)
                block, offset = divmod(n - first, each)
                columns = slice(offset * self.size, (offset + run) * self.size)
                matrix = matrices[order][rows, channels].reshape(-1, width)
                self.steps.append(Step(block, columns, target, order, rows, matrix))

    def analyse(self, images: Tensor) -> list[Tensor]:
        """phi of channels-last images (n, c, H, W): for each block a matrix (pixels, filters c)."""
        settings = (self.geometry.stride, self.geometry.padding, self.geometry.dilation)
        phis = []
        for filters, taps in self.blocks:
            if self.size == 1:
                maps = F.conv2d(images, taps, None, *settings)
            else:
                # repeat() lays its result out contiguously: repeat the channels-last view.
                rows = images.permute(0, 2, 3, 1)
                rows = rows.repeat(1, 1, 1, filters) if filters > 1 else rows
                maps = F.conv2d(rows.permute(0, 3, 1, 2), taps, None, *settings, len(taps))
            phis.append(maps.permute(0, 2, 3, 1).reshape(-1, len(taps)))
        return phis

    def mix(self, phis: list[Tensor], maps: Tensor, fresh: bool) -> None:
        """Multiply phi with the weights into the maps; add to what is there unless ``fresh``."""
        begun: set[int] = set()
        for step in self.steps:
            phi, target = phis[step.block][:, step.columns], maps[:, step.target]
            if fresh and step.target.start not in begun:
                torch.mm(phi, step.matrix, out=target)
                begun.add(step.target.start)
            else:
                target.addmm_(phi, step.matrix)

    def add_weight_gradients(self, totals: list[Tensor], phis: list[Tensor], maps: Tensor) -> None:
        """Add phi^T times the gradient of the maps to the gradients of the mixing matrices."""
        for step in self.steps:
            gradient = torch.mm(phis[step.block][:, step.columns].t(), maps[:, step.target])
            total = totals[step.order][step.rows, self.channels]
            total += gradient.view(total.shape)

    def input_gradient(self, phis: list[Tensor], maps: Tensor, images: Tensor) -> Tensor:
        """The gradient of the images from that of the maps. Overwrites phi."""
        for step in self.steps:
            torch.mm(maps[:, step.target], step.matrix.t(), out=phis[step.block][:, step.columns])
        parts = [self._synthesise(b, phi, images) for b, phi in zip(self.blocks, phis)]
        return sum(parts[1:], start=parts[0])

    def _synthesise(self, block: Block, phi: Tensor, images: Tensor) -> Tensor:
        """The transpose of the analysis with one block; (n, c, H, W)."""
        g, taps = self.geometry, block.taps
        size = taps.shape[-1]
        height, width = images.shape[2:]
        rows = phi.view(len(images), *g.output_size(height, width, size), len(taps))
        maps = rows.permute(0, 3, 1, 2)
        reach = [d * (size - 1) for d in g.dilation]
        if tuple(g.stride) == (1, 1) and all(r >= p for r, p in zip(reach, g.padding)):
            # With stride 1 it is a convolution with the filters turned by half, the faster call.
            margin = [r - p for r, p in zip(reach, g.padding)]
            result = F.conv2d(maps, taps.flip(2, 3), None, 1, margin, g.dilation, len(taps))
        else:
            sizes = zip((height, width), g.padding, reach, g.stride)
            rest = [(n + 2 * p - r - 1) % s for n, p, r, s in sizes]
            result = F.conv_transpose2d(
                maps, taps, None, g.stride, g.padding, rest, len(taps), g.dilation
            )
        if block.filters == 1:
            return result
        parts = result.permute(0, 2, 3, 1).unflatten(3, (block.filters, self.size))
        return parts.sum(3).permute(0, 3, 1, 2)


def slabs(channels: int) -> list[slice]:
    """Runs of at most SLAB_CHANNELS channels, of nearly equal length."""
    count = -(-channels // SLAB_CHANNELS)
    bounds = [channels * i // count for i in range(count + 1)]
    return [slice(*pair) for pair in pairwise(bounds)]


def pieces(
    input: Tensor, weight: Tensor, bank: Tensor, geometry: Geometry, phis: int
) -> Iterator[slice]:
    """Runs of the batch whose maps and ``phis`` tensors like phi stay below the bound."""
    rows, columns = geometry.output_size(input.shape[2], input.shape[3], bank.shape[-1])
    outputs, channels = weight.shape[:2]
    floats = max(
        phis * (bundle[-1].filters.stop - bundle[0].filters.start) * channels
        + sum(product.num_maps for product in bundle) * outputs
        for bundle in bundles(geometry, channels)
    )
    bound = WORKSPACE_BYTES * torch.get_num_threads()
    size = max(1, bound // (floats * rows * columns * input.element_size()))
    for start in range(0, len(input), size):
        yield slice(start, min(start + size, len(input)))


class Bundle:
    """Some of the products of a group of channels."""

    def __init__(
        self, bundle: list[Product], bank: Tensor, matrices: list[Tensor], geometry: Geometry
    ) -> None:
        self.num_maps = sum(product.num_maps for product in bundle)
        channels, self.outputs = matrices[0].shape[1], matrices[0].shape[-1]
        self.slabs = [Slab(s, bundle, bank, matrices, geometry) for s in slabs(channels)]

    def analyse(self, images: Tensor) -> list[list[Tensor]]:
        """phi of every slab of channels-last images (n, C, H, W)."""
        return [slab.analyse(images[:, slab.channels]) for slab in self.slabs]

    def mix(self, phis: list[list[Tensor]]) -> Tensor:
        """Maps whose squares are part of the response; (pixels, maps O)."""
        maps = phis[0][0].new_empty(len(phis[0][0]), self.num_maps * self.outputs)
        for slab, phi in zip(self.slabs, phis):
            slab.mix(phi, maps, fresh=slab is self.slabs[0])
        return maps

    def power(self, images: Tensor, linear: bool) -> tuple[Tensor, Tensor | None]:
        """Squares of the maps, added up in float32 at least; (pixels, O).

        With ``linear`` the first map, that of order 0, is returned as it is and left out of the sum.
        """
        maps = self.mix(self.analyse(images))
        maps = maps.to(torch.promote_types(maps.dtype, torch.float32))
        first = maps[:, : self.outputs]
        kept = first.clone() if linear else None
        if linear:
            first.zero_()
        return maps.square_().view(-1, self.num_maps, self.outputs).sum(1), kept

    def pull_back(
        self,
        images: Tensor,
        slope: Tensor,
        linear: Tensor | None,
        totals: list[Tensor],
        target: Tensor | None,
        fresh: bool,
    ) -> None:
        """Add the gradients of the mixing matrices to ``totals`` and that of the images to ``target``.

        ``slope`` (pixels, 1, O) times a map is the gradient of that map; ``linear`` (pixels, O), if
        given, is the gradient of the first map instead. If ``fresh``, the target is written; it is None
        if the gradient of the images is not wanted.
        """
        phis = self.analyse(images)
        maps = self.mix(phis)
        maps.view(-1, self.num_maps, self.outputs).mul_(slope)
        if linear is not None:
            maps[:, : self.outputs] = linear
        for slab, phi in zip(self.slabs, phis):
            slab.add_weight_gradients(totals, phi, maps)
            if target is not None:
                part = target[:, slab.channels]
                gradient = slab.input_gradient(phi, maps, images)
                part.copy_(gradient) if fresh else part.add_(gradient)


def group_slices(groups: int, channels: int) -> list[slice]:
    each = channels // groups
    return [slice(g * each, (g + 1) * each) for g in range(groups)]


def as_rows(maps: Tensor) -> Tensor:
    """(n, O, H', W') as a contiguous matrix (pixels, O)."""
    return maps.permute(0, 2, 3, 1).reshape(-1, maps.shape[1]).contiguous()


def write_rows(target: Tensor, rows: Tensor) -> None:
    """Write a matrix (pixels, O) to maps (n, O, H', W')."""
    target.copy_(rows.view(len(target), *target.shape[2:], -1).permute(0, 3, 1, 2))


@torch.library.custom_op("besselnet::factored_response", mutates_args=())
def factored_response(
    input: Tensor,
    weight: Tensor,
    bank: Tensor,
    radial_counts: Sequence[int],
    mirror: bool,
    response: str,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> tuple[Tensor, Tensor]:
    """Power or amplitude of a Bessel convolution, (N, O, H', W'); the second tensor is empty.

    For the response "signed": the amplitude of the orders above 0, and the map of order 0.
    """
    geometry = Geometry(radial_counts, mirror, stride, padding, dilation)
    signed = response == "signed"
    output, linear = _empty_response(input, weight, bank, geometry, signed)
    bank = bank[geometry.sorted_rows()]
    for ins, outs in zip(group_slices(groups, input.shape[1]), group_slices(groups, len(weight))):
        matrices = mixing_matrices(weight[outs], geometry)
        first, *others = (
            Bundle(b, bank, matrices, geometry) for b in bundles(geometry, weight.shape[1])
        )
        for run in pieces(input, weight[outs], bank, geometry, phis=1):
            images = input[run, ins].contiguous(memory_format=torch.channels_last)
            power, kept = first.power(images, linear=signed)
            for bundle in others:
                power += bundle.power(images, linear=False)[0]
            if response != "power":
                # The smallest normal number stands for 0, where the root has no slope.
                power = power.clamp_min_(torch.finfo(power.dtype).tiny).sqrt_()
            write_rows(output[run, outs], power)
            if kept is not None:
                write_rows(linear[run, outs], kept)
    return output, linear


def _empty_response(
    input: Tensor, weight: Tensor, bank: Tensor, geometry: Geometry, signed: bool
) -> tuple[Tensor, Tensor]:
    size = geometry.output_size(input.shape[2], input.shape[3], bank.shape[-1])
    last = input.is_contiguous(memory_format=torch.channels_last) and not input.is_contiguous()
    output = torch.empty(
        (input.shape[0], weight.shape[0], *size),
        dtype=torch.promote_types(input.dtype, torch.float32),
        device=input.device,
        memory_format=torch.channels_last if last else torch.contiguous_format,
    )
    return output, torch.empty_like(output) if signed else output.new_empty(0)


@factored_response.register_fake
def _(input, weight, bank, counts, mirror, response, stride, padding, dilation, groups):  # type: ignore[no-untyped-def]
    geometry = Geometry(counts, mirror, stride, padding, dilation)
    return _empty_response(input, weight, bank, geometry, response == "signed")


@torch.library.custom_op("besselnet::factored_gradient", mutates_args=())
def factored_gradient(
    gradient: Tensor,
    linear: Tensor | None,
    amplitude: Tensor | None,
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

    ``gradient`` and ``linear`` are the gradients of the two results of :func:`factored_response` (None
    where the second is empty); ``amplitude`` is its first result, or None if that was the power.
    """
    geometry = Geometry(radial_counts, mirror, stride, padding, dilation)
    input_gradient = torch.empty_like(input) if with_input else input.new_empty(0)
    weight_gradients = []
    bank = bank[geometry.sorted_rows()]
    for ins, outs in zip(group_slices(groups, input.shape[1]), group_slices(groups, len(weight))):
        matrices = mixing_matrices(weight[outs], geometry)
        totals = [m.new_zeros(m.shape) for m in matrices]
        first, *others = (
            Bundle(b, bank, matrices, geometry) for b in bundles(geometry, weight.shape[1])
        )
        # The synthesis writes as much as it reads.
        for run in pieces(input, weight[outs], bank, geometry, phis=2):
            images = input[run, ins].contiguous(memory_format=torch.channels_last)
            # d response / d map = map / amplitude, or 2 map for the power
            slope = as_rows(gradient[run, outs])
            slope = 2 * slope if amplitude is None else slope / as_rows(amplitude[run, outs])
            slope = slope.to(input.dtype).unsqueeze(1)
            straight = None if linear is None else as_rows(linear[run, outs]).to(input.dtype)
            target = input_gradient[run, ins] if with_input else None
            first.pull_back(images, slope, straight, totals, target, fresh=True)
            for bundle in others:
                bundle.pull_back(images, slope, None, totals, target, fresh=False)
        weight_gradients.append(weight_gradient(totals, geometry))
    return input_gradient, torch.cat(weight_gradients)


@factored_gradient.register_fake
def _(  # type: ignore[no-untyped-def]
    gradient,
    linear,
    amplitude,
    input,
    weight,
    bank,
    counts,
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
    input, weight, bank, counts, mirror, response, *settings = inputs
    ctx.save_for_backward(input, weight, bank, None if response == "power" else output[0])
    ctx.signed = response == "signed"
    ctx.settings = (counts, mirror, *settings)


def _backward(ctx, gradient, linear):  # type: ignore[no-untyped-def]
    input, weight, bank, amplitude = ctx.saved_tensors
    with_input = ctx.needs_input_grad[0]
    to_input, to_weight = factored_gradient(
        gradient,
        linear if ctx.signed else None,
        amplitude,
        input,
        weight,
        bank,
        *ctx.settings,
        with_input,
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
    response: str,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """:func:`factored_response` in the terms of a :class:`BasisSpec`."""
    mirror = spec.symmetry == "O(2)"
    result, linear = factored_response(
        input,
        weight,
        bank,
        spec.radial_counts,
        mirror,
        response,
        stride,
        padding,
        dilation,
        groups,
    )
    return result + linear if response == "signed" else result


def _multiply_adds(input, weight, bank, counts, stride, padding, dilation):  # type: ignore[no-untyped-def]
    """Multiply-adds of the analysis and of the mixing, from the shapes of the tensors."""
    geometry = Geometry(counts, False, stride, padding, dilation)
    rows, columns = geometry.output_size(input[2], input[3], bank[-1])
    pixels = input[0] * rows * columns
    analysis = bank[0] * bank[1] * bank[2] * input[1]
    mixing = (4 * sum(counts) - 3 * counts[0]) * weight[0] * weight[1]
    return pixels * analysis, pixels * mixing


@register_flop_formula(torch.ops.besselnet.factored_response)
def _response_flops(input, weight, bank, counts, mirror, response, *settings, out_shape, **_):  # type: ignore[no-untyped-def]
    analysis, mixing = _multiply_adds(input, weight, bank, counts, *settings[:3])
    return 2 * (analysis + mixing)


@register_flop_formula(torch.ops.besselnet.factored_gradient)
def _gradient_flops(_g, _l, _a, input, weight, bank, counts, mirror, *settings, out_shape, **_):  # type: ignore[no-untyped-def]
    # phi and the maps are computed again, then pulled back to the weights and, if wanted, to the input.
    analysis, mixing = _multiply_adds(input, weight, bank, counts, *settings[:3])
    with_input = settings[-1]
    return 2 * ((1 + with_input) * analysis + (2 + with_input) * mixing)
