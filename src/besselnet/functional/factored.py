"""The Bessel convolution in two linear steps: analyse each channel once, then mix per angular order.

By linearity sum_{c,j} conj(kappa) phi needs no filter of its own for every pair of channels:

1. *analyse*: phi_{v,j} of every input channel, with one fixed bank of F filters;
2. *mix*: for each order v one matrix product over (filter, channel), then square and add.

That is O(W H n^2 C_in (n^2 + C_out)) operations against O(W H n^3 C_in C_out) of Algorithm 1. Only the
input and the weights (and the response, if it is the amplitude) are kept for the backward pass, which
computes phi again.

What makes it fast in practice is the layout. The analysis is one convolution whose batch is
(channel, image). Its result, sorted by filter, is a matrix with rows (filter, channel) and columns
(image, pixel): each order is a run of rows, and orders with equally many radial functions make one batched
product. The batch goes through in pieces and the orders in bundles, so that what is written is still in the
cache when it is read.

Both passes are registered with torch as operators, so that ``torch.compile`` and ``torch.export`` see one
node each. Inside them there is no autograd.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import register_flop_formula

from besselnet.functional.basis import BasisSpec
from besselnet.functional.orders import Geometry, Product, mixing_matrix, weight_gradient

# Bound on what one piece of the batch needs at a time (one image at least), for each thread.
WORKSPACE_BYTES = 4 * 2**20
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


class Plan(NamedTuple):
    """How the work is divided."""

    bundles: list[list[Run]]
    """What is analysed together."""
    images: int
    """How many images go through together."""

    def pieces(self, batch: int) -> Iterator[slice]:
        """Runs of the batch."""
        for start in range(0, batch, self.images):
            yield slice(start, min(start + self.images, batch))


def plan(input: Tensor, weight: Tensor, bank: Tensor, geometry: Geometry) -> Plan:
    """Bundles and pieces that keep two tensors like phi, and the maps, below the bound.

    Two, because phi comes unsorted from the convolution, and the backward pass has its gradient.
    """
    rows, columns = geometry.output_size(input.shape[2], input.shape[3], bank.shape[-1])
    outputs, channels = weight.shape[:2]
    number = input.element_size() * rows * columns
    bound = WORKSPACE_BYTES * torch.get_num_threads()
    most = max(FEWEST_FILTERS, bound // (2 * channels * number))
    count = -(-len(bank) // most)
    bundles: list[list[Run]] = [[]]
    for run in runs(geometry):
        # Nearly equal shares: a short rest would cost as much as a whole bundle.
        if bundles[-1] and run.filters.stop * count > len(bank) * len(bundles):
            bundles.append([])
        bundles[-1].append(run)
    analysed = max(bundle[-1].filters.stop - bundle[0].filters.start for bundle in bundles)
    mixed = max(run.num_products * run.num_maps for run in runs(geometry))
    floats = 2 * analysed * channels + (mixed + 1) * outputs
    return Plan(bundles, max(1, bound // (floats * number)))


class Step(NamedTuple):
    """The products of a run."""

    rows: slice
    """Of phi."""
    columns: slice
    """The same in the whole mixing matrix."""
    matrices: Tensor
    """(products, maps O, rows of one product)."""


def batches(matrix: Tensor, count: int) -> Tensor:
    """Columns (of a matrix) cut into equal runs: (rows, count n) -> (count, rows, n), without a copy."""
    return matrix.unflatten(1, (count, -1)).transpose(0, 1)


class Bundle:
    """Some of the orders for a group of channels: all that is the same for every piece.

    Rows of phi are (filter, channel), those of the maps (map, output channel); columns are
    (image, pixel).
    """

    def __init__(self, bundle: list[Run], bank: Tensor, matrix: Tensor, geometry: Geometry) -> None:
        self.geometry = geometry
        self.channels = matrix.shape[-1]
        first, last = bundle[0].filters.start, bundle[-1].filters.stop
        self.bank = bank[first:last].unsqueeze(1)
        self.steps = []
        for filters, count, num_maps in bundle:
            columns = slice(filters.start * self.channels, filters.stop * self.channels)
            start = first * self.channels
            rows = slice(columns.start - start, columns.stop - start)
            part = matrix[:num_maps].flatten(0, 1).flatten(1)[:, columns]
            self.steps.append(Step(rows, columns, batches(part, count)))
        self.buffer = bank.new_empty(0)

    def analyse(self, images: Tensor) -> Tensor:
        """phi of images (C, n, H, W); the next call overwrites it."""
        g = self.geometry
        maps = F.conv2d(
            images.flatten(0, 1)[:, None], self.bank, None, g.stride, g.padding, g.dilation
        )
        if self.buffer.numel() < maps.numel():
            self.buffer = torch.empty_like(maps).flatten()
        phi = self.buffer[: maps.numel()].view(len(self.bank), len(maps), -1)
        phi.copy_(maps.flatten(2).transpose(0, 1))
        return phi.view(len(self.bank) * self.channels, -1)

    def mix(self, phi: Tensor) -> Iterator[tuple[Step, Tensor, Tensor]]:
        """Step by step: its part of phi, (products, rows, columns), and the maps it gives."""
        for step in self.steps:
            part = phi[step.rows].unflatten(0, (len(step.matrices), -1))
            yield step, part, torch.bmm(step.matrices, part)

    def add_power(self, images: Tensor, power: Tensor, linear: Tensor | None) -> None:
        """Add the squares of the maps to ``power`` (O, columns), in float32 at least.

        With ``linear`` the first map, that of order 0, is written there and left out of the sum.
        """
        for step, _, maps in self.mix(self.analyse(images)):
            if linear is not None and step.rows.start == 0:
                linear.copy_(maps[0])
                continue
            maps = maps.to(power.dtype).view(-1, *power.shape)
            if len(maps) <= 2:
                for part in maps:
                    power.addcmul_(part, part)
            else:
                power += maps.square_().sum(0)

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
        for step, part, maps in self.mix(self.analyse(images)):
            if linear is not None and step.rows.start == 0:
                maps[0] = linear
            else:
                maps.view(-1, *slope.shape).mul_(slope)
            count, rows, _ = step.matrices.shape
            gradient = batches(total[:rows, step.columns], count)
            gradient.baddbmm_(maps, part.transpose(1, 2))
            if target is not None:
                # The gradient of phi takes its place, with pixels as rows.
                pulled = part.view(part.shape[-1], -1)
                torch.bmm(maps.transpose(1, 2), step.matrices, out=batches(pulled, count))
                self._synthesise(step, pulled, target)

    def _synthesise(self, step: Step, phi: Tensor, target: Tensor) -> None:
        """Add the transpose of the analysis of phi, (image pixel, filter channel), to ``target``.

        A depthwise convolution in channels-last memory: on CPUs the only fast one with few outputs.
        """
        g = self.geometry
        filters = slice(step.rows.start // self.channels, step.rows.stop // self.channels)
        taps = self.bank[filters].repeat_interleave(self.channels, 0)
        size = taps.shape[-1]
        height, width = target.shape[1:3]
        rows = phi.view(len(target), *g.output_size(height, width, size), len(taps))
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
        parts = result.permute(0, 2, 3, 1).unflatten(3, (-1, self.channels))
        target += parts.sum(3)


def group_slices(groups: int, channels: int) -> list[slice]:
    each = channels // groups
    return [slice(g * each, (g + 1) * each) for g in range(groups)]


def as_columns(maps: Tensor) -> Tensor:
    """(n, O, H', W') as a contiguous matrix (O, columns)."""
    return maps.transpose(0, 1).flatten(1).contiguous()


def write_columns(target: Tensor, columns: Tensor) -> None:
    """Write a matrix (O, columns) to maps (n, O, H', W')."""
    images, outputs, *size = target.shape
    target.copy_(columns.view(outputs, images, *size).transpose(0, 1))


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
        matrix = mixing_matrix(weight[outs], geometry)
        division = plan(input, weight[outs], bank, geometry)
        bundles = [Bundle(bundle, bank, matrix, geometry) for bundle in division.bundles]
        for run in division.pieces(len(input)):
            images = input[run, ins].transpose(0, 1).contiguous()
            power = output.new_zeros(matrix.shape[1], output[run, 0].numel())
            kept = torch.empty_like(power) if signed else None
            for bundle in bundles:
                bundle.add_power(images, power, kept if bundle is bundles[0] else None)
            if response != "power":
                # The smallest normal number stands for 0, where the root has no slope.
                power = power.clamp_min_(torch.finfo(power.dtype).tiny).sqrt_()
            write_columns(output[run, outs], power)
            if kept is not None:
                write_columns(linear[run, outs], kept)
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
        matrix = mixing_matrix(weight[outs], geometry)
        total = matrix.new_zeros(2 * matrix.shape[1], matrix[0, 0].numel())
        division = plan(input, weight[outs], bank, geometry)
        bundles = [Bundle(bundle, bank, matrix, geometry) for bundle in division.bundles]
        for run in division.pieces(len(input)):
            images = input[run, ins].transpose(0, 1).contiguous()
            # d response / d map = map / amplitude, or 2 map for the power
            slope = as_columns(gradient[run, outs])
            slope = 2 * slope if amplitude is None else slope / as_columns(amplitude[run, outs])
            slope = slope.to(input.dtype)
            straight = None if linear is None else as_columns(linear[run, outs]).to(input.dtype)
            target = (
                torch.zeros_like(images.permute(1, 2, 3, 0)).contiguous() if with_input else None
            )
            for bundle in bundles:
                first = straight if bundle is bundles[0] else None
                bundle.pull_back(images, slope, first, total, target)
            if target is not None:
                input_gradient[run, ins] = target.permute(0, 3, 1, 2)
        weight_gradients.append(weight_gradient(total.view_as(matrix), geometry))
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
