"""Bessel-convolutional neural networks for PyTorch: image recognition that ignores orientation."""

import importlib
from typing import TYPE_CHECKING, Any

from besselnet._version import __version__

if TYPE_CHECKING:
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

_FROM_MODELS = ("create_model", "list_models", "register_model")


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: torch takes seconds, and `besselnet --help` needs none of it."""
    if name not in __all__:
        raise AttributeError(f"module 'besselnet' has no attribute {name!r}")
    room = "models" if name in _FROM_MODELS else "nn"
    return getattr(importlib.import_module(f"besselnet.{room}"), name)


def __dir__() -> list[str]:
    return __all__
