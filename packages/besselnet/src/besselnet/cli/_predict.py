"""`besselnet predict`: with a run, or with an ONNX file and without torch."""

import io
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from besselnet._pixels import counted, list_images
from besselnet._rows import Write, row_file, text_writer
from besselnet.atomic import remove_leftovers
from besselnet.cli._program import Coverage, Device, ErrorRate, Json
from besselnet.masks import mask_columns, predict_files

if TYPE_CHECKING:
    from besselnet.train import Run

Rows = Iterable[dict[str, Any]]


def predict(
    network: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="Run folder of `besselnet train`, or an .onnx file."),
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
        typer.Option("--raw-csv", help="Do not escape text in CSV that starts with =, +, - or @."),
    ] = False,
    batch_size: Annotated[int, typer.Option(help="Images per batch.")] = 64,
    max_pixels: Annotated[
        int | None,
        typer.Option(
            min=1, help="Maximum pixels per image. Default: as in training, or 50 million."
        ),
    ] = None,
    coverage: Coverage = None,
    error_rate: ErrorRate = None,
    out: Annotated[Path | None, typer.Option(help="Masks: output folder.")] = None,
    overlay: Annotated[
        bool, typer.Option("--overlay", help="Masks: also write overlays on the images.")
    ] = False,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Masks: also write 16-bit probability maps.")
    ] = False,
    instances: Annotated[
        str | None,
        typer.Option(help="Masks: also separate objects, by `components` or `watershed`."),
    ] = None,
    least_area: Annotated[
        int | None, typer.Option(help="Masks: minimum object area in pixels. Default: 1.")
    ] = None,
    tile: Annotated[
        int | None, typer.Option(help="Masks: tile size for larger images. Default: 512.")
    ] = None,
    features: Annotated[
        bool, typer.Option("--features", help="Also write embeddings: the input of the last layer.")
    ] = False,
    to: Annotated[
        Path | None, typer.Option(help="Write the rows (and masks) to files in this folder.")
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", help="With --to: csv, jsonl or parquet. Default: csv.")
    ] = None,
    rows_per_file: Annotated[
        int | None,
        typer.Option(help="With --to: rows per file; each archive has its own. Default: 10000."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="With --to: continue an interrupted call.")
    ] = False,
    shard: Annotated[
        str | None, typer.Option(help="With --to: process only one part, such as 3/16.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Worker processes, or Ray workers. Default: one per core.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="With --to: address of a Ray cluster to run on.")
    ] = None,
    gpus: Annotated[
        float | None, typer.Option(help="With --cluster: GPUs per worker. Default: 0.")
    ] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Predict the class of image files, or write their masks.

    The output has one row per image: CSV on standard output, or one JSON object per line with --json.
    --csv writes the rows to a file. If an image cannot be read, its row gives the reason under "error". CSV
    text that a spreadsheet would read as a formula is escaped with an apostrophe; --raw-csv turns this off.
    An .onnx file of `besselnet export` needs onnxruntime but not torch.

    The columns depend on the task of the run: the class and its probability; the values; the labels and
    the probability of each; or the mask file and the fraction of pixels in each class.

    If the run had validation images, the column "sure" is "yes", "unsure" (the probability is too low) or
    "unlike" (the image is unlike the training images). "set" lists all plausible classes.

    Masks are PNG files in the subfolder "masks" of --out. With --instances, the subfolder "instances" has
    the object number of each pixel, and measures.csv has one row per object.

    IMAGES are image files; folders; quoted patterns ("new/*.png"); .txt files with one path per line; tar
    archives in WebDataset layout; arrays in .npz, HDF5 or Zarr files (FILE#KEY); or URLs of any of these
    (s3://...), which need the extra `remote`. Exported networks, and masks without --to, accept only image
    files and folders.

    For many images, --to FOLDER writes files of rows; a file appears when it is complete. After an
    interruption, --resume continues with bit-identical results. --shard splits the work into jobs for a
    batch system, and --cluster runs it on an existing Ray cluster.

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
    masks = _given(asked)
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
        _refuse(parts, "requires --to, a folder for files of rows")
    if cluster is None:
        _refuse({"gpus": gpus}, "requires --cluster")
    elif device != "auto":
        _refuse({"device": device}, "cannot be combined with --cluster: use --gpus")
    unsure = f"requires a classification run with validation images, not {network}"
    total: int | None
    rows: Rows
    progress: Any
    said = {"raw_csv": raw_csv, "progress": lambda text: progress.advance(0, text)}
    if network.suffix == ".onnx":
        _refuse({"to": to, **many}, f"requires a run folder, and {network} is an exported network")
        _refuse(promises, unsure)
        paths, total = _plain_paths(images)
        columns, rows = _onnx_rows(network, paths, device, out, how, masks, said)
    else:
        from besselnet import train as training
        from besselnet.data import check_sources, list_sources, open_sources

        check_sources(images)
        if to is not None:
            _refuse(
                {"csv": csv_file, "json": as_json or None, "out": out},
                "cannot be combined with --to",
            )
            _predict_to_folder(
                network, images, to, device, how | promises, masks, many | parts, raw_csv
            )
            return
        run = training.load_run(network, device=device)
        _say_if_none_is_sure(run, promises)
        if run.task == "segment":
            _refuse(many, "requires --to, a folder for files of rows and masks")
            _refuse(promises, unsure)
            folder = _folder(network, out)
            paths, total = _plain_paths(images)
            columns = mask_columns(run.classes, objects=instances is not None)
            rows = training.predict_masks(
                run, paths, folder, max_pixels=max_pixels, **masks, **said
            )
        else:
            _refuse_masks(network, out, masks)
            total = list_sources(open_sources(images)).count
            _check_some(total, images)
            how["workers"] = (
                training.default_workers(total, batch_size) if workers is None else workers
            )
            rows = training.predict_rows(run, images, **how, **promises, features=features)
            extra = training.feature_columns(run) if features else ()
            columns = ["image", *run.columns, *extra, "error"]
    from besselnet._progress import ProgressLog

    seen = failures = 0
    with (
        ProgressLog(total, unit="images", stream=sys.stderr) as progress,
        _opened(csv_file, columns, as_json, raw_csv) as write,
    ):
        for row in rows:
            seen += 1
            failures += row["error"] is not None
            write([row])
            progress.advance(text=progress.rate())
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
    from besselnet._progress import ProgressLog

    run = training.load_run(network, device="cpu" if more["cluster"] else device)
    _say_if_none_is_sure(run, {name: how[name] for name in ("coverage", "error_rate")})
    if run.task != "segment":
        _refuse_masks(network, None, masks)
    options = _given(more)
    if "format" in options:
        options["form"] = options.pop("format")
    with ProgressLog(None, unit="images", stream=sys.stderr) as log:
        try:
            done = training.predict_shards(
                run, images, folder, **how, **masks, **options, raw_csv=raw_csv, progress=log
            )
        except KeyboardInterrupt:
            text = f"stopped; continue with --to {folder} --resume"
            raise training.Interrupted(text, signal.SIGINT) from None
    if done.skipped:
        typer.echo(
            f"skipped {counted(done.skipped, 'file')} of rows written by earlier calls", err=True
        )
    _say_what_was_done(done.images, done.failures, [folder])


def _say_if_none_is_sure(run: "Run", promises: dict[str, Any]) -> None:
    """Say beforehand that an error rate is out of reach: "unsure" in every row would not show why."""
    asked = promises["error_rate"]
    if run.trust is None or asked is None:
        return
    if run.trust.limits(**_given(promises)).error_rate is None:
        images = counted(len(run.trust.answer_right), "validation image")
        typer.echo(
            f"no answer is sure: {images} cannot guarantee an error rate of {asked:g}", err=True
        )


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _onnx_rows(
    network: Path,
    paths: list[Path],
    device: str,
    out: Path | None,
    how: dict[str, Any],
    masks: dict[str, Any],
    said: dict[str, Any],
) -> tuple[list[str], Rows]:
    """Columns and rows of an exported network; `said` is how tables and progress are written."""
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
        **masks,
        **said,
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
    trouble = f", {failures} with an error" if failures else ""
    typer.echo(f"{counted(images, 'image')}{trouble}{where}", err=True)


def _class_rows(predictions: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for found in predictions:
        answer = {"class": found.label, "probability": found.probability}
        yield {"image": found.image, **answer, "error": found.error}


def _folder(network: Path, out: Path | None) -> Path:
    if out is None:
        raise ValueError(f"{network} predicts masks: give an output folder with --out")
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
        raise ValueError(f"{network} predicts no masks: remove --{option}")


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
