"""Stateless functions on tensors, the counterparts of :mod:`besselnet.nn`."""

from besselnet.checks import CUTOFFS
from besselnet.functional._basis import SYMMETRIES, BasisSpec, Symmetry
from besselnet.functional._conv import (
    ALGORITHMS,
    RESPONSES,
    SCALE_POOLS,
    Algorithm,
    Response,
    ScalePool,
    bessel_conv2d,
    bessel_response,
    scale_padding,
    strongest,
)
from besselnet.functional._cost import cheaper_algorithm, direct_cost, factored_cost
from besselnet.functional._direct import expand_filters, response_of
from besselnet.functional._disc import disc_weights, soft_disc
from besselnet.functional._padding import PADDING_MODES, by_convolution, pad_image
from besselnet.functional._plan import mixing_matrix
from besselnet.functional._pool import (
    blur_pool2d,
    blur_pool_weights,
    check_blur,
    pool_centred,
    pool_image,
    pool_margins,
)
from besselnet.functional._rotation import rotate_alike, rotate_images, rotation_matrices
from besselnet.functional._softsign import softsign
from besselnet.functional._upsample import upsample2d, upsample_centred, upsample_weights
from besselnet.functional._view import VIEWS, View, hidden_colour, show_rotated
from besselnet.functional._warp import (
    BORDERS,
    INTERPOLATIONS,
    Border,
    Interpolation,
    warp_images,
)

__all__ = [
    "ALGORITHMS",
    "BORDERS",
    "CUTOFFS",
    "INTERPOLATIONS",
    "PADDING_MODES",
    "RESPONSES",
    "SCALE_POOLS",
    "SYMMETRIES",
    "VIEWS",
    "Algorithm",
    "BasisSpec",
    "Border",
    "Interpolation",
    "Response",
    "ScalePool",
    "Symmetry",
    "View",
    "bessel_conv2d",
    "bessel_response",
    "blur_pool2d",
    "blur_pool_weights",
    "by_convolution",
    "cheaper_algorithm",
    "check_blur",
    "direct_cost",
    "disc_weights",
    "expand_filters",
    "factored_cost",
    "hidden_colour",
    "mixing_matrix",
    "pad_image",
    "pool_centred",
    "pool_image",
    "pool_margins",
    "response_of",
    "rotate_alike",
    "rotate_images",
    "rotation_matrices",
    "scale_padding",
    "show_rotated",
    "soft_disc",
    "softsign",
    "strongest",
    "upsample2d",
    "upsample_centred",
    "upsample_weights",
    "warp_images",
]
