"""The class of each image file, one after the other, whatever their number."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from besselnet.checks import check_count
from besselnet.data import iter_images, reading_options
from besselnet.export import Prediction
from besselnet.train._run import Run


def predict(run: Run, paths: Iterable[Path | str], *, batch_size: int = 64) -> Iterator[Prediction]:
    """Yield one `Prediction` for each image file, in order; folders stand for the files in them.

    Only one batch of images is in memory at a time. A file that cannot be read gives a prediction
    with `error` set, and the work goes on.
    """
    check_count("batch_size", batch_size)
    return _in_batches(run, paths, batch_size)


def _in_batches(run: Run, paths: Iterable[Path | str], batch_size: int) -> Iterator[Prediction]:
    options = reading_options(run.config.data.options)
    waiting: list[tuple[Path, Tensor | Exception]] = []
    found = iter_images(paths, image_size=run.image_size, channels=run.in_channels, **options)
    for item in found:
        waiting.append(item)
        if len(waiting) == batch_size:
            yield from _answers(run, waiting)
            waiting.clear()
    yield from _answers(run, waiting)


@torch.no_grad()
def _answers(run: Run, items: list[tuple[Path, Tensor | Exception]]) -> list[Prediction]:
    """Predictions for some files, in their order, with one pass of the network."""
    device = next(run.model.parameters()).device
    images = [_as_float(image) for _, image in items if isinstance(image, Tensor)]
    answers: Iterator[tuple[float, int]] = iter(())
    if images:
        probabilities = run.model(torch.stack(images).to(device)).softmax(1)
        best = probabilities.max(1)
        answers = zip(best.values.tolist(), best.indices.tolist())
    predictions = []
    for path, image in items:
        if isinstance(image, Exception):
            reason = " ".join(str(image).split()) or type(image).__name__
            predictions.append(Prediction(str(path), error=reason))
        else:
            probability, index = next(answers)
            predictions.append(Prediction(str(path), run.classes[index], probability))
    return predictions


def _as_float(image: Tensor) -> Tensor:
    return image.float() / 255 if image.dtype == torch.uint8 else image
