"""`besselnet data`: which data sets there are, getting them, looking at them."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from besselnet._pixels import counted
from besselnet.checks import LARGEST_SIDE, check_choice
from besselnet.cli._program import Json
from besselnet.data import Task, cache_folder, data_source, fetch_data, list_data
from besselnet.drawing import contact_sheet
from besselnet.train import DataConfig, load_images, override

# What the number of names in `ImageSet.classes` says.
_LABELS: dict[Task, str] = {
    "classify": "{} classes",
    "segment": "masks of {} classes",
    "regress": "{} values each",
    "multilabel": "any of {} classes",
}

app = typer.Typer(no_args_is_help=True, help="List, download and look at data sets.")


@app.command("list")
def list_command(
    as_json: Json = False,
) -> None:
    """List the data sets, and whether their files are here.

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
    names: Annotated[list[str], typer.Argument(help="Data sets to download, by name.")],
) -> None:
    """Download data sets, or check what is there.

    They go into the cache folder (the environment variable BESSELNET_DATA names another). Interrupted
    downloads continue where they stopped.

    Examples:

        besselnet data fetch mnist mnist-rot
    """
    for name in names:
        for path in fetch_data(name):
            typer.echo(f"{path}  checksum correct")


@app.command("show")
def show_command(
    data: Annotated[
        str, typer.Argument(help="A data set by name, a folder, an .npz or a .csv file.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The PNG to write.")],
    root: Annotated[
        Path | None, typer.Option(help="Folder or file with the published files of a named set.")
    ] = None,
    image_size: Annotated[
        int | None, typer.Option(min=1, max=LARGEST_SIDE, help="Resize to this many pixels.")
    ] = None,
    part: Annotated[str, typer.Option(help="train, val or test.")] = "train",
    per_class: Annotated[int, typer.Option(min=1, max=100, help="Images of each class.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the choice of images.")] = 0,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="OPTION=VALUE",
            help="An option of the data set; may be given many times.",
        ),
    ] = None,
) -> None:
    """Draw a contact sheet: random images of every class, a row each.

    Images with masks are shown with them, images with values from the smallest to the largest.

    Examples:

        besselnet data show mnist-mini -o digits.png

        besselnet data show photos/ -o photos.png --set bits=12
    """
    if not output.absolute().parent.is_dir():
        raise ValueError(f"--output: {output.absolute().parent} is not a folder")
    # As `besselnet train` has them, too.
    options = override({}, [text.removeprefix("data.options.") for text in settings or []])
    place = None if root is None else str(root)
    splits = load_images(DataConfig(data, place, image_size, seed, options=options))
    parts = splits.parts()
    check_choice("--part", part, list(parts))
    contact_sheet(parts[part], output, per_class=per_class, seed=seed, title=str(splits.provenance))
    for name, images in parts.items():
        height, width = images.image_size
        typer.echo(
            f"{name}: {counted(len(images), 'image')}, {width}x{height}, "
            f"{counted(images.channels, 'channel')}, {_LABELS[images.task].format(len(images.classes))}"
        )
    typer.echo(f"{splits.provenance}\nwrote {output}")
