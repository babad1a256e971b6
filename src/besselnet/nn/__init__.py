"""Layers: modules that own parameters and call :mod:`besselnet.functional`."""

from besselnet.nn.conv import BesselConv2d
from besselnet.nn.norm import AttentiveNorm2d

__all__ = ["AttentiveNorm2d", "BesselConv2d"]
