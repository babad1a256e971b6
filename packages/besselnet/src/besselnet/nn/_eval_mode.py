"""Measuring a module without changing it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Context manager for eval mode without gradients; on exit, every layer returns to its previous mode."""
    modes = [(layer, layer.training) for layer in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for layer, training in modes:
            layer.training = training
