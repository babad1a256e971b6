"""The factored algorithm by the native kernel (:mod:`besselnet.kernels`): one operator for each pass.

The operators return what the kernel computes, response and bias together. Where it cannot be called (a
graph compiled where it could, tables without the parities that it needs), they compute the same in torch
operations. Only the input and the weights are kept for the backward pass.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from besselnet.functional._basis import BasisSpec
from besselnet.functional._direct import all_maps, expand_filters, response_of
from besselnet.functional._factored import (
    empty_response,
    factored_gradient,
    factored_response,
    gradient_flops,
    refuse_second_backward,
    response_flops,
)
from besselnet.functional._plan import Window, make_plan
from besselnet.kernels import MOST_TAPS, Settings, available, backward, forward

DTYPES = (torch.float32, torch.bfloat16)


def kernel_takes(input: Tensor, weight: Tensor, spec: BasisSpec, autocast: bool) -> bool:
    """Whether the native kernel computes a layer of these tensors, (O, C / groups, F) the weight."""
    return (
        input.device.type == "cpu"
        and input.dtype in DTYPES
        # It adds up in float32 whatever it reads: autocast has nothing to convert.
        and (weight.dtype in DTYPES if autocast else weight.dtype == input.dtype)
        and spec.kernel_size + max(spec.scales) <= MOST_TAPS
        and available()
    )


@torch.library.custom_op("besselnet::fused_response", mutates_args=())
def fused_response(
    input: Tensor,
    weight: Tensor,
    bank: Tensor,
    bias: Tensor | None,
    radial_counts: Sequence[int],
    mirror: bool,
    response: str,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """Response of a Bessel convolution plus bias, (N, O, H', W'), float32, in the layout of the input."""
    output = empty_response(input, weight, bank, Window(stride, padding, dilation))
    if not output.numel():
        return output
    settings = _settings(radial_counts, mirror, response, stride, padding, dilation, groups)
    weight, bank = _plain(weight), _plain(bank)
    bias = None if bias is None else _plain(bias)
    if available() and forward(input, weight, bank, bias, output, settings):
        return output
    result, linear = factored_response(input.float(), weight, bank, *settings)
    if response == "signed":
        result = result + linear
    return result if bias is None else result + bias.view(-1, 1, 1)


def _settings(counts, mirror, response, stride, padding, dilation, groups):  # type: ignore[no-untyped-def]
    steps = (tuple(stride), tuple(padding), tuple(dilation))
    return Settings(tuple(counts), mirror, response, *steps, groups)


def _plain(tensor: Tensor) -> Tensor:
    return tensor.to(torch.float32).contiguous()


@fused_response.register_fake
def _(input, weight, bank, bias, counts, mirror, response, stride, padding, dilation, groups):  # type: ignore[no-untyped-def]
    return empty_response(input, weight, bank, Window(stride, padding, dilation))


@torch.library.custom_op("besselnet::fused_gradient", mutates_args=())
def fused_gradient(
    gradient: Tensor,
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
    with_input: bool,
    with_bias: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the input, the weight and the bias; the first and the last empty if not wanted."""
    to_input, to_weight, to_bias = _empty_gradients(gradient, input, weight, with_input, with_bias)
    if not gradient.numel():
        return to_input.zero_(), to_weight.zero_(), to_bias.zero_()
    settings = _settings(radial_counts, mirror, response, stride, padding, dilation, groups)
    taps, bank = _plain(weight), _plain(bank)
    sums = to_weight if weight.dtype == torch.float32 else torch.empty_like(taps)
    wanted = (to_input if with_input else None, sums, to_bias if with_bias else None)
    if not (available() and backward(input, taps, bank, gradient, *wanted, settings)):
        tensors = (input.float(), taps, bank)
        amplitude, _ = factored_response(*tensors, *settings)
        linear = gradient if response == "signed" else None
        kept = None if response == "power" else amplitude
        others = (settings.radial_counts, mirror, *settings[3:])
        found, sums = factored_gradient(gradient, linear, kept, *tensors, *others, with_input)
        if with_input:
            to_input.copy_(found)
        if with_bias:
            to_bias = gradient.sum((0, 2, 3))
        to_weight.copy_(sums)
    elif sums is not to_weight:
        to_weight.copy_(sums)
    return to_input, to_weight, to_bias


def _empty_gradients(gradient, input, weight, with_input, with_bias):  # type: ignore[no-untyped-def]
    return (
        torch.empty_like(input) if with_input else input.new_empty(0),
        torch.empty(weight.shape, dtype=weight.dtype, device=weight.device),
        gradient.new_empty(len(weight) if with_bias else 0),
    )


@fused_gradient.register_fake
def _(gradient, input, weight, bank, *settings):  # type: ignore[no-untyped-def]
    return _empty_gradients(gradient, input, weight, *settings[-2:])


def _keep(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    input, weight, bank, bias, *settings = inputs
    ctx.save_for_backward(input, weight, bank)
    ctx.bias_dtype = None if bias is None else bias.dtype
    ctx.settings = settings


def _backward(ctx, gradient):  # type: ignore[no-untyped-def]
    input, weight, bank = ctx.saved_tensors
    with_input, with_weight, _, with_bias, *_ = ctx.needs_input_grad
    nothing = [None] * 7
    if torch.is_grad_enabled():
        # Somebody wants derivatives of the derivative: those of the direct algorithm have them.
        to_bias = gradient.sum((0, 2, 3)).to(ctx.bias_dtype) if with_bias else None
        return *_direct_backward(ctx, gradient), None, to_bias, *nothing
    tensors = (gradient, input, weight, bank)
    to_input, to_weight, to_bias = fused_gradient(*tensors, *ctx.settings, with_input, with_bias)
    return (
        to_input if with_input else None,
        to_weight if with_weight else None,
        None,
        to_bias.to(ctx.bias_dtype) if with_bias else None,
        *nothing,
    )


def _direct_backward(ctx, gradient):  # type: ignore[no-untyped-def]
    """Gradients of the input and of the weight, None where not wanted, as functions with derivatives."""
    input, weight, bank = ctx.saved_tensors
    counts, mirror, response, *steps, groups = ctx.settings
    plan = make_plan(tuple(counts), mirror)
    filters = expand_filters(weight.float(), bank, plan, groups)
    result = response_of(all_maps(input.float(), filters, Window(*steps)), response).flatten(1, 2)
    wanted = [t for t, needed in zip((input, weight), ctx.needs_input_grad) if needed]
    if not wanted:
        return None, None
    found = iter(torch.autograd.grad(result, wanted, gradient, create_graph=True))
    return tuple(next(found) if needed else None for needed in ctx.needs_input_grad[:2])


fused_response.register_autograd(_backward, setup_context=_keep)
fused_gradient.register_autograd(refuse_second_backward)


class _Eager(torch.autograd.Function):
    """The operator with its derivative, in a third of the time that its registered one takes to be called."""

    @staticmethod
    def forward(*inputs: Any) -> Tensor:
        return fused_response(*inputs)

    setup_context = staticmethod(_keep)
    backward = staticmethod(_backward)


def fused(
    input: Tensor,
    weight: Tensor,
    bank: Tensor,
    bias: Tensor | None,
    spec: BasisSpec,
    response: str,
    window: Window,
    groups: int,
) -> Tensor:
    """:func:`fused_response` in the terms of a :class:`BasisSpec`."""
    mirror = spec.symmetry == "O(2)"
    eager = torch.is_grad_enabled() and not torch.compiler.is_compiling()
    call: Any = _Eager.apply if eager else fused_response
    result: Tensor = call(
        input, weight, bank, bias, spec.radial_counts, mirror, response, *window, groups
    )
    return result


@register_flop_formula(torch.ops.besselnet.fused_response)
def _response_flops(input, weight, bank, bias, counts, mirror, response, *settings, out_shape, **_):  # type: ignore[no-untyped-def]
    return response_flops(input, weight, bank, counts, *settings[:3])


@register_flop_formula(torch.ops.besselnet.fused_gradient)
def _gradient_flops(_g, input, weight, bank, counts, mirror, response, *settings, out_shape, **_):  # type: ignore[no-untyped-def]
    return gradient_flops(input, weight, bank, counts, *settings[:3], with_input=settings[-2])
