"""`besselnet models`: list the networks, or describe one."""

import dataclasses
import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from besselnet.models import (
    ModelDescription,
    count_parameters,
    describe_model,
    list_models,
    model_info,
    outline_model,
)

__all__ = ["models"]


def models(
    name: Annotated[
        str | None,
        typer.Argument(help="A model to describe, or a pattern such as 'bcnn*' to list."),
    ] = None,
    in_channels: Annotated[int, typer.Option(help="Channels of the images.")] = 1,
    num_classes: Annotated[int, typer.Option(help="Number of classes.")] = 10,
    image_size: Annotated[int, typer.Option(help="Side of the images in pixels.")] = 28,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
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
    counts: dict[str, int | None] = {}
    notes: dict[str, str] = {}
    for info in infos:
        counts[info.name] = None
        try:
            counts[info.name] = count_parameters(outline_model(info.name, **images))
        except ValueError as error:
            notes[info.name] = str(error)
    if as_json:
        rows = [
            {
                "name": info.name,
                "summary": info.summary,
                "symmetry": info.symmetry,
                "parameters": counts[info.name],
                "not_built": notes.get(info.name),
            }
            for info in infos
        ]
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table(box=None, pad_edge=False)
    # Names whole, on a terminal of any width: they are what is typed next.
    table.add_column("name", no_wrap=True)
    table.add_column("parameters", justify="right", no_wrap=True)
    table.add_column("symmetry", min_width=8)
    table.add_column("what it is", min_width=20)
    for info in infos:
        count = "not built" if info.name in notes else f"{counts[info.name]:,}"
        table.add_row(*(escape(text) for text in (info.name, count, info.symmetry, info.summary)))
    Console().print(table)
    for note in dict.fromkeys(notes.values()):
        typer.echo(f"not built: {note}", err=True)


def _describe(name: str, images: dict[str, Any], as_json: bool) -> None:
    description = describe_model(name, **images)
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(description), indent=2))
        return
    for label, text in _lines(description):
        typer.echo(f"{label:<20}{text}")


def _lines(model: ModelDescription) -> list[tuple[str, str]]:
    options, training = (
        ", ".join(f"{key}={value!r}" for key, value in settings.items())
        for settings in (model.options, model.training)
    )
    lines = [
        (model.name, model.summary),
        ("symmetry", model.symmetry),
        ("exactness", model.exactness),
        ("input sizes", model.sizes),
        ("options", options or "none"),
        ("training", training or "the usual settings"),
    ]
    size = model.image_size
    lines += [
        ("built for", f"{model.in_channels} x {size} x {size}, {model.num_classes} classes"),
        ("parameters", f"{model.parameters:,}"),
        ("multiply-adds", f"{model.multiply_adds:,} per image"),
        ("quarter turns", f"change the logits by {model.quarter_turn_error:.1e} (measured)"),
    ]
    return lines
