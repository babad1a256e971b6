"""Networks that run elsewhere: ONNX, ``torch.export``, plain PyTorch.

Names are loaded when they are first used: `OnnxClassifier` needs no torch, and must not wait for it.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from besselnet.export._classifier import Answer, OnnxClassifier
    from besselnet.export._files import ExportReport, export_model
    from besselnet.export._plain import to_plain

__all__ = ["Answer", "ExportReport", "OnnxClassifier", "export_model", "to_plain"]

_PLACES = {
    "Answer": "classifier",
    "OnnxClassifier": "classifier",
    "ExportReport": "files",
    "export_model": "files",
    "to_plain": "plain",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'besselnet.export' has no attribute {name!r}")
    return getattr(importlib.import_module(f"besselnet.export._{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
