"""Rotation-equivariant layers: modules that own parameters and call :mod:`besselnet.functional`."""

from besselnet.nn._activation import Softsign
from besselnet.nn._conv import BesselConv2d
from besselnet.nn._eval_mode import evaluating
from besselnet.nn._field import FIELDS, Field, FieldOfView
from besselnet.nn._fold import fold_batch_norm
from besselnet.nn._maps import activation_maps
from besselnet.nn._norm import AttentiveNorm2d
from besselnet.nn._pool import BlurPool2d
from besselnet.nn._sizes import (
    SizeReport,
    check_size,
    exact_sizes,
    first_channels,
    sliding_fault,
    suggest_size,
    window_stride,
)
from besselnet.nn._sync import synchronised_norms
from besselnet.nn._transform import FourierBesselTransform
from besselnet.nn._upsample import Upsample2d

__all__ = [
    "FIELDS",
    "AttentiveNorm2d",
    "BesselConv2d",
    "BlurPool2d",
    "Field",
    "FieldOfView",
    "FourierBesselTransform",
    "SizeReport",
    "Softsign",
    "Upsample2d",
    "activation_maps",
    "check_size",
    "evaluating",
    "exact_sizes",
    "first_channels",
    "fold_batch_norm",
    "sliding_fault",
    "suggest_size",
    "synchronised_norms",
    "window_stride",
]
