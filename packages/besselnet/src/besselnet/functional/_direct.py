"""Algorithm 1 of the paper: expand the weights into filters F_v, convolve, square, add.

The plainest form, and the twin that every other algorithm is compared with. It costs 2 v_max - 1
convolutions (O(2): 4 v_max - 3) and keeps all their results for the backward pass.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from besselnet.functional._basis import BasisSpec


def expand_filters(weight: Tensor, bank: Tensor, spec: BasisSpec) -> Tensor:
    """F_v = sum_j T_{v,j} conj(kappa_{v,j}) (Equation 6.4) as real filters.

    Shapes: weight (O, I, num_weights), bank (num_weights, k, k) -> (O, num_maps, I, k, k).
    """
    bank = bank.to(weight.dtype)
    filters = []
    for cosines, sines in spec.order_slices:
        p, q = weight[..., cosines], weight[..., sines]
        c, s = bank[cosines], bank[sines]
        if sines.start == sines.stop:
            parts = [(p, c)]
        elif spec.symmetry == "SO(2)":
            both = torch.cat([p, q], -1)
            parts = [(both, torch.cat([c, s])), (both, torch.cat([s, -c]))]
        else:
            parts = [(p, c), (p, s), (q, c), (q, s)]
        filters += [torch.einsum("oin,nyx->oiyx", *part) for part in parts]
    return torch.stack(filters, 1)


def direct(
    input: Tensor,
    weight: Tensor,
    bank: Tensor,
    spec: BasisSpec,
    response: str,
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
) -> Tensor:
    """Response (Equations 5.6, 5.7), (N, O, H', W')."""
    filters = expand_filters(weight, bank, spec)
    maps = F.conv2d(input, filters.flatten(0, 1), None, stride, padding, dilation, groups)
    maps = maps.unflatten(1, (weight.shape[0], spec.num_maps))
    # Half precision holds neither the squares nor their sum.
    if maps.dtype in (torch.float16, torch.bfloat16):
        maps = maps.float()
    if response == "power":
        return maps.square().sum(2)
    if response == "amplitude":
        return amplitude(maps)
    return maps[:, :, 0] + amplitude(maps[:, :, 1:])


def amplitude(maps: Tensor) -> Tensor:
    """Root of the sum of squares of (N, O, maps, H', W'), with slope 0 at 0.

    The smallest normal number stands for 0, where the root has no slope.
    """
    return maps.square().sum(2).clamp_min(torch.finfo(maps.dtype).tiny).sqrt()
