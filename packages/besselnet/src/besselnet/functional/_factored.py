"""The Bessel convolution in two linear steps: analyse each channel once, then mix per angular order.

By linearity sum_{c,j} conj(kappa) phi needs no filter of its own for every pair of channels:

1. *analyse*: phi_{v,j} of every input channel, with one fixed bank of F filters;
2. *mix*: for each order v one matrix product over (filter, channel), then square and add.

That is O(W H n^2 C_in (n^2 + C_out)) operations against O(W H n^3 C_in C_out) of Algorithm 1. Only the
input and the weights (and the response, if it is the amplitude) are kept for the backward pass, which
computes phi again.

What makes it fast in practice is how things lie in memory: :mod:`besselnet.functional._layouts`.

Both passes are registered with torch as operators, so that ``torch.compile`` and ``torch.export`` see one
node each. Inside them there is no autograd, and buffers are reused.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from besselnet.functional._basis import BasisSpec
from besselnet.functional._direct import all_maps, amplitude, expand_filters, response_of
from besselnet.functional._layouts import Columns, Layout, Rows
from besselnet.functional._plan import Plan, Window, make_plan

# From this many channels on, one filter alone fills the vector units and makes a product large enough.
WIDE = 48


def layouts(
    input: Tensor, weight: Tensor, bank: Tensor, plan: Plan, window: Window, groups: int
) -> Iterator[tuple[slice, slice, Layout]]:
    """For each group its input channels, its output channels, and how it is computed."""
    kind = Rows if weight.shape[1] >= WIDE else Columns
    inputs, outputs = input.shape[1] // groups, len(weight) // groups
    for group in range(groups):
        ins = slice(group * inputs, (group + 1) * inputs)
        outs = slice(group * outputs, (group + 1) * outputs)
        yield ins, outs, kind(weight[outs], bank, plan, window, *input.shape[2:])


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
    plan, window = make_plan(tuple(radial_counts), mirror), Window(stride, padding, dilation)
    signed = response == "signed"
    output = empty_response(input, weight, bank, window)
    linear = torch.empty_like(output) if signed else output.new_empty(0)
    for ins, outs, layout in layouts(input, weight, bank, plan, window, groups):
        for run in layout.pieces(len(input)):
            power, kept = layout.power(input[run, ins], signed)
            if response != "power":
                # The smallest normal number stands for 0, where the root has no slope.
                power = power.clamp_min_(torch.finfo(power.dtype).tiny).sqrt_()
            output[run, outs] = power
            if kept is not None:
                linear[run, outs] = kept
    return output, linear


def empty_response(input: Tensor, weight: Tensor, bank: Tensor, window: Window) -> Tensor:
    """Memory for the response, in the layout of the input."""
    size = window.output_size(input.shape[2], input.shape[3], bank.shape[-1])
    last = input.is_contiguous(memory_format=torch.channels_last) and not input.is_contiguous()
    return torch.empty(
        (input.shape[0], weight.shape[0], *size),
        dtype=torch.promote_types(input.dtype, torch.float32),
        device=input.device,
        memory_format=torch.channels_last if last else torch.contiguous_format,
    )


@factored_response.register_fake
def _(input, weight, bank, counts, mirror, response, stride, padding, dilation, groups):  # type: ignore[no-untyped-def]
    output = empty_response(input, weight, bank, Window(stride, padding, dilation))
    return output, torch.empty_like(output) if response == "signed" else output.new_empty(0)


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
    plan, window = make_plan(tuple(radial_counts), mirror), Window(stride, padding, dilation)
    input_gradient = torch.empty_like(input) if with_input else input.new_empty(0)
    weight_gradients = []
    for ins, outs, layout in layouts(input, weight, bank, plan, window, groups):
        for run in layout.pieces(len(input)):
            # d response / d map = map / amplitude, or 2 map for the power
            slope = gradient[run, outs]
            slope = 2 * slope if amplitude is None else slope / amplitude[run, outs]
            straight = None if linear is None else linear[run, outs].to(input.dtype)
            pulled = layout.pull_back(input[run, ins], slope.to(input.dtype), straight, with_input)
            if pulled is not None:
                input_gradient[run, ins] = pulled
        weight_gradients.append(layout.weight_gradient())
    return input_gradient, torch.cat(weight_gradients)


@factored_gradient.register_fake
def _(gradient, linear, amplitude, input, weight, *settings):  # type: ignore[no-untyped-def]
    with_input = settings[-1]
    return torch.empty_like(input) if with_input else input.new_empty(0), torch.empty_like(weight)


def _keep(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    input, weight, bank, counts, mirror, response, *settings = inputs
    ctx.save_for_backward(input, weight, bank, None if response == "power" else output[0])
    ctx.signed = response == "signed"
    ctx.settings = (counts, mirror, *settings)


def _backward(ctx, gradient, linear):  # type: ignore[no-untyped-def]
    input, weight, bank, amplitude = ctx.saved_tensors
    with_input = ctx.needs_input_grad[0]
    if torch.is_grad_enabled():
        # Somebody wants derivatives of the derivative: those of the direct algorithm have them.
        return *_direct_backward(ctx, gradient, linear), *[None] * 8
    kept = (linear if ctx.signed else None, amplitude, input, weight, bank)
    to_input, to_weight = factored_gradient(gradient, *kept, *ctx.settings, with_input)
    return to_input if with_input else None, to_weight, *[None] * 8


def _direct_backward(ctx, gradient, linear):  # type: ignore[no-untyped-def]
    """Gradients of the input and of the weight, None where not wanted, as functions with derivatives."""
    input, weight, bank, kept = ctx.saved_tensors
    counts, mirror, *steps, groups = ctx.settings
    filters = expand_filters(weight, bank, make_plan(tuple(counts), mirror), groups)
    maps = all_maps(input, filters, Window(*steps))
    if ctx.signed:
        responses, cotangents = [amplitude(maps[:, :, 1:]), maps.select(2, 0)], [gradient, linear]
    else:
        response = "power" if kept is None else "amplitude"
        responses, cotangents = [response_of(maps, response)], [gradient]
    results = [each.flatten(1, 2) for each in responses]
    wanted = [t for t, needed in zip((input, weight), ctx.needs_input_grad) if needed]
    found = iter(torch.autograd.grad(results, wanted, cotangents, create_graph=True))
    return tuple(next(found) if needed else None for needed in ctx.needs_input_grad[:2])


def refuse_second_backward(ctx, *gradients):  # type: ignore[no-untyped-def]
    raise RuntimeError(
        'the factored Bessel convolution has no second derivative: use algorithm="direct" for it'
    )


factored_response.register_autograd(_backward, setup_context=_keep)
factored_gradient.register_autograd(refuse_second_backward)


def factored(
    input: Tensor,
    weight: Tensor,
    bank: Tensor,
    spec: BasisSpec,
    response: str,
    window: Window,
    groups: int,
) -> Tensor:
    """:func:`factored_response` in the terms of a :class:`BasisSpec`."""
    mirror = spec.symmetry == "O(2)"
    result, linear = factored_response(
        input, weight, bank, spec.radial_counts, mirror, response, *window, groups
    )
    return result + linear if response == "signed" else result


def _multiply_adds(input, weight, bank, counts, stride, padding, dilation):  # type: ignore[no-untyped-def]
    """Multiply-adds of the analysis and of the mixing, from the shapes of the tensors."""
    rows, columns = Window(stride, padding, dilation).output_size(input[2], input[3], bank[-1])
    pixels = input[0] * rows * columns
    analysis = bank[0] * bank[1] * bank[2] * input[1]
    mixing = make_plan(tuple(counts), False).multiply_adds * weight[0] * weight[1]
    return pixels * analysis, pixels * mixing


def response_flops(input, weight, bank, counts, *steps):  # type: ignore[no-untyped-def]
    """Of a forward pass, from the shapes of the tensors."""
    return 2 * sum(_multiply_adds(input, weight, bank, counts, *steps))


def gradient_flops(input, weight, bank, counts, *steps, with_input):  # type: ignore[no-untyped-def]
    """Of a backward pass: phi and the maps again, pulled back to the weights and, if wanted, to the input."""
    analysis, mixing = _multiply_adds(input, weight, bank, counts, *steps)
    return 2 * ((1 + with_input) * analysis + (2 + with_input) * mixing)


@register_flop_formula(torch.ops.besselnet.factored_response)
def _response_flops(input, weight, bank, counts, mirror, response, *settings, out_shape, **_):  # type: ignore[no-untyped-def]
    return response_flops(input, weight, bank, counts, *settings[:3])


@register_flop_formula(torch.ops.besselnet.factored_gradient)
def _gradient_flops(_g, _l, _a, input, weight, bank, counts, mirror, *settings, out_shape, **_):  # type: ignore[no-untyped-def]
    return gradient_flops(input, weight, bank, counts, *settings[:3], with_input=settings[-1])
