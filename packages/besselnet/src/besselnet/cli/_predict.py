"""`besselnet predict`: with a run, or with an ONNX file and no torch."""

import csv
import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from besselnet._pixels import counted, list_images
from besselnet.atomic import atomic_file

__all__ = ["predict"]


def predict(
    network: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="Folder that `train` filled, or a file model.onnx."),
    ],
    images: Annotated[
        list[Path], typer.Argument(metavar="IMAGES", help="Image files, or folders of them.")
    ],
    csv_file: Annotated[
        Path | None, typer.Option("--csv", help="Write the rows to this file.")
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Images in memory at a time.")] = 64,
    device: Annotated[
        str, typer.Option(help="auto (a GPU if there is one), cpu, cuda, cuda:1, mps.")
    ] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Name the class of image files: one row for each, those that cannot be read included.

    Rows (image, class, probability, error) go to standard output as CSV, or to a file with --csv, or
    to standard output as one JSON object a line with --json. An .onnx file that `besselnet export` wrote
    needs onnxruntime, and no torch.

    Examples:

        besselnet predict runs/photos new/001.png new/002.png

        besselnet predict runs/photos new/ --csv answers.csv

        besselnet predict model.onnx new/ --json | head
    """
    for path in images:
        if not path.exists():
            raise ValueError(f"{path}: no such file or folder")
    total = sum(1 for _ in list_images(images))
    if not total:
        raise ValueError(f"no images in {', '.join(map(str, images))}")
    if network.suffix == ".onnx":
        predictions, progress = _by_onnxruntime(network, images, batch_size, device), _no_progress
    else:
        predictions, progress = _by_torch(network, images, batch_size, device), _progress
    failures = 0
    with progress(total) as advance, _rows_to(csv_file, as_json) as write:
        for prediction in predictions:
            failures += prediction.error is not None
            write(prediction)
            advance()
    where = "" if csv_file is None else f", written to {csv_file}"
    trouble = f", {failures} of them could not be read" if failures else ""
    typer.echo(f"{counted(total, 'image')}{trouble}{where}", err=True)


def _by_onnxruntime(file: Path, images: list[Path], batch_size: int, device: str) -> Iterator[Any]:
    from besselnet.export import OnnxClassifier

    return OnnxClassifier(file, device=device).predict(images, batch_size=batch_size)


def _by_torch(folder: Path, images: list[Path], batch_size: int, device: str) -> Iterator[Any]:
    from besselnet import train as training

    run = training.load_run(folder, device=device)
    return training.predict(run, images, batch_size=batch_size)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[], None]]:
    from besselnet.train import ProgressLog

    with ProgressLog(total, unit="images", stream=sys.stderr) as log:
        yield log.advance


@contextmanager
def _no_progress(total: int) -> Iterator[Callable[[], None]]:
    yield lambda: None


@contextmanager
def _rows_to(path: Path | None, as_json: bool) -> Iterator[Any]:
    """A function that writes one prediction; the file appears when all of them are in it."""
    if path is None:
        yield _row_writer(sys.stdout, as_json)
        return
    with atomic_file(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        yield _row_writer(text, as_json)
        text.flush()
        text.detach()


def _row_writer(file: TextIO, as_json: bool) -> Any:
    if as_json:
        return lambda prediction: print(json.dumps(_row(prediction)), file=file)
    writer = csv.DictWriter(file, ["image", "class", "probability", "error"], lineterminator="\n")
    writer.writeheader()
    return lambda prediction: writer.writerow(_row(prediction))


def _row(prediction: Any) -> dict[str, Any]:
    row = asdict(prediction)
    row["class"] = row.pop("label")
    return row
