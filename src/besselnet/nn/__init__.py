"""Layers: modules that own parameters and call :mod:`besselnet.functional`."""

from besselnet.nn.conv import BesselConv2d
from besselnet.nn.norm import AttentiveNorm2d
from besselnet.nn.pool import BlurPool2d
from besselnet.nn.sizes import SizeReport, check_size, exact_sizes, suggest_size

__all__ = [
    "AttentiveNorm2d",
    "BesselConv2d",
    "BlurPool2d",
    "SizeReport",
    "check_size",
    "exact_sizes",
    "suggest_size",
]
