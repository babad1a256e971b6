"""``softsign``: the paper's activation, with a derivative that reads its result once."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from besselnet.functional._transforms import transformed


class _Softsign(torch.autograd.Function):
    """y = x / (1 + |x|), of which dy/dx = (1 - |y|)^2.

    Torch differentiates quotient, sum and absolute value one after the other, in twice the time.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.abs().add_(1).reciprocal_().mul_(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        if torch.is_grad_enabled():
            return gradient * (1 - y.abs()).square()
        return y.abs().neg_().add_(1).square_().mul_(gradient)


def softsign(input: Tensor) -> Tensor:
    """Return x / (1 + |x|), like ``F.softsign``, with a faster backward pass."""
    if not input.requires_grad or torch.compiler.is_compiling() or transformed(input):
        return F.softsign(input)
    result: Tensor = _Softsign.apply(input)
    return result
