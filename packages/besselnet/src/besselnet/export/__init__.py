"""Export networks to ONNX, ``torch.export`` or plain PyTorch, and run ONNX files.

Names are imported on first use, so `OnnxClassifier`, `OnnxSegmenter` and `open_onnx` do not import torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from besselnet.export._classifier import OnnxClassifier, Prediction
    from besselnet.export._files import SUFFIXES, TARGETS, ExportReport, export_model
    from besselnet.export._open import open_onnx
    from besselnet.export._parity import BOUND, RANDOM_IMAGES
    from besselnet.export._plain import to_plain
    from besselnet.export._segmenter import OnnxSegmenter

__all__ = [
    "BOUND",
    "RANDOM_IMAGES",
    "SUFFIXES",
    "TARGETS",
    "ExportReport",
    "OnnxClassifier",
    "OnnxSegmenter",
    "Prediction",
    "export_model",
    "open_onnx",
    "to_plain",
]

_PLACES = {
    "BOUND": "parity",
    "OnnxClassifier": "classifier",
    "OnnxSegmenter": "segmenter",
    "Prediction": "classifier",
    "RANDOM_IMAGES": "parity",
    "open_onnx": "open",
    "to_plain": "plain",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'besselnet.export' has no attribute {name!r}")
    place = _PLACES.get(name, "files")
    return getattr(importlib.import_module(f"besselnet.export._{place}"), name)


def __dir__() -> list[str]:
    return __all__
