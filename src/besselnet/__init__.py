"""Bessel-convolutional neural networks for PyTorch: image recognition that ignores orientation."""

from besselnet._version import __version__
from besselnet.models import create_model, list_models, register_model
from besselnet.nn import (
    AttentiveNorm2d,
    BesselConv2d,
    BlurPool2d,
    FourierBesselTransform,
    check_size,
    suggest_size,
)

__all__ = [
    "AttentiveNorm2d",
    "BesselConv2d",
    "BlurPool2d",
    "FourierBesselTransform",
    "__version__",
    "check_size",
    "create_model",
    "list_models",
    "register_model",
    "suggest_size",
]
