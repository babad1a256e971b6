"""`besselnet models`: list the networks, describe one, or measure their speed."""

import dataclasses
import json
import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from besselnet._pixels import counted
from besselnet.cli._program import Json
from besselnet.models import (
    count_parameters,
    describe_model,
    list_models,
    model_info,
    outline_model,
)

# What --speed measures unless told, and what it compares with.
MEASURED = ("besselnet_*", "cnn", "resnet18")
BASELINE = "resnet18"
BATCH_SIZE = 16


def models(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="Model to describe, or a pattern such as 'bcnn*' to list."
        ),
    ] = None,
    in_channels: Annotated[
        int | None,
        typer.Option(min=1, max=1024, help="Image channels. Default: 1, or 3 with --speed."),
    ] = None,
    num_classes: Annotated[int, typer.Option(min=0, max=100_000, help="Number of classes.")] = 10,
    image_size: Annotated[int, typer.Option(min=1, max=512, help="Image size in pixels.")] = 28,
    speed: Annotated[
        bool, typer.Option("--speed", help="Measure images per second on the CPU of this machine.")
    ] = False,
    sizes: Annotated[
        list[int] | None,
        typer.Option(
            "--size",
            metavar="PIXELS",
            min=1,
            max=512,
            help="With --speed: image size. Can be repeated. Default: 64.",
        ),
    ] = None,
    patterns: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="NAME",
            help="With --speed: model, or a pattern such as 'bcnn*'. Can be repeated.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the networks with their number of parameters, or describe one network.

    With --speed, measure training and prediction in images per second, in batches of 16, and compare
    with resnet18. The networks take turns, and the best of several rounds counts. "kept" is the
    activation memory that the forward pass keeps for the backward pass.

    Examples:

        besselnet models

        besselnet models besselnet_small --image-size 64 --in-channels 3

        besselnet models --speed --size 64 --size 128

        besselnet models --speed --model besselnet_small --json
    """
    if not speed and (sizes or patterns):
        raise ValueError("--size and --model require --speed")
    images: dict[str, Any] = {"in_channels": in_channels or 1, "num_classes": num_classes}
    if speed:
        chosen = [*([name] if name else []), *(patterns or [])] or _of_images(MEASURED)
        images["in_channels"] = in_channels or 3
        _measure(_matching([*chosen, BASELINE]), sorted({*(sizes or [64])}), images, as_json)
        return
    images["image_size"] = image_size
    if name is None or any(sign in name for sign in "*?["):
        _list(name or "*", images, as_json)
    else:
        _describe(name, images, as_json)


def _matching(patterns: list[str]) -> list[str]:
    """The models that match one of the patterns, in the order of the list."""
    for pattern in patterns:
        if not list_models(pattern):
            raise ValueError(f"no model matches {pattern!r}; known: {', '.join(list_models())}")
    found = {name for pattern in patterns for name in list_models(pattern)}
    return [name for name in list_models() if name in found]


def _of_images(patterns: tuple[str, ...]) -> list[str]:
    """The models that match one of the patterns and, as the baseline does, answer once for an image."""
    return [name for name in _matching(list(patterns)) if model_info(name).answers == "image"]


def _list(pattern: str, images: dict[str, Any], as_json: bool) -> None:
    infos = [model_info(name) for name in _matching([pattern])]
    rows = []
    for info in infos:
        row: dict[str, Any] = {
            "name": info.name,
            "summary": info.summary,
            "answers": info.answers,
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
    table.add_column("description", min_width=12)
    for row in rows:
        count = "not built" if row["not_built"] else f"{row['parameters']:,}"
        table.add_row(*map(escape, (row["name"], count, row["symmetry"], row["summary"])))
    Console().print(table)
    for note in dict.fromkeys(row["not_built"] for row in rows if row["not_built"]):
        typer.echo(f"not built: {note}", err=True)


def _measure(names: list[str], sizes: list[int], images: dict[str, Any], as_json: bool) -> None:
    # Only here: a list of names should not wait for what training imports.
    from besselnet.train import describe_environment, measure_speed

    fitting: dict[int, list[str]] = {}
    notes = []
    for size in sizes:
        for name in names:
            try:
                outline_model(name, **images, image_size=size)
            except ValueError as error:
                notes.append(f"not built: {name}: {error}")
            else:
                fitting.setdefault(size, []).append(name)
    if not fitting:
        raise ValueError(f"no network to measure: {notes[0]}")
    for note in notes:
        typer.echo(note, err=True)
    how: dict[str, Any] = {**images, "batch_size": BATCH_SIZE, "baseline": BASELINE}
    measured: dict[int, list[dict[str, Any]]] = {}
    for size, chosen in fitting.items():
        speeds = measure_speed(chosen, **how, image_size=size, stream=sys.stderr)
        measured[size] = [dataclasses.asdict(speed) for speed in speeds]
    environment = describe_environment()
    if as_json:
        report = {
            **how,
            "sizes": [{"image_size": size, "networks": rows} for size, rows in measured.items()],
            "environment": environment,
        }
        typer.echo(json.dumps(report, indent=2, allow_nan=False))
        return
    machine = environment["machine"]
    threads = counted(machine["threads"], "thread")
    typer.echo(f"{machine['processor']}, {threads}, batches of {BATCH_SIZE}")
    for size, rows in measured.items():
        _print_speeds(f"{images['in_channels']} x {size} x {size}", rows)


def _print_speeds(title: str, rows: list[dict[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False, title=f"\n{title}", title_justify="left")
    table.caption = f"time: per image, relative to {BASELINE}"
    table.add_column("name", no_wrap=True)
    heads = ("parameters", "train\nimages/s", "time", "predict\nimages/s", "time", "kept\nMB")
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for row in rows:
        speeds = []
        for work in ("training", "prediction"):
            ratio = row[f"{work}_time"]
            speeds += [f"{row[work]:.1f}", "" if ratio is None else f"{ratio:.2f}"]
        kept = f"{row['kept_bytes'] / 1e6:.1f}"
        table.add_row(escape(row["model"]), f"{row['parameters']:,}", *speeds, kept)
    Console().print(table)


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
        "predictions": "one per pixel" if model.answers == "pixels" else "one per image",
        "symmetry": model.symmetry,
        "exactness": model.exactness,
        "input sizes": model.sizes,
        "options": options or "none",
        "training": training or "default settings",
        "built for": f"{model.in_channels} x {size} x {size}, {model.num_classes} classes",
        "parameters": f"{model.parameters:,}",
        "multiply-adds": f"{model.multiply_adds:,} per image",
        "quarter turns": "not measured: the logits are the same for every image",
    }
    if model.quarter_turn_error is not None:
        lines["quarter turns"] = f"change the logits by {model.quarter_turn_error:.1e} (measured)"
    for label, text in lines.items():
        typer.echo(f"{label:<20}{text}")
