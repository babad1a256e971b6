"""Open exported networks of either kind."""

from pathlib import Path

from besselnet.export._classifier import OnnxClassifier
from besselnet.export._runtime import OtherAnswers
from besselnet.export._segmenter import OnnxSegmenter


def open_onnx(
    path: str | Path, *, device: str = "cpu", threads: int | None = None
) -> OnnxClassifier | OnnxSegmenter:
    """Open an ONNX file of `besselnet export --to onnx`.

    Returns an `OnnxSegmenter` if the logits are per pixel, otherwise an `OnnxClassifier`. The arguments are
    those of `OnnxClassifier`.
    """
    try:
        return OnnxSegmenter(path, device=device, threads=threads)
    except OtherAnswers:
        return OnnxClassifier(path, device=device, threads=threads)
