"""The norms of the modes as the paper's published code has them, by reparametrising the weights.

A Bessel convolution is linear in the product of weight and filter of each mode: multiplying the filter of a
mode is multiplying its weights. Other norms change the start of a training and how fast each weight learns,
not what a layer can express.
"""

import math
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import jv, jvp
from torch import Tensor, nn
from torch.nn.utils.parametrize import register_parametrization

from besselnet.checks import check_choice
from besselnet.core import Mode, ModeSet
from besselnet.nn import BesselConv2d

__all__ = ["MODE_NORMS", "ModeNorms", "apply_mode_norms", "mode_factors"]

ModeNorms = Literal["unit", "authors", "authors-pixels"]
MODE_NORMS: tuple[str, ...] = get_args(ModeNorms)


def apply_mode_norms(network: nn.Module, mode_norms: str) -> nn.Module:
    """Give every `BesselConv2d` of the network these norms; the numbers of its weights stay.

    Args:
        mode_norms: "unit" gives every Bessel function unit norm on the kernel's disc, as the library
            does; "authors" on a disc of as many radii as the kernel has pixels to its rim, which
            weakens the constant one; "authors-pixels" gives the very filters of the published code.
    """
    check_choice("mode_norms", mode_norms, MODE_NORMS)
    if mode_norms != "unit":
        for layer in [m for m in network.modules() if isinstance(m, BesselConv2d)]:
            spec = layer.spec
            factors = torch.tensor(mode_factors(spec.kernel_size, spec.modes, mode_norms))
            register_parametrization(layer, "weight", _Scaled(factors.to(layer.weight)))
    return network


def mode_factors(kernel_size: int, modes: ModeSet, mode_norms: str) -> NDArray[np.float64]:
    """What the weights are multiplied with, (num_real,): 1 for unit norms.

    The published code takes the norm of J_v(k_{v,j} r) for r from 0 to the radius in pixels, where 1 is
    the rim; as a sum over whole r, and filters without the area of a pixel. "authors" has the first of
    these alone, as an integral. Every scale has the factors of the base size, so that their powers
    compare.

    The weights lie order by order: the cosines of an order, then, for v > 0, its sines.
    """
    if mode_norms == "unit":
        return np.ones(modes.num_real)
    radius = max(1.0, (kernel_size - 1) / 2)
    factors: list[float] = []
    for order in range(modes.num_orders):
        of_order = [
            _norm(mode, radius, mode_norms) / mode.norm
            for mode in modes.modes
            if mode.order == order
        ]
        factors += of_order if order == 0 else 2 * of_order
    return np.array(factors)


def _norm(mode: Mode, radius: float, mode_norms: str) -> float:
    if mode_norms == "authors":
        return norm_up_to(mode, radius)
    return radius**2 * norm_on_pixels(mode, int(radius))


def norm_up_to(mode: Mode, radius: float) -> float:
    """N such that N J_v(k rho) exp(i v theta) has unit norm on the disc of radius R.

    1 / N^2 = pi R^2 (J'_v(k R)^2 + (1 - v^2 / (k R)^2) J_v(k R)^2), and pi R^2 for k = 0.
    """
    v, k = mode.order, mode.root
    reach = k * radius
    if k == 0:
        return 1 / (radius * math.sqrt(math.pi))
    energy = jvp(v, reach) ** 2 + (1 - (v / reach) ** 2) * jv(v, reach) ** 2
    return float(1 / (radius * math.sqrt(math.pi * energy)))


def norm_on_pixels(mode: Mode, radius: int) -> float:
    """N such that 1 / N^2 is the sum of 2 pi r J_v(k r)^2 over r = 0, 1, ..., R."""
    r = np.arange(radius + 1)
    return float(1 / np.sqrt(2 * np.pi * np.sum(r * jv(mode.order, mode.root * r) ** 2)))


class _Scaled(nn.Module):
    """weight (O, C, num_real) times a factor for each mode; the factors are no part of a checkpoint."""

    factors: Tensor

    def __init__(self, factors: Tensor) -> None:
        super().__init__()
        self.register_buffer("factors", factors, persistent=False)

    def forward(self, weight: Tensor) -> Tensor:
        return weight * self.factors
