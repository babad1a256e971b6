"""`besselnet data`: list, download and view data sets; and `besselnet new`."""

import json
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from besselnet._pixels import counted
from besselnet.checks import LARGEST_SIDE, check_choice
from besselnet.cli._program import Json
from besselnet.cli._table import print_table
from besselnet.data import ImageSet, Task, cache_folder, data_source, fetch_data, list_data
from besselnet.drawing import contact_sheet
from besselnet.train import DataConfig, load_images, override, preview_run

# What the number of names in `ImageSet.classes` says.
_LABELS: dict[Task, str] = {
    "classify": "{} classes",
    "segment": "masks of {} classes",
    "regress": "{} values each",
    "multilabel": "any of {} classes",
}

# Classes that a table has a line for.
_MOST_ROWS = 30

app = typer.Typer(no_args_is_help=True, help="List, download and view data sets.")


@app.command("list")
def list_command(
    as_json: Json = False,
) -> None:
    """List the data sets and show which are downloaded.

    Examples:

        besselnet data list
    """
    rows: list[dict[str, Any]] = []
    for name in list_data():
        source = data_source(name)
        files = [cache_folder() / name / download.name for download in source.downloads]
        here = all(file.exists() for file in files)
        how = "downloaded" if here else f"besselnet data fetch {name}"
        rows.append(
            {
                "name": name,
                "summary": source.summary,
                "files": how if files else source.obtain,
                "options": list(source.options),
            }
        )
    if as_json:
        typer.echo(
            json.dumps({"cache": str(cache_folder()), "data": rows}, indent=2, allow_nan=False)
        )
        return
    table = Table("name", "what", "files", box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(escape(row[key]) for key in ("name", "summary", "files")))
    console = Console()
    console.print(table)
    console.print(f"\ncache folder: {cache_folder()}", soft_wrap=True)


@app.command("fetch")
def fetch_command(
    names: Annotated[list[str], typer.Argument(metavar="NAMES", help="Names of data sets.")],
) -> None:
    """Download data sets, or verify existing downloads.

    Files are stored in the cache folder; the environment variable BESSELNET_DATA sets another one.
    Interrupted downloads continue where they stopped.

    Examples:

        besselnet data fetch mnist mnist-rot
    """
    for name in names:
        for path in fetch_data(name):
            typer.echo(f"{path}  checksum correct")


@app.command("show")
def show_command(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="Name of a data set, a folder, or an .npz or .csv file."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="PNG file to write.")],
    root: Annotated[
        Path | None, typer.Option(help="Folder or file with the files of a published data set.")
    ] = None,
    image_size: Annotated[
        int | None,
        typer.Option(min=1, max=LARGEST_SIDE, help="Resize images to this size in pixels."),
    ] = None,
    part: Annotated[str, typer.Option(help="Split to show: train, val or test.")] = "train",
    per_class: Annotated[int, typer.Option(min=1, max=100, help="Images per class.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Random seed for choosing the images.")] = 0,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="OPTION=VALUE",
            help="Option of the data set. Can be repeated.",
        ),
    ] = None,
) -> None:
    """Draw a contact sheet with one row of random images per class.

    Images with masks are shown with their masks. Images with values are sorted by value.

    Examples:

        besselnet data show mnist-mini -o digits.png

        besselnet data show photos/ -o photos.png --set bits=12
    """
    _check_output(output)
    # As `besselnet train` has them, too.
    options = override({}, [text.removeprefix("data.options.") for text in settings or []])
    place = None if root is None else str(root)
    splits = load_images(DataConfig(data, place, image_size, seed, options=options))
    parts = splits.parts()
    check_choice("--part", part, list(parts))
    contact_sheet(parts[part], output, per_class=per_class, seed=seed, title=str(splits.provenance))
    _print_parts(parts)
    typer.echo(f"{splits.provenance}\nwrote {output}")


def new(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="A folder of images, an .npz or .csv file, or the name of a data set.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Contact sheet to write. Default: DATA-contact-sheet.png."
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Network (see `besselnet models`). Default: as for `train`.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Setting of `train`. Can be repeated."),
    ] = None,
) -> None:
    """Check how besselnet reads your images and preview the training.

    Prints the classes, the train/val/test split, the settings that `besselnet train` would choose and why,
    and the estimated training time on this machine. Draws a contact sheet. Nothing is trained; the last
    line is the command that trains.

    Examples:

        besselnet new photos/

        besselnet new photos/ --set data.image_size=64

        besselnet new cells/ -o cells.png
    """
    name = Path(data).name or "data"
    output = output or Path(f"{name}-contact-sheet.png")
    _check_output(output)
    layers: list[dict[str, Any]] = [{"data": {"source": data}}]
    if model is not None:
        layers.append({"model": {"name": model}})
    found = preview_run(*layers, settings=settings or [])
    splits, parts = found.images, found.images.parts()
    contact_sheet(splits.train, output, seed=found.config.data.seed, title=str(splits.provenance))
    typer.echo(splits.provenance)
    _print_parts(parts)
    _print_labels(parts)
    typer.echo(f"\ncontact sheet: {output}")
    typer.echo(f"network: {found.config.model.name}, {found.parameters:,} parameters")
    for line in filter(None, (found.reason, *found.steps)):
        typer.echo(line)
    chosen = ["--model", model] if model is not None else []
    chosen += [word for setting in settings or [] for word in ("--set", setting)]
    command = ["besselnet", "train", data, *chosen, "--out", f"runs/{Path(name).stem}"]
    typer.echo(f"nothing is trained yet; next: {shlex.join(command)}")


def _check_output(path: Path) -> None:
    if not path.absolute().parent.is_dir():
        raise ValueError(f"--output: {path.absolute().parent} is not a folder")


def _print_parts(parts: dict[str, ImageSet]) -> None:
    for name, images in parts.items():
        height, width = images.image_size
        typer.echo(
            f"{name}: {counted(len(images), 'image')}, {width}x{height}, "
            f"{counted(images.channels, 'channel')}, {_LABELS[images.task].format(len(images.classes))}"
        )


def _print_labels(parts: dict[str, ImageSet]) -> None:
    """A line for each class, with its images or share of the pixels; or for each value, with its range."""
    task, classes = parts["train"].task, parts["train"].classes
    columns = [_label_cells(images) for images in parts.values()]
    rows = [[name, *cells] for name, *cells in zip(classes, *columns)]
    head = {"segment": "class, pixels", "regress": "value"}.get(task, "class, images")
    print_table([head, *parts], rows[:_MOST_ROWS])
    if len(rows) > _MOST_ROWS:
        typer.echo(f"... and {len(rows) - _MOST_ROWS} more")


def _label_cells(images: ImageSet) -> list[str]:
    if images.task == "regress":
        low, high = images.labels.amin(0).tolist(), images.labels.amax(0).tolist()
        return [f"{least:.4g} to {most:.4g}" for least, most in zip(low, high)]
    counts = images.class_counts().tolist()
    if images.task == "segment":
        return [f"{count / max(sum(counts), 1):.1%}" for count in counts]
    return [str(count) for count in counts]
