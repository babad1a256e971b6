"""Exported networks at work: onnxruntime, numpy and Pillow, no torch.

What the network is, takes and answers is in the file itself, as JSON under the key ``besselnet`` of its
metadata: what ``besselnet.models.network_config`` says of it, and how image files are to be read.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from besselnet._pixels import (
    RESIZES,
    Array,
    check_reading,
    list_images,
    read_image,
    reading_options,
)
from besselnet.checks import LARGEST_SIDE, check_choice, check_count
from besselnet.untrusted import check_file, check_keys, parse_json, reading

METADATA_KEY = "besselnet"
# The layout of the metadata. It changes when an older besselnet could not read a newer file.
METADATA_FORMAT = 2
_FACTS: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(("in_channels", "image_size"), (int, "an integer")),
    "classes": (list | None, "a list of texts or null"),
    "resize": (str, "a text"),
    **dict.fromkeys(("bits", "page"), (int | None, "an integer or null")),
}

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
        path, facts: the file, and all that it says about itself.
    """

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
            raise ValueError(f"device={device!r}: this onnxruntime can use {_devices(runtime)}")
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
        self.classes: tuple[str, ...] = tuple(self.facts["classes"] or ())
        self.in_channels: int = self.facts["in_channels"]
        self.image_size: int = self.facts["image_size"]

    def _read_facts(self, path: Path) -> dict[str, Any]:
        with reading(path):
            text = self.session.get_modelmeta().custom_metadata_map.get(METADATA_KEY)
            self._input = self.session.get_inputs()[0].name
        if text is None:
            raise ValueError(
                f"{path} does not say what it takes: `besselnet export` has not written it"
            )
        where = f"{path}: metadata {METADATA_KEY!r}"
        facts: Any = parse_json(text, where)
        found = facts.get("format") if isinstance(facts, dict) else None
        if found != METADATA_FORMAT:
            raise ValueError(
                f"{path}: metadata format {found!r} is not the format {METADATA_FORMAT} of "
                "this besselnet: use the version that wrote it"
            )
        check_keys(where, facts, _FACTS)
        if not all(isinstance(name, str) for name in facts["classes"] or ()):
            raise ValueError(f"{where}: 'classes' must be a list of texts or null")
        try:
            check_count("in_channels", facts["in_channels"])
            check_count("image_size", facts["image_size"], most=LARGEST_SIDE)
            check_choice("resize", facts["resize"], RESIZES)
            how = {key: facts.get(key) for key in ("bits", "page", "max_pixels")}
            check_reading(**how)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        return dict(facts)

    def logits(self, images: Array) -> Array:
        """Images (N, C, H, W), floats in [0, 1], to logits (N, classes)."""
        batch = np.ascontiguousarray(images, np.float32)
        try:
            logits: Array = self.session.run(None, {self._input: batch})[0]
        except Exception as error:  # onnxruntime's own exceptions share no base class
            reason = str(error).splitlines()[0]
            raise ValueError(f"{self.path} cannot take {batch.shape}: {reason}") from None
        classes = len(self.classes) or math.prod(logits.shape[1:])
        if logits.shape != (len(batch), classes):
            raise ValueError(
                f"{self.path}: logits of {len(batch)} images and {classes} 'classes' have the shape "
                f"{logits.shape}"
            )
        return logits

    def probabilities(self, images: Array) -> Array:
        """Images (N, C, H, W), floats in [0, 1], to probabilities (N, classes)."""
        logits = self.logits(images)
        # Of logits that are not finite, NaN.
        with np.errstate(invalid="ignore"):
            raised = np.exp(logits - logits.max(1, keepdims=True))
            shares: Array = raised / raised.sum(1, keepdims=True)
        return shares

    def predict(
        self,
        paths: Iterable[str | Path],
        *,
        batch_size: int = 64,
        max_pixels: int | None = None,
    ) -> Iterator[Prediction]:
        """Yield one `Prediction` for each image file, in order; folders stand for the files in them.

        Only one batch of images is in memory at a time. A file that cannot be read, or for which the
        network gives no probabilities, gives a prediction with `error` set, and the work goes on.
        `max_pixels`: an image with more cannot be read; unset: what the file says, or 50 million.
        """
        check_count("batch_size", batch_size)
        check_reading(max_pixels=max_pixels)
        options = reading_options(self.facts)
        options["max_pixels"] = max_pixels or options.get("max_pixels")
        files = list_images(map(Path, paths))
        while batch := list(islice(files, batch_size)):
            yield from self._answers(batch, options)

    def _answers(self, files: list[Path], options: Mapping[str, Any]) -> Iterator[Prediction]:
        read = [self._read(file, options) for file in files]
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

    def _read(self, file: Path, options: Mapping[str, Any]) -> Array | str:
        """The image, or why there is none."""
        try:
            return read_image(
                file, channels=self.in_channels, image_size=self.image_size, **options
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
