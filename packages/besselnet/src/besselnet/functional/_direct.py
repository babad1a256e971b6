"""Algorithm 1 of the paper: expand the weights into filters F_v, convolve, square, add.

This is the simplest form, and the reference for every other algorithm. It costs 2 v_max - 1 convolutions
(O(2): 4 v_max - 3) and keeps all their results for the backward pass.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from besselnet.functional._basis import BasisSpec
from besselnet.functional._plan import Plan, Window, expansion_tensors


def expand_filters(
    weight: Tensor,
    bank: Tensor,
    spec: BasisSpec | Plan,
    groups: int = 1,
    expansion: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Return F_v = sum_j T_{v,j} conj(kappa_{v,j}) (Equation 6.4) as real filters.

    Shapes: weight (O, I, num_weights), bank (num_weights, k, k) -> (groups, num_maps, O / groups, I, k, k).
    ``expansion`` is ``spec.expansion(...)`` with the dtype and device of the weights. Default: built here.
    """
    plan = spec if isinstance(spec, Plan) else spec.plan
    index, signs = expansion or expansion_tensors(plan, weight.dtype, weight.device)
    if bank.dtype != weight.dtype:
        bank = bank.to(weight.dtype)
    between = bank.flatten(1).index_select(0, index) * signs
    # One product for each group and map, which leaves the filters where the convolution reads them.
    pairs = weight.view(groups, 1, -1, plan.num_filters)
    filters = torch.matmul(pairs, between.view(plan.num_maps, plan.num_filters, -1))
    return filters.view(groups, plan.num_maps, -1, weight.shape[1], *bank.shape[1:])


def direct(
    input: Tensor,
    weight: Tensor,
    bank: Tensor,
    spec: BasisSpec,
    response: str,
    window: Window,
    groups: int,
    expansion: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Response (Equations 5.6, 5.7), (N, O, H', W')."""
    filters = expand_filters(weight, bank, spec, groups, expansion)
    return response_of(all_maps(input, filters, window), response).flatten(1, 2)


def all_maps(input: Tensor, filters: Tensor, window: Window) -> Tensor:
    """The maps (N, groups, maps, O / groups, H', W') of filters as :func:`expand_filters` gives them."""
    groups, num_maps = filters.shape[:2]
    maps = F.conv2d(input, filters.flatten(0, 2), None, *window, groups)
    # Not -1 for the channels: a batch of no images does not tell how many there are.
    maps = maps.view(maps.shape[0], groups, num_maps, filters.shape[2], *maps.shape[2:])
    # Half precision holds neither the squares nor their sum.
    return maps.float() if maps.dtype.itemsize < 4 else maps


def response_of(maps: Tensor, response: str, dtype: torch.dtype | None = None) -> Tensor:
    """Return the response from its maps (N, groups, maps, O / groups, H', W'), without the maps dimension.

    The map of order 0 is the first. ``dtype`` is that of the maps, for graphs that do not know it.
    """
    if response == "signed":
        return maps.select(2, 0) + amplitude(maps[:, :, 1:], dtype)
    return maps.square().sum(2) if response == "power" else amplitude(maps, dtype)


def amplitude(maps: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Root of the sum of squares over the third dimension, with slope 0 at 0.

    The smallest normal number stands for 0, where the root has no slope.
    """
    return maps.square().sum(2).clamp_min(torch.finfo(dtype or maps.dtype).tiny).sqrt()
