"""What a finished run says of new image files: a class, values, several labels, or masks."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from besselnet.checks import check_count
from besselnet.data import iter_images, reading_options
from besselnet.export import Prediction
from besselnet.masks import predict_files, probabilities_of
from besselnet.nn import fold_batch_norm
from besselnet.train._evaluate import device_of
from besselnet.train._run import Run

# A label is in an image if its probability is at least this.
LIKELY = 0.5


def predict(
    run: Run,
    paths: Iterable[Path | str],
    *,
    batch_size: int = 64,
    max_pixels: int | None = None,
) -> Iterator[Prediction]:
    """Yield one `Prediction` for each image file, in order; folders stand for the files in them.

    Only one batch of images is in memory at a time. A file that cannot be read, or for which the network
    gives no probabilities, gives a prediction with `error` set, and the work goes on. `max_pixels`: an image
    with more cannot be read; unset: as in the training, or 50 million.
    """
    _check_task(run, "classify")

    def likely(logits: Tensor) -> Tensor:
        return logits.softmax(1)

    for path, answer in _outputs(run, paths, likely, batch_size, max_pixels):
        if isinstance(answer, Exception):
            yield Prediction(str(path), error=_reason(answer))
        else:
            best = answer.max(0)
            yield Prediction.answer(path, run.classes[int(best.indices)], best.values.item())


def answer_columns(run: Run) -> list[str]:
    """The columns of the rows that `predict_answers` yields; "image_" for a value called "image", say."""
    labels = ["labels"] if _task(run) == "multilabel" else []
    return ["image", *labels, *_value_columns(run), "error"]


def predict_answers(
    run: Run,
    paths: Iterable[Path | str],
    *,
    batch_size: int = 64,
    max_pixels: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield a row for each image file, in order: see `answer_columns`.

    For "regress" a row has the values by name, for "multilabel" the probability of each label, and as
    ``"labels"`` those of at least one half, with semicolons between them. Files are read as by `predict`.
    """
    _check_task(run, "regress", "multilabel")
    several = _task(run) == "multilabel"
    # Values are learned in units of their deviation from their mean.
    restore: Callable[[Tensor], Tensor] = getattr(run, "restore_values", lambda values: values)
    columns = answer_columns(run)
    found = _outputs(run, paths, torch.sigmoid if several else restore, batch_size, max_pixels)
    for path, answer in found:
        row: dict[str, Any] = {**dict.fromkeys(columns), "image": str(path)}
        if isinstance(answer, Exception):
            yield row | {"error": _reason(answer)}
            continue
        values = answer.tolist()
        if not all(map(isfinite, values)):
            yield row | {"error": "the network gives values that are infinite or NaN"}
            continue
        if several:
            row["labels"] = ";".join(n for n, p in zip(run.classes, values) if p >= LIKELY)
        yield row | dict(zip(_value_columns(run), values))


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


def _outputs(
    run: Run,
    paths: Iterable[Path | str],
    finish: Callable[[Tensor], Tensor],
    batch_size: int,
    max_pixels: int | None,
) -> Iterator[tuple[Path, Tensor | Exception]]:
    """What the network gives for each file, (K,) after `finish`, or why it cannot be read."""
    check_count("batch_size", batch_size)
    how: dict[str, Any] = {"image_size": run.image_size, "channels": run.in_channels}
    found = iter_images(paths, **how, **_reading(run, max_pixels))
    network = fold_batch_norm(run.model)  # the same answers with fewer steps
    while batch := list(islice(found, batch_size)):
        images = [image for _, image in batch if isinstance(image, Tensor)]
        answers: Iterator[Tensor] = iter(())
        if images:
            pixels = torch.stack([i.float() / 255 if i.dtype == torch.uint8 else i for i in images])
            with torch.no_grad():
                answers = iter(finish(network(pixels.to(device_of(network)))).cpu())
        for path, image in batch:
            yield path, next(answers) if isinstance(image, Tensor) else image


def _value_columns(run: Run) -> list[str]:
    return [f"{name}_" if name in ("image", "labels", "error") else name for name in run.classes]


def _reading(run: Run, max_pixels: int | None) -> dict[str, Any]:
    """How files are read: as in the training."""
    options = reading_options(run.config.data.options)
    return {**options, "max_pixels": max_pixels or options.get("max_pixels")}


def _task(run: Run) -> str:
    return getattr(run, "task", "classify")


def _check_task(run: Run, *tasks: str) -> None:
    if _task(run) not in tasks:
        raise ValueError(f"{run.folder}: its task is {_task(run)!r}: must be {' or '.join(tasks)}")


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
