"""Run exported classifiers with onnxruntime, numpy and Pillow, without torch."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from besselnet._pixels import Array, check_reading, list_images, read_image, reading_options
from besselnet.checks import check_count
from besselnet.export._runtime import OnnxNetwork


@dataclass(frozen=True)
class Prediction:
    """Prediction for one file: a class and its probability, or an error.

    For runs with calibrated trust (`besselnet.robust`), `sure` is "yes", "unsure" or "unlike", and `set`
    lists the plausible classes, separated by semicolons.
    """

    image: str
    label: str | None = None
    probability: float | None = None
    error: str | None = None
    sure: str | None = None
    set: str | None = None

    @classmethod
    def answer(cls, image: Path, label: str, probability: float) -> "Prediction":
        """Return a prediction with a class and its probability, or an error if the probability is NaN."""
        if math.isnan(probability):
            return cls(str(image), error="the logits of the network are infinite or NaN")
        return cls(str(image), label, probability)


class OnnxClassifier(OnnxNetwork):
    """A classifier from an ONNX file of `besselnet export --to onnx`.

    Args:
        path: the ONNX file.
        device: "cpu", "cuda" (if onnxruntime supports it) or "auto" (the best available).
        threads: number of threads. Default: as chosen by onnxruntime.

    Attributes:
        classes: names of the classes.
        in_channels, image_size: channels and size of the training images.
        path, facts: the file and its metadata.
    """

    answers = "image"

    def predict(
        self,
        paths: Iterable[str | Path],
        *,
        batch_size: int = 64,
        max_pixels: int | None = None,
    ) -> Iterator[Prediction]:
        """Yield one `Prediction` per image file, in order; folders stand for the files in them.

        Only one batch of images is in memory at a time. If a file cannot be read, or its logits are not
        finite, the prediction has `error` set, and the next file follows. Images of more than `max_pixels`
        pixels are not read. Default: the limit stored in the ONNX file, or 50 million.
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
