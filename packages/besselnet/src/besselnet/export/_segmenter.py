"""Run exported segmentation networks with onnxruntime, numpy and Pillow, without torch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from besselnet._pixels import Array, read_pixels, reading_options, scale_depth
from besselnet.export._runtime import OnnxNetwork

# From probabilities of batches, (N, C, H, W) -> (N, classes, H, W), and one image (C, H, W) to its own.
Tiles = Callable[[Callable[[Array], Array], Array], Array]


class OnnxSegmenter(OnnxNetwork):
    """A segmentation network from an ONNX file of `besselnet export --to onnx`.

    The arguments and attributes are those of `OnnxClassifier`. It accepts images of any size from 16 pixels.
    """

    answers = "pixels"

    def predict_masks(self, image: Array | str | Path, *, tiles: Tiles | None = None) -> Array:
        """Return the class of every pixel, integers (H, W).

        Args:
            image: a file; or pixels (H, W, C) or (H, W), uint8, or floats in [0, 1].
            tiles: for large images, `tiles(probabilities, image)` returns probabilities (classes, H, W) of
                an image (C, H, W) from those of batches of smaller images. Default: no tiles.
        """
        pixels = self.read(image) if isinstance(image, str | Path) else self._planes(image)
        if tiles is None:
            return self.logits(pixels[None])[0].argmax(0)
        return tiles(self.probabilities, pixels).argmax(0)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the classes, or their numbers if the file has no names."""
        count = self.session.get_outputs()[0].shape[1]
        return self.classes or tuple(map(str, range(count if isinstance(count, int) else 0)))

    def likely(self, image: Array) -> Array:
        """Return the probabilities (classes, H, W) of one image (C, H, W), floats in [0, 1], without tiles.

        Raises `ValueError` if logits are infinite or NaN.
        """
        found: Array = self.probabilities(image[None])[0]
        if not np.isfinite(found).all():
            raise ValueError("the logits of the network are infinite or NaN")
        return found

    @property
    def reading(self) -> dict[str, Any]:
        """Options `bits`, `page` and `max_pixels` for reading image files, which are not resized."""
        options = reading_options(self.facts)
        options.pop("resize", None)
        return options

    def read(self, path: str | Path) -> Array:
        """Read an image file as in training, at its original size: (C, H, W), floats in [0, 1]."""
        pixels = read_pixels(path, channels=self.in_channels, **self.reading)
        return _as_floats(scale_depth(pixels, self.reading.get("bits")))

    def _planes(self, image: Array) -> Array:
        """(H, W, C) or (H, W) -> (C, H, W) floats."""
        planes = image[None] if image.ndim == 2 else np.moveaxis(image, -1, 0)
        known = image.dtype == np.uint8 or image.dtype.kind == "f"
        if not known or image.ndim not in (2, 3) or len(planes) != self.in_channels:
            raise ValueError(
                f"image has shape {image.shape} and dtype {image.dtype}: must be (H, W, "
                f"{self.in_channels}), uint8 or floats in [0, 1]"
            )
        return _as_floats(planes)


def _as_floats(pixels: Array) -> Array:
    return pixels.astype(np.float32) / np.float32(255 if pixels.dtype == np.uint8 else 1)
