"""`besselnet data`: which data sets there are, getting them, looking at them."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from besselnet.data import cache_folder, data_source, fetch_data, list_data, load_data
from besselnet.drawing import contact_sheet

app = typer.Typer(no_args_is_help=True, help="List, download and look at data sets.")


@app.command("list")
def list_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """List the data sets, and whether their files are here.

    Example: besselnet data list
    """
    rows: list[dict[str, Any]] = []
    for name in list_data():
        source = data_source(name)
        folder = cache_folder() / name
        here = bool(source.downloads) and all(
            (folder / download.name).exists() for download in source.downloads
        )
        how = "downloaded" if here else "besselnet data fetch " + name
        rows.append(
            {
                "name": name,
                "summary": source.summary,
                "files": how if source.downloads else source.obtain,
                "options": list(source.options),
            }
        )
    if as_json:
        typer.echo(json.dumps({"cache": str(cache_folder()), "data": rows}, indent=2))
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
    """Download data sets into the cache folder (BESSELNET_DATA), or check what is there.

    Interrupted downloads go on where they stopped.

    Example: besselnet data fetch mnist mnist-rot
    """
    for name in names:
        for path in fetch_data(name):
            typer.echo(f"{path}  checksum right")


@app.command("show")
def show_command(
    data: Annotated[str, typer.Argument(help="A data set by name, a folder, or an .npz file.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The PNG to write.")],
    root: Annotated[
        Path | None, typer.Option(help="Folder or file with the published files of a named set.")
    ] = None,
    image_size: Annotated[int | None, typer.Option(help="Resize to this many pixels.")] = None,
    part: Annotated[str, typer.Option(help="train, val or test.")] = "train",
    per_class: Annotated[int, typer.Option(min=1, help="Images of each class.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the choice of images.")] = 0,
) -> None:
    """Draw a contact sheet: random images of every class, a row each.

    Example: besselnet data show mnist-mini -o digits.png
    """
    if not output.absolute().parent.is_dir():
        raise typer.BadParameter(f"{output.absolute().parent} is no folder", param_hint="--output")
    splits = load_data(data, root=root, image_size=image_size, seed=seed)
    parts = splits.parts()
    if part not in parts:
        raise typer.BadParameter(f"{data} has {', '.join(parts)}", param_hint="--part")
    contact_sheet(parts[part], output, per_class=per_class, seed=seed, title=str(splits.provenance))
    for name, images in parts.items():
        height, width = images.image_size
        typer.echo(
            f"{name}: {len(images)} images, {width}x{height}, {images.channels} channel(s), "
            f"{len(images.classes)} classes"
        )
    typer.echo(f"{splits.provenance}\nwrote {output}")
