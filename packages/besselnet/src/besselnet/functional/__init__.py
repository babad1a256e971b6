"""The formulas on tensors, without state."""

from besselnet.functional._basis import CUTOFFS, SYMMETRIES, BasisSpec, Symmetry
from besselnet.functional._conv import (
    ALGORITHMS,
    PADDING_MODES,
    RESPONSES,
    SCALE_POOLS,
    Algorithm,
    Response,
    ScalePool,
    bessel_conv2d,
)
from besselnet.functional._cost import cheaper_algorithm, direct_cost, factored_cost
from besselnet.functional._direct import expand_filters
from besselnet.functional._pool import blur_pool2d
from besselnet.functional._rotation import Interpolation, rotate_images

__all__ = [
    "ALGORITHMS",
    "CUTOFFS",
    "PADDING_MODES",
    "RESPONSES",
    "SCALE_POOLS",
    "SYMMETRIES",
    "Algorithm",
    "BasisSpec",
    "Interpolation",
    "Response",
    "ScalePool",
    "Symmetry",
    "bessel_conv2d",
    "blur_pool2d",
    "cheaper_algorithm",
    "direct_cost",
    "expand_filters",
    "factored_cost",
    "rotate_images",
]
