"""Exported networks at work: onnxruntime, numpy and Pillow, no torch.

What the network is, takes and answers is in the file itself, as JSON under the key ``besselnet`` of its
metadata: what ``besselnet.models.network_config`` says of it, and how image files are to be read.
"""

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from besselnet._pixels import Array, list_images, read_image, reading_options
from besselnet.checks import check_count

METADATA_KEY = "besselnet"
# The layout of the metadata. It changes when an older besselnet could not read a newer file.
METADATA_FORMAT = 2

_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


@dataclass(frozen=True)
class Prediction:
    """The answer for one file: a class and its probability, or an error."""

    image: str
    label: str | None = None
    probability: float | None = None
    error: str | None = None

    @classmethod
    def answer(cls, image: Path, label: str, probability: float) -> "Prediction":
        """A class and its probability; an error if that is not a number."""
        if math.isnan(probability):
            return cls(str(image), error="the network gives logits that are infinite or NaN")
        return cls(str(image), label, probability)


class OnnxClassifier:
    """A network that `besselnet export --to onnx` wrote.

    Args:
        path: the file.
        device: "cpu", "cuda" with a build of onnxruntime that has it, or "auto", the best that it has.
        threads: of onnxruntime; as many as it chooses itself if not given.

    Attributes:
        classes: names of the classes.
        in_channels, image_size: of the images that it was trained on.
        facts: all that the file says about itself.
    """

    def __init__(
        self, path: str | Path, *, device: str = "cpu", threads: int | None = None
    ) -> None:
        runtime = _onnxruntime()
        path = Path(path)
        if not path.is_file():
            raise ValueError(f"{path}: no such file")
        if device == "auto":
            has_cuda = _PROVIDERS["cuda"] in runtime.get_available_providers()
            device = "cuda" if has_cuda else "cpu"
        provider = _PROVIDERS.get(device)
        if provider not in runtime.get_available_providers():
            raise ValueError(f"device={device!r}: this onnxruntime can use {_devices(runtime)}")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads or 0
        try:
            self.session = runtime.InferenceSession(path.read_bytes(), options, [provider])
        except Exception as error:  # onnxruntime's own exceptions share no base class
            reason = str(error).splitlines()[0]
            raise ValueError(f"{path} is not a readable ONNX file: {reason}") from None
        self.facts = self._read_facts(path)
        self.classes: tuple[str, ...] = tuple(self.facts["classes"] or ())
        self.in_channels: int = self.facts["in_channels"]
        self.image_size: int = self.facts["image_size"]

    def _read_facts(self, path: Path) -> dict[str, Any]:
        text = self.session.get_modelmeta().custom_metadata_map.get(METADATA_KEY)
        if text is None:
            raise ValueError(
                f"{path} does not say what it takes: `besselnet export` has not written it"
            )
        facts: dict[str, Any] = json.loads(text)
        if facts["format"] != METADATA_FORMAT:
            raise ValueError(
                f"{path}: metadata format {facts['format']!r} is not the format {METADATA_FORMAT} of "
                "this besselnet: use the version that wrote it"
            )
        return facts

    def logits(self, images: Array) -> Array:
        """Images (N, C, H, W), floats in [0, 1], to logits (N, classes)."""
        name = self.session.get_inputs()[0].name
        logits: Array = self.session.run(None, {name: np.ascontiguousarray(images, np.float32)})[0]
        return logits

    def probabilities(self, images: Array) -> Array:
        """Images (N, C, H, W), floats in [0, 1], to probabilities (N, classes)."""
        logits = self.logits(images)
        # Of logits that are not finite, NaN.
        with np.errstate(invalid="ignore"):
            raised = np.exp(logits - logits.max(1, keepdims=True))
            shares: Array = raised / raised.sum(1, keepdims=True)
        return shares

    def predict(self, paths: Iterable[str | Path], *, batch_size: int = 64) -> Iterator[Prediction]:
        """Yield one `Prediction` for each image file, in order; folders stand for the files in them.

        Only one batch of images is in memory at a time. A file that cannot be read, or for which the
        network gives no probabilities, gives a prediction with `error` set, and the work goes on.
        """
        check_count("batch_size", batch_size)
        files = list_images(map(Path, paths))
        while batch := list(islice(files, batch_size)):
            yield from self._answers(batch)

    def _answers(self, files: list[Path]) -> Iterator[Prediction]:
        read = [self._read(file) for file in files]
        images = [image for image in read if not isinstance(image, str)]
        shares = iter(self.probabilities(np.stack(images)) if images else ())
        for file, image in zip(files, read):
            if isinstance(image, str):
                yield Prediction(str(file), error=image)
            else:
                share = next(shares)
                best = int(share.argmax())
                label = self.classes[best] if self.classes else str(best)
                yield Prediction.answer(file, label, float(share[best]))

    def _read(self, file: Path) -> Array | str:
        """The image, or why there is none."""
        try:
            return read_image(
                file,
                channels=self.in_channels,
                image_size=self.image_size,
                **reading_options(self.facts),
            )
        except (ValueError, OSError) as error:
            return " ".join(str(error).split()) or type(error).__name__


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
