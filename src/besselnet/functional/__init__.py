"""The formulas on tensors, without state."""

from besselnet.functional.basis import CUTOFFS, SYMMETRIES, BasisSpec, Symmetry
from besselnet.functional.conv import (
    ALGORITHMS,
    PADDING_MODES,
    RESPONSES,
    SCALE_POOLS,
    Algorithm,
    Response,
    ScalePool,
    bessel_conv2d,
)
from besselnet.functional.direct import expand_filters
from besselnet.functional.pool import blur_pool2d

__all__ = [
    "ALGORITHMS",
    "CUTOFFS",
    "PADDING_MODES",
    "RESPONSES",
    "SCALE_POOLS",
    "SYMMETRIES",
    "Algorithm",
    "BasisSpec",
    "Response",
    "ScalePool",
    "Symmetry",
    "bessel_conv2d",
    "blur_pool2d",
    "expand_filters",
]
