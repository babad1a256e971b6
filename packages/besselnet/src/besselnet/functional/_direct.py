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
    weight: Tensor, bank: Tensor, spec: BasisSpec, expansion: Tensor | None = None
) -> Tensor:
    """F_v = sum_j T_{v,j} conj(kappa_{v,j}) (Equation 6.4) as real filters.

    Shapes: weight (O, I, num_weights), bank (num_weights, k, k) -> (O, num_maps, I, k, k). ``expansion``
    is ``spec.expansion(...)`` on the device of the weights, built if not given.
    """
    if expansion is None:
        expansion = spec.expansion(weight.device)
    bank = bank.to(weight.dtype)
    signed = torch.cat([bank, -bank, torch.zeros_like(bank[:1])])
    between = signed.index_select(0, expansion.flatten()).view(spec.num_weights, -1)
    filters = weight.flatten(0, 1) @ between
    return filters.view(*weight.shape[:2], spec.num_maps, *bank.shape[1:]).transpose(1, 2)


def direct(
    input: Tensor,
    weight: Tensor,
    bank: Tensor,
    spec: BasisSpec,
    response: str,
    window: Window,
    groups: int,
    expansion: Tensor | None = None,
) -> Tensor:
    """Response (Equations 5.6, 5.7), (N, O, H', W')."""
    filters = expand_filters(weight, bank, spec, expansion).flatten(0, 1)
    maps = F.conv2d(input, filters, None, *window, groups)
    maps = maps.unflatten(1, (weight.shape[0], spec.num_maps))
    # Half precision holds neither the squares nor their sum.
    if maps.dtype in (torch.float16, torch.bfloat16):
        maps = maps.float()
    return response_of(maps, response)


def response_of(maps: Tensor, response: str, dtype: torch.dtype | None = None) -> Tensor:
    """The response from all its maps, (N, O, maps, H', W') -> (N, O, H', W'); the map of order 0 is first.

    ``dtype`` is that of the maps, for graphs that do not know it.
    """
    if response == "signed":
        return maps.select(2, 0) + amplitude(maps[:, :, 1:], dtype)
    return maps.square().sum(2) if response == "power" else amplitude(maps, dtype)


def amplitude(maps: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Root of the sum of squares of (N, O, maps, H', W'), with slope 0 at 0.

    The smallest normal number stands for 0, where the root has no slope.
    """
    return maps.square().sum(2).clamp_min(torch.finfo(dtype or maps.dtype).tiny).sqrt()
