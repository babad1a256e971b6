"""Fold batch normalisation into the preceding convolution of a trained network."""

import copy
from itertools import pairwise

import torch
from torch import Tensor, nn

from besselnet.nn._conv import BesselConv2d


def fold_batch_norm(model: nn.Module) -> nn.Module:
    """Return a copy in eval mode with batch normalisation folded into the preceding convolutions.

    In eval mode, batch normalisation multiplies each channel by a factor s and adds a constant. The factor
    moves into the weights (its square root for ``response="power"``) and the constant into the bias.
    ``nn.Identity`` replaces the normalisation. Only neighbours in an ``nn.Sequential`` are folded:
    ``nn.Conv2d`` or ``BesselConv2d``, followed by ``nn.BatchNorm2d``. A ``BesselConv2d`` keeps its
    normalisation if some s is not positive, because an amplitude has no sign, or if the strongest scale is
    chosen over all channels.
    """
    folded = copy.deepcopy(model).eval()
    for module in folded.modules():
        if type(module) is not nn.Sequential:
            continue
        for (_, conv), (name, norm) in pairwise(list(module.named_children())):
            plain = type(conv) in (nn.Conv2d, BesselConv2d)
            if plain and type(norm) is nn.BatchNorm2d and _fold_pair(conv, norm):
                setattr(module, name, nn.Identity())
    return folded


@torch.no_grad()
def _fold_pair(conv: nn.Module, norm: nn.BatchNorm2d) -> bool:
    """Change the convolution; False if it cannot take the normalisation in."""
    mean, variance = norm.running_mean, norm.running_var
    if mean is None or variance is None:
        return False
    factor = (variance.double() + norm.eps).rsqrt()
    if norm.weight is not None:
        factor = factor * norm.weight.double()
    weights = factor
    if isinstance(conv, BesselConv2d):
        together = len(conv.spec.scales) > 1 and conv.scale_pool == "image"
        if together or not bool((factor > 0).all()):
            return False
        weights = factor.sqrt() if conv.response == "power" else factor
    weight: Tensor = conv.weight  # type: ignore[assignment]
    bias: Tensor = torch.zeros_like(mean) if conv.bias is None else conv.bias  # type: ignore[assignment]
    shift = (bias.double() - mean.double()) * factor
    if norm.bias is not None:
        shift = shift + norm.bias.double()
    scaled = weight.double() * weights.view(-1, *[1] * (weight.dim() - 1))
    conv.weight = nn.Parameter(scaled.to(weight.dtype), weight.requires_grad)
    conv.bias = nn.Parameter(shift.to(weight.dtype), weight.requires_grad)
    return True
