"""Layers: modules that own parameters and call :mod:`besselnet.functional`."""

from besselnet.nn.conv import BesselConv2d
from besselnet.nn.norm import AttentiveNorm2d
from besselnet.nn.pool import BlurPool2d

__all__ = ["AttentiveNorm2d", "BesselConv2d", "BlurPool2d"]
