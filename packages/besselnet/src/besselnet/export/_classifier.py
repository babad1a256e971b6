"""Exported networks that name the class of an image, at work: onnxruntime, numpy and Pillow, no torch."""

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
    """The answer for one file: a class and its probability, or an error.

    Of runs that know when they can be trusted (`besselnet.robust`), `sure` is "yes", "unsure" or "unlike",
    and `set` has the classes that the image may have, with semicolons between them.
    """

    image: str
    label: str | None = None
    probability: float | None = None
    error: str | None = None
    sure: str | None = None
    set: str | None = None

    @classmethod
    def answer(cls, image: Path, label: str, probability: float) -> "Prediction":
        """A class and its probability; an error if that is not a number."""
        if math.isnan(probability):
            return cls(str(image), error="the network gives logits that are infinite or NaN")
        return cls(str(image), label, probability)


class OnnxClassifier(OnnxNetwork):
    """A network of one answer for each image that `besselnet export --to onnx` wrote.

    Args:
        path: the file.
        device: "cpu", "cuda" with a build of onnxruntime that has it, or "auto", the best that it has.
        threads: of onnxruntime; as many as it chooses itself if not given.

    Attributes:
        classes: names of the classes.
        in_channels, image_size: of the images that it was trained on.
        path, facts: the file, and all that it says about itself.
    """

    answers = "image"

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
