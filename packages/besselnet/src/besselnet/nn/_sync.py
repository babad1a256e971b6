"""Batch normalisation over the images of all processes, on any device."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.modules.batchnorm import _BatchNorm


@contextmanager
def synchronised_norms(model: nn.Module, *, silent: bool = False) -> Iterator[None]:
    """Context in which batch normalisation in training takes mean and variance over all processes.

    The forward passes of all processes must be in it; each may have its own number of images, and the
    backward pass may come later. Running averages are then the same everywhere. Outside of it, and in eval
    mode, the layers are what they were. ``nn.SyncBatchNorm``, for GPUs alone, is left as it is.

    Args:
        silent: the images of this process do not count: it only takes part, because it has none.
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
    others = [axis for axis in range(input.dim()) if axis != 1]
    counted = 0.0 if silent else float(input.numel() // input.shape[1])
    variance, mean = torch.var_mean(input.float(), others, correction=0)
    # Sums of squares cancel: in float64 nothing is lost by that.
    variance, mean = variance.double(), mean.double()
    parts = [mean.new_tensor([counted]), counted * mean, counted * (variance + mean.square())]
    count, *sums = _Sum.apply(torch.cat(parts)).split([1, len(mean), len(mean)])
    if count.item() < 2:
        raise ValueError(
            f"input has shape {tuple(input.shape)}: must have more than 1 value per channel in training"
        )
    mean = sums[0] / count
    variance = (sums[1] / count - mean.square()).clamp_min(0)
    _follow(norm, mean.detach(), (variance * count / (count - 1)).detach())
    scale = (variance + norm.eps).rsqrt()
    if norm.weight is not None:
        scale = scale * norm.weight
    shift = -mean * scale
    if norm.bias is not None:
        shift = shift + norm.bias
    shape = (1, -1, *[1] * (input.dim() - 2))
    scale, shift = (values.float().view(shape) for values in (scale, shift))
    return torch.addcmul(shift, input.float(), scale).to(input.dtype)


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


class _Sum(torch.autograd.Function):
    """The sum of a tensor over all processes; its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        total = values.clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        total = gradient.clone()
        distributed.all_reduce(total)
        return total
