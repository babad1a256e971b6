"""What a finished run says of new image files: a class, values, several labels, or masks."""

import warnings
from collections.abc import Iterable, Iterator
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from besselnet.checks import check_count
from besselnet.data import as_floats, iter_images, reading_options
from besselnet.export import Prediction
from besselnet.masks import predict_files, probabilities_of
from besselnet.nn import fold_batch_norm
from besselnet.train._evaluate import device_of
from besselnet.train._run import Run
from besselnet.train._trust import find_limits, trust_rows


def predict(
    run: Run,
    paths: Iterable[Path | str],
    *,
    batch_size: int = 64,
    max_pixels: int | None = None,
    coverage: float | None = None,
    error_rate: float | None = None,
) -> Iterator[Prediction]:
    """Yield one `Prediction` for each image file, in order; folders stand for the files in them.

    Only one batch of images is in memory at a time. A file that cannot be read, or for which the network
    gives no probabilities, gives a prediction with `error` set, and the work goes on. `max_pixels`: an image
    with more cannot be read; unset: as in the training, or 50 million. `coverage` and `error_rate`: what sure
    answers and sets promise, see `besselnet.robust.Limits`; unset: 95%, and what can be promised.
    """
    _check_task(run, "classify")
    wanted = {"coverage": coverage, "error_rate": error_rate}
    for row in predict_rows(run, paths, batch_size=batch_size, max_pixels=max_pixels, **wanted):
        yield Prediction(
            *(row[name] for name in ("image", "class", "probability", "error")),
            *(row.get(name) for name in ("sure", "set")),
        )


def predict_rows(
    run: Run,
    paths: Iterable[Path | str],
    *,
    batch_size: int = 64,
    max_pixels: int | None = None,
    coverage: float | None = None,
    error_rate: float | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield a row for each image file, in order, for runs that answer for whole images.

    A row has ``"image"``, ``"error"`` (None, or why there is no answer) and `Run.columns` (None with an
    error): those of the task, and for classes ``"sure"`` ("yes", "unsure" or "unlike") and ``"set"`` (the
    classes that the image may have, with semicolons between them), where the run has a `Run.trust`. Files are
    read, and answers called sure, as by `predict`.
    """
    _check_task(run, "classify", "regress", "multilabel")
    check_count("batch_size", batch_size)
    how: dict[str, Any] = {"image_size": run.image_size, "channels": run.in_channels}
    found = iter_images(paths, **how, **_reading(run, max_pixels))
    network = fold_batch_norm(run.model)  # the same answers with fewer steps
    nothing = dict.fromkeys(run.columns)
    limits = find_limits(run.trust, coverage, error_rate)
    while batch := list(islice(found, batch_size)):
        images = [image for _, image in batch if isinstance(image, Tensor)]
        answers: Iterator[dict[str, Any]] = iter(())
        if images:
            pixels = torch.stack([as_floats(image) for image in images])
            pixels = pixels.to(device_of(network))
            if run.trust is not None:
                answers = trust_rows(run.trust.judge(network, pixels, limits), run.classes)
            else:
                with torch.no_grad():
                    answers = iter(run.learned.rows(network(pixels).cpu()))
        for path, image in batch:
            row, error = nothing, None
            if isinstance(image, Exception):
                error = " ".join(str(image).split()) or type(image).__name__
            else:
                answer = next(answers)
                if all(isfinite(v) for v in answer.values() if isinstance(v, float)):
                    row = answer
                else:
                    error = "the network gives answers that are infinite or NaN"
            yield {"image": str(path), **row, "error": error}


def predict_masks(
    run: Run,
    paths: Iterable[Path | str],
    folder: Path | str,
    *,
    max_pixels: int | None = None,
    **options: Any,
) -> Iterator[dict[str, Any]]:
    """Write the masks of image files into `folder`, and yield a row for each.

    The images have the pixels of their files: unlike labels, masks are not made of resized images. Large ones
    are predicted by tiles. `options` are those of `besselnet.masks.predict_files`: `tile`, `margin`,
    `overlays`, `probabilities`, `instances`, `least_area`, `raw_csv`, `progress`. `max_pixels` as in
    `predict`.
    """
    _check_task(run, "segment")
    size = run.config.data.image_size
    if size is not None:
        warnings.warn(
            f"the network was trained on images resized to {size} pixels, and these are not resized: "
            "their objects should be as large",
            stacklevel=2,
        )
    reading = _reading(run, max_pixels)
    reading.pop("resize", None)
    forward = probabilities_of(fold_batch_norm(run.model))
    return predict_files(
        forward,
        paths,
        folder,
        classes=run.classes,
        channels=run.in_channels,
        reading=reading,
        **options,
    )


def _reading(run: Run, max_pixels: int | None) -> dict[str, Any]:
    """How files are read: as in the training."""
    options = reading_options(run.config.data.options)
    return {**options, "max_pixels": max_pixels or options.get("max_pixels")}


def _check_task(run: Run, *tasks: str) -> None:
    if run.task not in tasks:
        raise ValueError(f"{run.folder}: its task is {run.task!r}: must be {' or '.join(tasks)}")
