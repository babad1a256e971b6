"""`besselnet models`: list the networks, or describe one."""

import dataclasses
import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from besselnet.cli._program import Json
from besselnet.models import (
    count_parameters,
    describe_model,
    list_models,
    model_info,
    outline_model,
)


def models(
    name: Annotated[
        str | None,
        typer.Argument(help="A model to describe, or a pattern such as 'bcnn*' to list."),
    ] = None,
    in_channels: Annotated[int, typer.Option(min=1, max=1024, help="Channels of the images.")] = 1,
    num_classes: Annotated[int, typer.Option(min=0, max=100_000, help="Number of classes.")] = 10,
    image_size: Annotated[
        int, typer.Option(min=1, max=512, help="Side of the images in pixels.")
    ] = 28,
    as_json: Json = False,
) -> None:
    """List the networks with their number of parameters, or describe one of them.

    Examples:

        besselnet models

        besselnet models besselnet_small --image-size 64 --in-channels 3
    """
    images: dict[str, Any] = {
        "in_channels": in_channels,
        "num_classes": num_classes,
        "image_size": image_size,
    }
    if name is None or any(sign in name for sign in "*?["):
        _list(name or "*", images, as_json)
    else:
        _describe(name, images, as_json)


def _list(pattern: str, images: dict[str, Any], as_json: bool) -> None:
    infos = [model_info(name) for name in list_models(pattern)]
    if not infos:
        raise ValueError(f"no model matches {pattern!r}; known: {', '.join(list_models())}")
    rows = []
    for info in infos:
        row: dict[str, Any] = {
            "name": info.name,
            "summary": info.summary,
            "symmetry": info.symmetry,
            "parameters": None,
            "not_built": None,
        }
        try:
            row["parameters"] = count_parameters(outline_model(info.name, **images))
        except ValueError as error:
            row["not_built"] = str(error)
        rows.append(row)
    if as_json:
        typer.echo(json.dumps(rows, indent=2, allow_nan=False))
        return
    table = Table(box=None, pad_edge=False)
    # Names whole, on a terminal of any width: they are what is typed next.
    table.add_column("name", no_wrap=True)
    table.add_column("parameters", justify="right", no_wrap=True)
    table.add_column("symmetry", min_width=8)
    table.add_column("what it is", min_width=20)
    for row in rows:
        count = "not built" if row["not_built"] else f"{row['parameters']:,}"
        table.add_row(*map(escape, (row["name"], count, row["symmetry"], row["summary"])))
    Console().print(table)
    for note in dict.fromkeys(row["not_built"] for row in rows if row["not_built"]):
        typer.echo(f"not built: {note}", err=True)


def _describe(name: str, images: dict[str, Any], as_json: bool) -> None:
    model = describe_model(name, **images)
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(model), indent=2, allow_nan=False))
        return
    options, training = (
        ", ".join(f"{key}={value!r}" for key, value in settings.items())
        for settings in (model.options, model.training)
    )
    size = model.image_size
    lines = {
        model.name: model.summary,
        "symmetry": model.symmetry,
        "exactness": model.exactness,
        "input sizes": model.sizes,
        "options": options or "none",
        "training": training or "the usual settings",
        "built for": f"{model.in_channels} x {size} x {size}, {model.num_classes} classes",
        "parameters": f"{model.parameters:,}",
        "multiply-adds": f"{model.multiply_adds:,} per image",
        "quarter turns": "not measured: the logits are the same for every image",
    }
    if model.quarter_turn_error is not None:
        lines["quarter turns"] = f"change the logits by {model.quarter_turn_error:.1e} (measured)"
    for label, text in lines.items():
        typer.echo(f"{label:<20}{text}")
