"""`besselnet train | evaluate | inspect`."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from besselnet import train as training
from besselnet.data import Batches
from besselnet.drawing._runs import draw_turned
from besselnet.functional import rotate_images
from besselnet.models import model_info
from besselnet.train._progress import watched

__all__ = ["evaluate", "inspect", "train"]

DEFAULT_MODEL = "besselnet_small"

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder that `train` filled.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Device = Annotated[str, typer.Option(help="Where to compute: cpu, cuda, cuda:1, mps.")]


def train(
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            help="Name of a data set (`besselnet data list`), or a folder with one folder of images "
            "per class, or an .npz file. With --resume: that of the run.",
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="Settings in a TOML or JSON file (see --settings).")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help=f"Network (`besselnet models`); {DEFAULT_MODEL} unless given."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder; runs/DATA-MODEL-HASH unless given.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in --out where it stopped.")
    ] = False,
    devices: Annotated[int | None, typer.Option(help="Processes (GPUs) on each machine.")] = None,
    nodes: Annotated[int | None, typer.Option(help="Machines.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting; may be given many times."),
    ] = None,
    show_settings: Annotated[
        bool, typer.Option("--settings", help="List all settings and their defaults, and stop.")
    ] = False,
) -> None:
    """Train a network on a data set or a folder of images.

    Examples:

        besselnet train photos/ --out runs/photos

        besselnet train mnist-rot --model bcnn_o2_strong --set train.epochs=20

        besselnet train photos/ --config recipe.toml --set "data.augment=['rotate']"

        besselnet train --out runs/photos --resume

        besselnet train galaxy10 --devices 4

        torchrun --nproc-per-node 4 -m besselnet train galaxy10
    """
    if show_settings:
        for key, default, meaning in training.describe_settings():
            typer.echo(f"{key:<24} {default:<12} {meaning}")
        return
    values: dict[str, Any] = {}
    if resume and out is not None and ((out / "config.json").exists() or data is None):
        values = training.to_dict(training.read_run_config(out))
    if config is not None:
        for section, table in training.read_config(config).items():
            merge = isinstance(table, dict) and isinstance(values.get(section), dict)
            values[section] = {**values[section], **table} if merge else table
    given = {
        ("data", "source"): data,
        ("model", "name"): model,
        ("train", "devices"): devices,
        ("train", "nodes"): nodes,
    }
    for (section, key), value in given.items():
        if value is not None:
            values.setdefault(section, {})[key] = value
    values = training.override(values, settings or [])
    name = values.setdefault("model", {}).setdefault("name", DEFAULT_MODEL)
    values["train"] = {**model_info(name).training, **values.get("train", {})}
    run_config = training.from_dict(training.RunConfig, values)
    if not run_config.data.source:
        raise ValueError(
            "what to train on? Give DATA: a data set, a folder of images or an .npz file"
        )
    if resume and out is None:
        raise ValueError("which run to resume? Give its folder: --out RUN")
    folder = out or training.default_folder(run_config)
    try:
        run = training.train_run(run_config, folder, resume=resume)
    except training.Interrupted as stop:
        again = f"go on with: besselnet train --out {folder} --resume"
        raise training.Interrupted(f"{stop}; {again}", stop.signal_number) from None
    if training.is_first_process():
        for part, result in run.results().items():
            typer.echo(
                f"{part} accuracy {100 * result['accuracy']:.2f}%  loss {result['loss']:.4f}"
            )
        typer.echo(f"saved in {folder}; next: besselnet evaluate {folder} --turned")


def evaluate(
    run_folder: RunFolder,
    turned: Annotated[
        bool,
        typer.Option(
            "--turned", help="Also turn the images to many angles, before and after training."
        ),
    ] = False,
    part: Annotated[
        str | None, typer.Option(help="train, val or test; test (else val) unless given.")
    ] = None,
    angles: Annotated[int, typer.Option(help="How many angles of the circle to try.")] = 24,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Test a trained network on the images kept for that.

    With --turned every image is turned to many angles (cubic interpolation, unless the run was
    configured otherwise). Shown are the accuracy over the angles, its spread (best minus worst
    angle), how often an image and its turned copy get the same answer, and the drift of the logits
    (change against upright, relative to their size), each before and after training. The curve is
    drawn in turned.png of the run folder.

    Examples:

        besselnet evaluate runs/photos

        besselnet evaluate runs/photos --turned --angles 36

        besselnet evaluate runs/photos --turned --json > report.json
    """
    run = training.load_run(run_folder, device=device)
    parts = training.load_images(run.config.data).parts()
    name = part or next(p for p in ("test", "val", "train") if p in parts)
    if name not in parts:
        raise ValueError(f"part must be one of {', '.join(parts)}, got {name!r}")
    batches = Batches(parts[name], run.config.train.batch_size, device=device)
    result = training.evaluate(
        run.model, watched(batches, len(batches), "testing", stream=sys.stderr)
    )
    report: dict[str, Any] = {"part": name, **result.to_dict(run.classes)}
    if turned:
        interpolation = run.config.data.interpolation
        curves = {
            when: training.evaluate_turned(
                network,
                watched(batches, len(batches), f"turning, {when}", stream=sys.stderr),
                lambda images, degrees: rotate_images(images, degrees, interpolation),
                angles=angles,
            )
            for when, network in (
                ("before training", run.untrained_model().to(device)),
                ("after training", run.model),
            )
        }
        draw_turned(run.folder / "turned.png", curves)
        report["turned"] = {when.split()[0]: curve.to_dict() for when, curve in curves.items()}
    if as_json:
        typer.echo(json.dumps(report, indent=2))
        return
    typer.echo(
        f"{name}: {report['images']} images, accuracy {100 * report['accuracy']:.2f}%, "
        f"loss {report['loss']:.4f}"
    )
    rows = [
        [
            label,
            str(row["images"]),
            *(f"{100 * row[k]:.1f}%" for k in ("recall", "precision", "f1")),
        ]
        for label, row in report["classes"].items()
    ]
    _print_table(["class", "images", "recall", "precision", "F1"], rows)
    if turned:
        summaries = report["turned"]
        shown = {
            "accuracy upright": "upright_accuracy",
            "accuracy turned": "turned_accuracy",
            "spread over angles": "accuracy_spread",
            "same answer when turned": "agreement",
            "logit drift": "logit_drift",
        }
        _print_table(
            ["turned images", "before", "after"],
            [
                [text, *(f"{100 * summaries[when][key]:.2f}%" for when in ("before", "after"))]
                for text, key in shown.items()
            ],
        )
        typer.echo(f"accuracy against angle: {run.folder / 'turned.png'}")


def inspect(run_folder: RunFolder, as_json: Json = False) -> None:
    """Show what a trained network is, costs and keeps.

    Parameters, multiply-adds for an image, and the equivariance error at each angle: how much the
    logits change, relative to their size, when smooth images are turned. Draws the learned filters
    in filters.png of the run folder.

    Examples:

        besselnet inspect runs/photos

        besselnet inspect runs/photos --json
    """
    found = training.inspect_run(training.load_run(run_folder))
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    typer.echo(f"model          {found['model']} {found['options'] or ''}".rstrip())
    size = found["image_size"]
    typer.echo(f"takes          {found['in_channels']} x {size} x {size}")
    typer.echo(f"answers        {found['num_classes']} classes")
    typer.echo(f"symmetry       {found['symmetry']}")
    typer.echo(f"parameters     {found['parameters']:,} ({found['bytes']:,} bytes)")
    typer.echo(f"multiply-adds  {found['multiply_adds']:,} for an image")
    _print_table(
        ["layer", "kind", "parameters"],
        [[row["name"], row["kind"], f"{row['parameters']:,}"] for row in found["layers"]],
    )
    _print_table(
        ["angle", "equivariance error"],
        [[f"{a:g}", f"{e:.1e}"] for a, e in zip(found["angles"], found["equivariance_error"])],
    )
    if found["filters"] is not None:
        typer.echo(f"filters: {found['filters']}")


def _print_table(head: list[str], rows: Iterable[list[str]]) -> None:
    lines = [head, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    typer.echo()
    for first, *others in lines:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:])]
        typer.echo("  ".join([first.ljust(widths[0]), *cells]))
