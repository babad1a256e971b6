"""Synchronised batch normalisation over all processes, on any device."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm


@contextmanager
def synchronised_norms(model: nn.Module, *, silent: bool = False) -> Iterator[None]:
    """Context manager in which batch normalisation in training uses statistics of all processes.

    All processes must run their forward passes inside the context. Each may have its own number of images,
    and the backward pass may follow later. Running averages are then the same in all processes. Outside the
    context and in eval mode, the layers are unchanged. ``nn.SyncBatchNorm``, which is for GPUs only, is not
    affected.

    Args:
        model: the network with the batch normalisation layers.
        silent: this process has no images of its own: it takes part, but its input does not count.
    """
    norms = [
        layer
        for layer in model.modules()
        if isinstance(layer, _BatchNorm) and not isinstance(layer, nn.SyncBatchNorm)
    ]
    for norm in norms:
        vars(norm)["forward"] = partial(_normalise, norm, silent)
    try:
        yield
    finally:
        for norm in norms:
            del vars(norm)["forward"]


def is_synchronised(norm: nn.Module) -> bool:
    """Whether a layer is in the context of `synchronised_norms`."""
    return "forward" in vars(norm)


def _normalise(norm: _BatchNorm, silent: bool, input: Tensor) -> Tensor:
    """``norm(input)``, with the statistics of the inputs (N, C, ...) of all processes."""
    if not norm.training:
        return type(norm).forward(norm, input)
    norm._check_input_dim(input)
    output, count, mean, variance = _Synchronised.apply(
        input, norm.weight, norm.bias, norm.eps, silent
    )
    # Of a single value; asking a GPU how many there are would make it wait.
    if input.numel() == input.shape[1] and count.item() < 2:
        raise ValueError(
            f"input has shape {tuple(input.shape)}: must have more than 1 value per channel in training"
        )
    _follow(norm, mean, variance * count / (count - 1))
    return output


@torch.no_grad()
def _follow(norm: _BatchNorm, mean: Tensor, variance: Tensor) -> None:
    """Move the running averages, as ``nn.BatchNorm2d`` does."""
    if norm.running_mean is None or norm.running_var is None or norm.num_batches_tracked is None:
        return
    norm.num_batches_tracked.add_(1)
    share = norm.momentum
    if share is None:
        share = 1 / float(norm.num_batches_tracked)
    for running, current in ((norm.running_mean, mean), (norm.running_var, variance)):
        running.mul_(1 - share).add_(current.to(running.dtype), alpha=share)


class _Synchronised(torch.autograd.Function):
    """Batch normalisation whose sums, also those of its derivative, are over all processes.

    With x̂ = (x - mean) / deviation and N values of a channel in all processes, the derivative of x is
    weight / deviation times dy - sum(dy) / N - x̂ sum(dy x̂) / N. The first term is that of fixed statistics.
    """

    @staticmethod
    def forward(
        ctx: Any,
        input: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        eps: float,
        silent: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The output; the number of values of a channel, their mean and their variance."""
        others = [axis for axis in range(input.dim()) if axis != 1]
        counted = 0.0 if silent else float(input.numel() // input.shape[1])
        # Sums of squares cancel: in float64 nothing is lost by that.
        variance, mean = (
            part.double() for part in torch.var_mean(input.float(), others, correction=0)
        )
        parts = [mean.new_tensor([counted]), counted * mean, counted * (variance + mean.square())]
        sums = torch.cat(parts)
        distributed.all_reduce(sums)
        count, total, squares = sums.split([1, len(mean), len(mean)])
        mean = total / count
        variance = (squares / count - mean.square()).clamp_min(0)
        fixed = mean.float(), variance.float()
        output = torch.native_batch_norm(input, weight, bias, *fixed, False, 0.0, eps)[0]
        ctx.eps, ctx.silent = eps, silent
        ctx.save_for_backward(input, weight, *fixed, count)
        ctx.mark_non_differentiable(count, mean, variance)
        return output, count, mean, variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *others: Tensor) -> tuple[Tensor | None, ...]:
        input, weight, mean, variance, count = ctx.saved_tensors
        # Without weights there would be no sums.
        scale = torch.ones_like(mean) if weight is None else weight
        of_input, of_weight, of_bias = torch.ops.aten.native_batch_norm_backward(
            gradient.contiguous(memory_format=_layout(input)),
            *(input, scale, mean, variance, None, None, False, ctx.eps, [True, True, True]),
        )
        sums = torch.cat([of_weight, of_bias]).double()
        distributed.all_reduce(sums)
        by_value, plain = (sums / count).chunk(2)
        inverse = (variance.double() + ctx.eps).rsqrt()
        factor = -scale * inverse * inverse * by_value
        shift = -scale * inverse * plain - factor * mean
        shape = (1, -1, *[1] * (input.dim() - 2))
        factor, shift = (part.to(input.dtype).view(shape) for part in (factor, shift))
        of_input = torch.addcmul(of_input.add_(shift), input, factor)
        if ctx.silent:
            of_input.zero_()
        has_weight, has_bias = ctx.needs_input_grad[1:3]
        return (
            of_input,
            of_weight if has_weight else None,
            of_bias if has_bias else None,
            None,
            None,
        )


def _layout(images: Tensor) -> torch.memory_format:
    """The order of the axes in memory."""
    last = images.dim() == 4 and images.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if last else torch.contiguous_format
