"""Predict new image files with a finished run: classes, values, several labels or masks."""

import warnings
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from besselnet.checks import check_count
from besselnet.data import cut_segments, open_sources
from besselnet.export import Prediction
from besselnet.masks import predict_files, probabilities_of
from besselnet.nn import fold_batch_norm
from besselnet.train._answers import ImageAnswers, Piece, how_read
from besselnet.train._in_flight import answer_pieces
from besselnet.train._run import Run


def predict(
    run: Run,
    paths: Iterable[Path | str],
    *,
    batch_size: int = 64,
    max_pixels: int | None = None,
    coverage: float | None = None,
    error_rate: float | None = None,
) -> Iterator[Prediction]:
    """Yield one `Prediction` per image file, in order; folders stand for the files in them.

    Only one batch of images is in memory at a time. If a file cannot be read, or its outputs are not finite,
    the prediction has `error` set, and the next file follows. Images of more than `max_pixels` pixels are not
    read. Default: as in training, or 50 million. `coverage` and `error_rate` are the guarantees for sets and
    sure predictions, see `besselnet.robust.Limits`. Default: 95%, and the best error rate of `Trust.limits`.
    """
    _check_task(run, "classify")
    wanted: dict[str, Any] = {"coverage": coverage, "error_rate": error_rate}
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
    features: bool = False,
    workers: int = 0,
    coverage: float | None = None,
    error_rate: float | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield one row per image, in order, for runs with one prediction per image.

    A row has ``"image"``, ``"error"`` (None, or the reason) and `Run.columns` (None with an error). These are
    the columns of the task. For classes, if the run has a `Run.trust`, they include ``"sure"`` ("yes",
    "unsure" or "unlike") and ``"set"`` (the plausible classes, separated by semicolons). Files are read as in
    `predict`.

    Args:
        run: the run.
        paths: image files, folders, and all other sources of `besselnet.data.open_sources`.
        batch_size: images per batch.
        max_pixels, coverage, error_rate: as in `predict`.
        features: add columns ``feature_0``, ...: the input of the last layer (embeddings).
        workers: worker processes that read and, on CPUs, predict ahead; 0 for none.
    """
    _check_task(run, "classify", "regress", "multilabel")
    check_count("batch_size", batch_size)
    answers = ImageAnswers(
        run,
        batch_size=batch_size,
        max_pixels=max_pixels,
        features=features,
        coverage=coverage,
        error_rate=error_rate,
    )
    segments = chain.from_iterable(source.segments() for source in open_sources(paths))
    pieces = (Piece(found) for found in cut_segments(segments, batch_size))
    found = answer_pieces(answers, pieces, check_count("workers", workers, least=0))
    return chain.from_iterable(answer.rows for answer in found)


def predict_masks(
    run: Run,
    paths: Iterable[Path | str],
    folder: Path | str,
    *,
    max_pixels: int | None = None,
    **options: Any,
) -> Iterator[dict[str, Any]]:
    """Write the masks of image files to `folder`, and yield one row per image.

    Images are not resized, unlike for other tasks. Large images are predicted by tiles. `options` are those
    of `besselnet.masks.predict_files`: `tile`, `margin`, `overlays`, `probabilities`, `instances`,
    `least_area`, `raw_csv`, `progress`. `max_pixels` is as in `predict`.
    """
    _check_task(run, "segment")
    warn_of_size(run)
    reading = how_read(run, max_pixels)
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


def warn_of_size(run: Run, stacklevel: int = 3) -> None:
    """Warn whoever asks for masks of images that are not resized as those of the training were."""
    size = run.config.data.image_size
    if size is not None:
        warnings.warn(
            f"the network was trained on images resized to {size} pixels, but these are not resized: "
            "their objects should have the same size in pixels",
            stacklevel=stacklevel,
        )


def _check_task(run: Run, *tasks: str) -> None:
    if run.task not in tasks:
        raise ValueError(f"{run.folder}: its task is {run.task!r}: must be {' or '.join(tasks)}")
