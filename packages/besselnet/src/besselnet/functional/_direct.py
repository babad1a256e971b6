"""Algorithm 1 of the paper: expand the weights into filters F_v, convolve, square, add.

The plainest form, and the twin that every other algorithm is compared with. It costs 2 v_max - 1
convolutions (O(2): 4 v_max - 3) and keeps all their results for the backward pass.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from besselnet.functional._basis import BasisSpec
from besselnet.functional._plan import Window


def expand_filters(
    weight: Tensor,
    bank: Tensor,
    spec: BasisSpec,
    groups: int = 1,
    expansion: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """F_v = sum_j T_{v,j} conj(kappa_{v,j}) (Equation 6.4) as real filters.

    Shapes: weight (O, I, num_weights), bank (num_weights, k, k) -> (groups, num_maps, O / groups, I, k, k).
    ``expansion`` is ``spec.expansion(...)`` like the weights, built if not given.
    """
    index, signs = expansion or spec.expansion(dtype=weight.dtype, device=weight.device)
    if bank.dtype != weight.dtype:
        bank = bank.to(weight.dtype)
    between = bank.flatten(1).index_select(0, index) * signs
    # One product for each group and map, which leaves the filters where the convolution reads them.
    pairs = weight.view(groups, 1, -1, spec.num_weights)
    filters = torch.matmul(pairs, between.view(spec.num_maps, spec.num_weights, -1))
    return filters.view(groups, spec.num_maps, -1, weight.shape[1], *bank.shape[1:])


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
    filters = expand_filters(weight, bank, spec, groups, expansion).flatten(0, 2)
    maps = F.conv2d(input, filters, None, *window, groups)
    maps = maps.view(maps.shape[0], groups, spec.num_maps, -1, *maps.shape[2:])
    # Half precision holds neither the squares nor their sum.
    if maps.dtype.itemsize < 4:
        maps = maps.float()
    return response_of(maps, response).flatten(1, 2)


def response_of(maps: Tensor, response: str, dtype: torch.dtype | None = None) -> Tensor:
    """The response from all its maps: (N, groups, maps, O / groups, H', W') without
    the dimension of the maps; the map of order 0 is the first.

    ``dtype`` is that of the maps, for graphs that do not know it.
    """
    if response == "signed":
        return maps.select(2, 0) + amplitude(maps[:, :, 1:], dtype)
    return maps.square().sum(2) if response == "power" else amplitude(maps, dtype)


def amplitude(maps: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Root of the sum of squares over the third dimension, with slope 0 at 0.

    The smallest normal number stands for 0, where the root has no slope.
    """
    return maps.square().sum(2).clamp_min(torch.finfo(dtype or maps.dtype).tiny).sqrt()
