"""`besselnet predict`: with a run, or with an ONNX file and no torch."""

import csv
import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from besselnet._pixels import counted, list_images
from besselnet.atomic import atomic_file, remove_leftovers
from besselnet.cli._program import Device, Json
from besselnet.untrusted import csv_cell


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
    raw_csv: Annotated[
        bool,
        typer.Option("--raw-csv", help="Text that begins with =, +, - or @ as it is in CSV."),
    ] = False,
    batch_size: Annotated[int, typer.Option(help="Images in memory at a time.")] = 64,
    max_pixels: Annotated[
        int | None,
        typer.Option(
            min=1, help="Pixels that an image may have; as in the training, or 50 million."
        ),
    ] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Name the class of image files: one row for each, those that cannot be read included.

    Rows (image, class, probability, error) go to standard output as CSV, or to a file with --csv, or
    to standard output as one JSON object a line with --json. In CSV an apostrophe goes before text that a
    spreadsheet would take for a formula, unless --raw-csv. An .onnx file that `besselnet export` wrote
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
    progress: Any = nullcontext()
    if network.suffix == ".onnx":
        from besselnet.export import OnnxClassifier

        classifier = OnnxClassifier(network, device=device)
        predictions = classifier.predict(images, batch_size=batch_size, max_pixels=max_pixels)
    else:
        from besselnet import train as training

        run = training.load_run(network, device=device)
        predictions = training.predict(run, images, batch_size=batch_size, max_pixels=max_pixels)
        progress = training.ProgressLog(total, unit="images", stream=sys.stderr)
    failures = 0
    with progress as log, _opened(csv_file) as file:
        write = _row_writer(file, as_json, raw_csv)
        for prediction in predictions:
            failures += prediction.error is not None
            row = asdict(prediction)
            write({"image": row["image"], "class": row.pop("label"), **row})
            if log is not None:
                log.advance()
    where = "" if csv_file is None else f", written to {csv_file}"
    trouble = f", {failures} of them with an error" if failures else ""
    typer.echo(f"{counted(total, 'image')}{trouble}{where}", err=True)


@contextmanager
def _opened(path: Path | None) -> Iterator[TextIO]:
    """Standard output, or a file that appears when all rows are in it."""
    if path is None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        yield sys.stdout
        return
    remove_leftovers(path.parent, path.name)
    with atomic_file(path) as file:
        # Names of files need not be UTF-8, rows are.
        text = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="")
        yield text
        text.detach()


def _row_writer(file: TextIO, as_json: bool, raw: bool) -> Callable[[dict[str, Any]], object]:
    if as_json:
        return lambda row: print(json.dumps(row, allow_nan=False), file=file)
    writer = csv.DictWriter(file, ["image", "class", "probability", "error"], lineterminator="\n")
    writer.writeheader()
    if raw:
        return writer.writerow
    return lambda row: writer.writerow(
        {name: csv_cell(cell) if isinstance(cell, str) else cell for name, cell in row.items()}
    )
