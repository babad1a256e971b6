"""`besselnet predict`: with a run, or with an ONNX file and no torch."""

import io
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from besselnet._pixels import counted, list_images
from besselnet._rows import Write, row_file, text_writer
from besselnet.atomic import remove_leftovers
from besselnet.cli._program import Coverage, Device, ErrorRate, Json
from besselnet.masks import mask_columns, predict_files

Rows = Iterable[dict[str, Any]]


def predict(
    network: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="Folder that `train` filled, or a file model.onnx."),
    ],
    images: Annotated[
        list[str],
        typer.Argument(
            metavar="IMAGES", help="Image files, folders, patterns, lists, archives or arrays."
        ),
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
    features: Annotated[
        bool, typer.Option("--features", help="Also what the last layer of the network takes.")
    ] = False,
    to: Annotated[
        Path | None, typer.Option(help="Write files of rows, and masks, to this folder.")
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", help="With --to: csv, jsonl or parquet; csv.")
    ] = None,
    rows_per_file: Annotated[
        int | None, typer.Option(help="With --to: rows in a file; 10000. Archives have their own.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="With --to: go on where an earlier call stopped.")
    ] = False,
    shard: Annotated[
        str | None, typer.Option(help="With --to: do one share of the files, such as 3/16.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes, or workers of the cluster; one a core.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="With --to: address of a Ray cluster that does the work.")
    ] = None,
    gpus: Annotated[
        float | None, typer.Option(help="With --cluster: GPUs of each worker; 0.")
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

    IMAGES are image files; folders; quoted patterns ("new/*.png"); .txt files with a path on each line; tar
    archives in the layout of WebDataset; arrays in .npz, HDF5 or Zarr files (FILE#KEY); or addresses of all
    these (s3://...), with the extra `remote`.

    For very many images, --to FOLDER writes files of rows that appear whole: --resume goes on after a kill
    with bit-identical results, --shard divides the work among the jobs of a batch system, and --cluster
    gives it to an existing Ray cluster.

    Examples:

        besselnet predict runs/photos new/001.png new/002.png

        besselnet predict runs/photos new/ --csv answers.csv

        besselnet predict runs/photos new/ --error-rate 0.01

        besselnet predict model.onnx new/ --json | head

        besselnet predict runs/cells new/ --out found --instances components

        besselnet predict cells.onnx new/ --out found

        besselnet predict runs/photos "shards/*.tar" --to answers --format parquet

        besselnet predict runs/photos survey/ --to answers --shard 3/16 --resume
    """
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
    many: dict[str, Any] = {"features": features or None, "workers": workers}
    parts: dict[str, Any] = {
        "format": form,
        "rows_per_file": rows_per_file,
        "resume": resume or None,
        "shard": shard,
        "cluster": cluster,
        "gpus": gpus,
    }
    if to is None:
        _refuse(parts, "goes with --to, a folder for files of rows")
    unsure = f"needs to know when answers are sure, and {network} does not"
    total: int | None
    rows: Rows
    progress: Any = nullcontext()
    if network.suffix == ".onnx":
        _refuse({"to": to, **many}, f"needs a run, and {network} is an exported network")
        _refuse(promises, unsure)
        paths, total = _plain_paths(images)
        columns, rows = _onnx_rows(network, paths, device, out, how, masks, raw_csv)
    else:
        from besselnet import train as training
        from besselnet.data import check_sources, list_sources, open_sources

        check_sources(images)
        if to is not None:
            _refuse({"csv": csv_file, "json": as_json or None, "out": out}, "does not go with --to")
            _predict_to_folder(
                network, images, to, device, how | promises, masks, many | parts, raw_csv
            )
            return
        run = training.load_run(network, device=device)
        if run.task == "segment":
            _refuse(many, "goes with --to, a folder for files of rows and masks")
            _refuse(promises, unsure)
            folder = _folder(network, out)
            paths, total = _plain_paths(images)
            columns = mask_columns(run.classes, objects=instances is not None)
            masks |= {"raw_csv": raw_csv, "progress": lambda text: progress.advance(0, text)}
            rows = training.predict_masks(run, paths, folder, max_pixels=max_pixels, **masks)
        else:
            _refuse_masks(network, out, masks)
            total = list_sources(open_sources(images)).count
            _check_some(total, images)
            how["workers"] = training.default_workers(total) if workers is None else workers
            rows = training.predict_rows(run, images, **how, **promises, features=features)
            extra = training.feature_columns(run) if features else ()
            columns = ["image", *run.columns, *extra, "error"]
        progress = training.ProgressLog(total, unit="images", stream=sys.stderr)
    seen = failures = 0
    with progress as log, _opened(csv_file, columns, as_json, raw_csv) as write:
        for row in rows:
            seen += 1
            failures += row["error"] is not None
            write([row])
            if log is not None:
                log.advance(text=log.rate())
    _say_what_was_done(seen, failures, [out, csv_file])


def _predict_to_folder(
    network: Path,
    images: list[str],
    folder: Path,
    device: str,
    how: dict[str, Any],
    masks: dict[str, Any],
    more: dict[str, Any],
    raw_csv: bool,
) -> None:
    from besselnet import train as training

    run = training.load_run(network, device="cpu" if more["cluster"] else device)
    if run.task != "segment":
        _refuse_masks(network, None, masks)
    options = {name: value for name, value in more.items() if value is not None}
    if "format" in options:
        options["form"] = options.pop("format")
    with training.ProgressLog(None, unit="images", stream=sys.stderr) as log:
        try:
            done = training.predict_shards(
                run, images, folder, **how, **masks, **options, raw_csv=raw_csv, progress=log
            )
        except KeyboardInterrupt:
            text = f"stopped: `--to {folder} --resume` continues"
            raise training.Interrupted(text, signal.SIGINT) from None
    if done.skipped:
        typer.echo(f"{counted(done.skipped, 'file')} of rows had been written before", err=True)
    _say_what_was_done(done.images, done.failures, [folder])


def _onnx_rows(
    network: Path,
    paths: list[Path],
    device: str,
    out: Path | None,
    how: dict[str, Any],
    masks: dict[str, Any],
    raw_csv: bool,
) -> tuple[list[str], Rows]:
    """Columns and rows of an exported network."""
    from besselnet.export import OnnxSegmenter, open_onnx

    opened = open_onnx(network, device=device)
    if not isinstance(opened, OnnxSegmenter):
        _refuse_masks(network, out, masks)
        columns = ["image", "class", "probability", "error"]
        return columns, _class_rows(opened.predict(paths, **how))
    limit = {"max_pixels": how["max_pixels"]} if how["max_pixels"] else {}
    rows = predict_files(
        opened.likely,
        paths,
        _folder(network, out),
        classes=opened.names,
        channels=opened.in_channels,
        reading=opened.reading | limit,
        raw_csv=raw_csv,
        **masks,
    )
    return mask_columns(opened.names, objects="instances" in masks), rows


def _plain_paths(images: list[str]) -> tuple[list[Path], int]:
    """Image files and folders, and how many images they are."""
    paths = [Path(place) for place in images]
    for path in paths:
        if not path.exists():
            raise ValueError(f"{path}: no such file or folder")
    total = sum(1 for _ in list_images(paths))
    _check_some(total, images)
    return paths, total


def _check_some(total: int | None, images: list[str]) -> None:
    if total == 0:
        raise ValueError(f"no images in {', '.join(images)}")


def _say_what_was_done(images: int, failures: int, places: list[Path | None]) -> None:
    written = [str(place) for place in places if place is not None]
    where = f", written to {' and '.join(written)}" if written else ""
    trouble = f", {failures} of them with an error" if failures else ""
    typer.echo(f"{counted(images, 'image')}{trouble}{where}", err=True)


def _class_rows(predictions: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for found in predictions:
        answer = {"class": found.label, "probability": found.probability}
        yield {"image": found.image, **answer, "error": found.error}


def _folder(network: Path, out: Path | None) -> Path:
    if out is None:
        raise ValueError(f"{network} gives masks: name a folder for them with --out")
    return out


def _refuse(options: dict[str, Any], why: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"--{name.replace('_', '-')} {why}")


def _refuse_masks(network: Path, out: Path | None, masks: dict[str, Any]) -> None:
    """Refuse options that only masks have."""
    names = [*(["out"] if out else []), *masks]
    if names:
        option = {"overlays": "overlay"}.get(names[0], names[0]).replace("_", "-")
        raise ValueError(f"{network} gives no masks: leave --{option} out")


@contextmanager
def _opened(path: Path | None, columns: list[str], as_json: bool, raw: bool) -> Iterator[Write]:
    """Rows to standard output, or to a file that appears when all rows are in it."""
    form = "jsonl" if as_json else "csv"
    if path is None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        yield text_writer(sys.stdout, columns, form, raw=raw)
        return
    remove_leftovers(path.parent, path.name)
    with row_file(path, dict.fromkeys(columns, str), form, raw=raw) as write:
        yield write
