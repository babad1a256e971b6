"""Run exported networks with onnxruntime and numpy, without torch.

The metadata of the file describe the network, as JSON under the key ``besselnet``: the content of
``besselnet.models.network_config``, whether logits are per image or per pixel (``answers``), how to read
image files, and the ``temperature`` of the probabilities.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np

from besselnet._pixels import RESIZES, Array, check_reading
from besselnet.checks import LARGEST_SIDE, check_choice, check_count, check_number
from besselnet.untrusted import check_file, check_keys, parse_json, reading

METADATA_KEY = "besselnet"
# The layout of the metadata. It changes when an older besselnet could not read a newer file.
METADATA_FORMAT = 2
_FACTS: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(("in_channels", "image_size"), (int, "an integer")),
    "classes": (list | None, "a list of strings or null"),
    **dict.fromkeys(("answers", "resize"), (str, "a string")),
    **dict.fromkeys(("bits", "page"), (int | None, "an integer or null")),
}

_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


class OtherAnswers(ValueError):
    """The logits of a file are of images, and those of pixels are wanted, or the other way round."""


class OnnxNetwork:
    """A network that `besselnet export --to onnx` wrote, of either kind.

    The arguments and attributes are those of `OnnxClassifier`.

    Attributes:
        answers: what its logits are for: "image", or "pixels".
    """

    answers: str

    def __init__(
        self, path: str | Path, *, device: str = "cpu", threads: int | None = None
    ) -> None:
        runtime = _onnxruntime()
        path = Path(path)
        if not path.exists():
            raise ValueError(f"{path}: no such file")
        # onnxruntime reads no larger ones.
        check_file(path, 2**31)
        if device == "auto":
            has_cuda = _PROVIDERS["cuda"] in runtime.get_available_providers()
            device = "cuda" if has_cuda else "cpu"
        provider = _PROVIDERS.get(device)
        if provider not in runtime.get_available_providers():
            raise ValueError(
                f"device={device!r}: must be one of {_devices(runtime)} with this onnxruntime"
            )
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads or 0
        try:
            # Another attempt on the CPU, of which onnxruntime prints a report, is for other devices.
            again = {"enable_fallback": int(device != "cpu")}
            content = path.read_bytes()
            self.session = runtime.InferenceSession(content, options, [provider], **again)
        except Exception as error:  # onnxruntime's own exceptions share no base class
            reason = str(error).splitlines()[0]
            raise ValueError(f"{path} is not a readable ONNX file: {reason}") from None
        self.path = path
        self.facts = self._read_facts(path)
        # Files of earlier versions say nothing.
        found = self.facts.get("answers", "image")
        if found != self.answers:
            other = {"image": "OnnxClassifier", "pixels": "OnnxSegmenter"}.get(
                found, "nothing here"
            )
            raise OtherAnswers(
                f"{path} has logits of {found!r}, and {type(self).__name__} is for {self.answers!r}: "
                f"use {other}"
            )
        self.classes: tuple[str, ...] = tuple(self.facts["classes"] or ())
        self.in_channels: int = self.facts["in_channels"]
        self.image_size: int = self.facts["image_size"]

    def _read_facts(self, path: Path) -> dict[str, Any]:
        with reading(path):
            text = self.session.get_modelmeta().custom_metadata_map.get(METADATA_KEY)
            self._input = self.session.get_inputs()[0].name
        if text is None:
            raise ValueError(
                f"{path} has no metadata of besselnet: must be a file of `besselnet export`"
            )
        where = f"{path}: metadata {METADATA_KEY!r}"
        facts: Any = parse_json(text, where)
        found = facts.get("format") if isinstance(facts, dict) else None
        if found != METADATA_FORMAT:
            raise ValueError(
                f"{path}: metadata format {found!r} is not the format {METADATA_FORMAT} of "
                "this besselnet: use the version that wrote it"
            )
        # Files of earlier versions are of images, and say nothing.
        facts.setdefault("answers", "image")
        facts.setdefault("smallest_size", 1)
        check_keys(where, facts, _FACTS)
        if not all(isinstance(name, str) for name in facts["classes"] or ()):
            raise ValueError(f"{where}: 'classes' must be a list of strings or null")
        try:
            check_count("in_channels", facts["in_channels"])
            check_count("image_size", facts["image_size"], most=LARGEST_SIDE)
            check_count("smallest_size", facts["smallest_size"])
            check_choice("answers", facts["answers"], ("image", "pixels"))
            check_choice("resize", facts["resize"], RESIZES)
            how = {key: facts.get(key) for key in ("bits", "page", "max_pixels")}
            check_reading(**how)
            check_number("temperature", facts.setdefault("temperature", 1.0), above=0)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        return dict(facts)

    def logits(self, images: Array) -> Array:
        """Images (N, C, H, W), floats in [0, 1], to logits (N, classes), or (N, classes, H, W)."""
        batch = np.ascontiguousarray(images, np.float32)
        least = self.facts["smallest_size"]
        if min(batch.shape[2:], default=least) < least:
            raise ValueError(
                f"the images have shape {batch.shape}: H and W must be at least {least} for {self.path}"
            )
        try:
            logits: Array = self.session.run(None, {self._input: batch})[0]
        except Exception as error:  # onnxruntime's own exceptions share no base class
            reason = str(error).splitlines()[0]
            raise ValueError(
                f"{self.path} does not accept images of shape {batch.shape}: {reason}"
            ) from None
        pixels = batch.shape[2:] if self.answers == "pixels" else ()
        values = logits.shape[1] if pixels else math.prod(logits.shape[1:])
        classes = len(self.classes) or values
        if logits.shape != (len(batch), classes, *pixels):
            raise ValueError(
                f"{self.path}: logits of {len(batch)} images and {classes} 'classes' have shape "
                f"{logits.shape}"
            )
        return logits

    def probabilities(self, images: Array) -> Array:
        """Images (N, C, H, W), floats in [0, 1], to probabilities of the shape of `logits`.

        They are calibrated where the file has the temperature for it.
        """
        logits = self.logits(images) / np.float32(self.facts["temperature"])
        # Of logits that are not finite, NaN.
        with np.errstate(invalid="ignore"):
            raised = np.exp(logits - logits.max(1, keepdims=True))
            shares: Array = raised / raised.sum(1, keepdims=True)
        return shares


def _onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise ValueError(
            f"ONNX files need onnxruntime ({error}); install it with: pip install onnxruntime"
        ) from error
    return onnxruntime


def _devices(runtime: Any) -> str:
    available = runtime.get_available_providers()
    return ", ".join(name for name, provider in _PROVIDERS.items() if provider in available)
