"""Rotation-equivariant convolutions and networks for PyTorch (Bessel-convolutional neural networks)."""

import importlib
from typing import TYPE_CHECKING, Any

from besselnet._version import __version__

if TYPE_CHECKING:
    from besselnet.conversion import convert
    from besselnet.hub import from_pretrained, save_pretrained
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
    "convert",
    "create_model",
    "from_pretrained",
    "list_models",
    "register_model",
    "save_pretrained",
    "suggest_size",
]

# The room of each name that is not a layer. The room of `convert` has another name than the function:
# importing besselnet.convert, were it a module, would put the module in the function's place.
_ROOMS = {
    "convert": "conversion",
    "create_model": "models",
    "from_pretrained": "hub",
    "list_models": "models",
    "register_model": "models",
    "save_pretrained": "hub",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: torch takes seconds, and `besselnet --help` needs none of it."""
    if name not in __all__:
        raise AttributeError(f"module 'besselnet' has no attribute {name!r}")
    room = importlib.import_module(f"besselnet.{_ROOMS.get(name, 'nn')}")
    return getattr(room, name)


def __dir__() -> list[str]:
    return __all__
