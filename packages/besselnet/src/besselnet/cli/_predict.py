"""`besselnet predict`: with a run, or with an ONNX file and no torch."""

import csv
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from besselnet._pixels import counted, list_images
from besselnet.atomic import atomic_file, remove_leftovers
from besselnet.cli._program import Coverage, Device, ErrorRate, Json
from besselnet.masks import mask_columns, predict_files
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
    coverage: Coverage = None,
    error_rate: ErrorRate = None,
    out: Annotated[Path | None, typer.Option(help="Masks: the folder to write to.")] = None,
    overlay: Annotated[
        bool, typer.Option("--overlay", help="Masks: also on their images.")
    ] = False,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Masks: also a map for each class, 16 bits.")
    ] = False,
    instances: Annotated[
        str | None,
        typer.Option(help="Masks: also single objects, by `components` or `watershed`."),
    ] = None,
    least_area: Annotated[
        int | None, typer.Option(help="Masks: pixels of the smallest object; 1.")
    ] = None,
    tile: Annotated[
        int | None, typer.Option(help="Masks: larger images go in tiles of this side; 512.")
    ] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Name the class of image files, or write their masks: one row for each file.

    Rows go to standard output as CSV, or to a file with --csv, or to standard output as one JSON object a
    line with --json. Files that cannot be read have a row, too, with the reason under "error". In CSV an
    apostrophe goes before text that a spreadsheet would take for a formula, unless --raw-csv. An .onnx file
    that `besselnet export` wrote needs onnxruntime, and no torch.

    What a row has depends on the task of the run: the class and its probability; the values; the labels and
    the probability of each; or the mask file and the share of each class.

    Where there were validation images, a class is sure ("yes"), or "unsure" because its probability is too
    low, or "unlike" because the image is unlike the training images. "set" has all classes that it may be.

    Masks are PNG files in the folder masks of --out; with --instances, objects are numbered in the folder
    instances and measured in measures.csv.

    Examples:

        besselnet predict runs/photos new/001.png new/002.png

        besselnet predict runs/photos new/ --csv answers.csv

        besselnet predict runs/photos new/ --error-rate 0.01

        besselnet predict model.onnx new/ --json | head

        besselnet predict runs/cells new/ --out found --instances components

        besselnet predict cells.onnx new/ --out found
    """
    for path in images:
        if not path.exists():
            raise ValueError(f"{path}: no such file or folder")
    total = sum(1 for _ in list_images(images))
    if not total:
        raise ValueError(f"no images in {', '.join(map(str, images))}")
    asked: dict[str, Any] = {
        "overlays": overlay or None,
        "probabilities": probabilities or None,
        "instances": instances,
        "least_area": least_area,
        "tile": tile,
    }
    masks = {name: value for name, value in asked.items() if value is not None}
    how: dict[str, Any] = {"batch_size": batch_size, "max_pixels": max_pixels}
    promises: dict[str, Any] = {"coverage": coverage, "error_rate": error_rate}
    progress: Any = nullcontext()
    columns = ["image", "class", "probability", "error"]
    rows: Iterable[dict[str, Any]]
    if network.suffix == ".onnx":
        from besselnet.export import OnnxSegmenter, open_onnx

        _refuse_promises(network, promises)
        opened = open_onnx(network, device=device)
        if isinstance(opened, OnnxSegmenter):
            columns = mask_columns(opened.names, objects=instances is not None)
            rows = predict_files(
                opened.likely,
                images,
                _folder(network, out),
                classes=opened.names,
                channels=opened.in_channels,
                reading=opened.reading | ({"max_pixels": max_pixels} if max_pixels else {}),
                raw_csv=raw_csv,
                **masks,
            )
        else:
            _refuse_masks(network, out, masks)
            rows = _class_rows(opened.predict(images, **how))
    else:
        from besselnet import train as training

        run = training.load_run(network, device=device)
        progress = training.ProgressLog(total, unit="images", stream=sys.stderr)
        if run.task == "segment":
            _refuse_promises(network, promises)
            folder = _folder(network, out)
            columns = mask_columns(run.classes, objects=instances is not None)
            masks |= {"raw_csv": raw_csv, "progress": lambda text: progress.advance(0, text)}
            rows = training.predict_masks(run, images, folder, max_pixels=max_pixels, **masks)
        else:
            _refuse_masks(network, out, masks)
            columns = ["image", *run.columns, "error"]
            rows = training.predict_rows(run, images, **how, **promises)
    failures = 0
    with progress as log, _opened(csv_file) as file:
        write = _row_writer(file, columns, as_json, raw_csv)
        for row in rows:
            failures += row["error"] is not None
            write(row)
            if log is not None:
                log.advance()
    written = [str(place) for place in (out, csv_file) if place is not None]
    where = f", written to {' and '.join(written)}" if written else ""
    trouble = f", {failures} of them with an error" if failures else ""
    typer.echo(f"{counted(total, 'image')}{trouble}{where}", err=True)


def _class_rows(predictions: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for found in predictions:
        answer = {"class": found.label, "probability": found.probability}
        yield {"image": found.image, **answer, "error": found.error}


def _folder(network: Path, out: Path | None) -> Path:
    if out is None:
        raise ValueError(f"{network} gives masks: name a folder for them with --out")
    return out


def _refuse_promises(network: Path, promises: dict[str, Any]) -> None:
    """Refuse options that only classes of a run have."""
    for name, value in promises.items():
        if value is not None:
            option = name.replace("_", "-")
            raise ValueError(f"{network} does not know when it is sure: leave --{option} out")


def _refuse_masks(network: Path, out: Path | None, masks: dict[str, Any]) -> None:
    """Refuse options that only masks have."""
    names = [*(["out"] if out else []), *masks]
    if names:
        option = {"overlays": "overlay"}.get(names[0], names[0]).replace("_", "-")
        raise ValueError(f"{network} gives no masks: leave --{option} out")


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


def _row_writer(
    file: TextIO, columns: list[str], as_json: bool, raw: bool
) -> Callable[[dict[str, Any]], object]:
    if as_json:
        return lambda row: print(json.dumps(row, allow_nan=False), file=file)
    writer = csv.writer(file, lineterminator="\n")

    def write(cells: Iterable[Any]) -> None:
        writer.writerow(csv_cell(c) if isinstance(c, str) and not raw else c for c in cells)

    write(columns)
    return lambda row: write(row[name] for name in columns)
