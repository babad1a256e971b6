"""Exported networks of either kind, opened by what they answer."""

from pathlib import Path

from besselnet.export._classifier import OnnxClassifier
from besselnet.export._runtime import OtherAnswers
from besselnet.export._segmenter import OnnxSegmenter


def open_onnx(
    path: str | Path, *, device: str = "cpu", threads: int | None = None
) -> OnnxClassifier | OnnxSegmenter:
    """The network in a file that `besselnet export --to onnx` wrote.

    An `OnnxSegmenter` if it answers for pixels, else an `OnnxClassifier`, which explains the arguments.
    """
    try:
        return OnnxSegmenter(path, device=device, threads=threads)
    except OtherAnswers:
        return OnnxClassifier(path, device=device, threads=threads)
