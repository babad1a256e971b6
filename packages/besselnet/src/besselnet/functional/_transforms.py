"""Whether a call is part of a transform that operators with a backward pass alone do not take."""

import torch
from torch import Tensor
from torch.autograd import forward_ad


def transformed(*tensors: Tensor | None) -> bool:
    """Whether derivatives are taken forwards or by ``torch.func``, or the call is mapped by it.

    Operators that know the backward pass alone would have a forward derivative of zero there.
    """
    if torch.compiler.is_compiling():
        return False
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor
    return forward_ad._current_level >= 0 or any(t is not None and wrapped(t) for t in tensors)
