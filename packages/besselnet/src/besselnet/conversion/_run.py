"""Running a model once to see what it returns and which layers it goes through."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from besselnet.nn import evaluating

__all__ = ["Step", "run", "steps"]


class Step(NamedTuple):
    """A layer and the tensor that it was given."""

    name: str
    layer: nn.Module
    input: Tensor


@torch.no_grad()
def run(model: nn.Module, images: Tensor) -> list[Tensor]:
    """All tensors that the model returns, in evaluation mode."""
    with evaluating(model):
        return [leaf for leaf in tree_leaves(model(images)) if isinstance(leaf, Tensor)]


def steps(model: nn.Module, images: Tensor) -> list[Step]:
    """The modules that take a tensor, in the order of execution."""
    executed: list[Step] = []

    def note(name: str, layer: nn.Module, args: tuple[Any, ...]) -> None:
        if args and isinstance(args[0], Tensor):
            executed.append(Step(name, layer, args[0]))

    handles = [
        layer.register_forward_pre_hook(lambda layer, args, name=name: note(name, layer, args))
        for name, layer in model.named_modules()
    ]
    try:
        run(model, images)
    finally:
        for handle in handles:
            handle.remove()
    return executed
