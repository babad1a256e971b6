"""Bessel-convolutional neural networks for PyTorch: image recognition that ignores orientation."""

from besselnet._version import __version__
from besselnet.nn import AttentiveNorm2d, BesselConv2d

__all__ = ["AttentiveNorm2d", "BesselConv2d", "__version__"]
