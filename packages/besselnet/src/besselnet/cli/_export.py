"""`besselnet export`."""

from pathlib import Path
from typing import Annotated

import torch
import typer

from besselnet import train as training
from besselnet.checks import check_choice
from besselnet.cli._program import RunFolder
from besselnet.data import Batches, reading_options
from besselnet.export import (
    BOUND,
    RANDOM_IMAGES,
    SUFFIXES,
    TARGETS,
    ExportReport,
    export_model,
)
from besselnet.hub import save_pretrained
from besselnet.locking import hold_output
from besselnet.models import read_network_config
from besselnet.robust import save_trust

FOLDER = "folder"
# Of the run's own images.
MOST_IMAGES = 128


def export(
    run_folder: RunFolder,
    to: Annotated[
        str,
        typer.Option(
            help="Format: onnx; torch-export (.pt2); plain (a Python file that needs only torch); or "
            "folder (weights, config and model card, for `from_pretrained` and the Hugging Face Hub)."
        ),
    ] = "onnx",
    out: Annotated[
        Path | None,
        typer.Option(
            help="File or folder to write. Default: RUN/model.onnx, .pt2 or .py, or RUN/pretrained."
        ),
    ] = None,
    int8: Annotated[
        bool, typer.Option("--int8", help="With onnx: quantise weights and activations to 8 bits.")
    ] = False,
    maps: Annotated[
        bool, typer.Option("--maps", help="With onnx: add the feature maps as outputs.")
    ] = False,
    bound: Annotated[
        float, typer.Option(help="Maximum difference from the logits of PyTorch.")
    ] = BOUND,
) -> None:
    """Export a trained network to ONNX, torch.export or plain PyTorch.

    The exported file accepts any batch size, and any image size that the network accepts. Its logits are
    compared with those of the network, on random images and on images of the run (validation images if
    available). If they differ by more than --bound, nothing is written.

    Examples:

        besselnet export runs/photos

        besselnet export runs/photos --int8 --out photos.onnx

        besselnet export runs/photos --to plain --out photos.py

        besselnet export runs/photos --to folder
    """
    check_choice("--to", to, (*TARGETS, FOLDER))
    if int8 and to != "onnx":
        raise ValueError(f"--int8 requires --to onnx, not --to {to}")
    if maps and (to != "onnx" or int8):
        raise ValueError("--maps requires --to onnx, without --int8")
    place = out or run_folder / ("pretrained" if to == FOLDER else f"model{SUFFIXES[to]}")
    # Before it is waited for: a run that is none, or is not finished, gets no lock beside it.
    run = training.load_run(run_folder)
    if to != FOLDER and run.task in ("regress", "multilabel"):
        raise ValueError(
            f"{run_folder} predicts {run.learned.labels}: export it with --to {FOLDER}"
        )
    with hold_output(place):
        _write(run, place, to, int8, maps, bound)


def _write(run: training.Run, place: Path, to: str, int8: bool, maps: bool, bound: float) -> None:
    if to == FOLDER:
        save_pretrained(run.model, place, classes=run.classes, about=_about(run))
        if run.trust is not None:
            save_trust(run.trust, place, read_network_config(place)["weights"])
        typer.echo(f"wrote {place}: load it with besselnet.hub.from_pretrained({str(place)!r})")
        return
    images, whose = _images(run)
    report = export_model(
        run.model,
        place,
        to=to,  # type: ignore[arg-type]
        images=images,
        real=whose is None,
        classes=run.classes,
        **reading_options(run.config.data.options),
        temperature=1.0 if run.trust is None else run.trust.temperature,
        int8=int8,
        maps=maps,
        bound=bound,
    )
    if whose is not None:
        typer.echo(
            f"images of the run are not available ({whose}): compared on random images only",
            err=True,
        )
    _show(report, bound, run.image_size, f"{len(images)} {'random' if whose else 'real'} images")


def _images(run: training.Run) -> tuple[torch.Tensor, str | None]:
    """Images of the run, or random ones and the reason why there are none."""
    try:
        splits = run.load_images()
    except (ValueError, OSError) as error:
        shape = (RANDOM_IMAGES, run.in_channels, run.image_size, run.image_size)
        return torch.rand(shape, generator=torch.Generator().manual_seed(1)), str(error)
    part = splits.val or splits.test or splits.train
    images, _ = Batches(part, min(MOST_IMAGES, len(part)))[0]
    if run.learned.answers == "pixels":
        # The middle of images of any size: as much as a patch.
        top, left = (max(side - run.image_size, 0) // 2 for side in part.image_size)
        images = images[..., top : top + run.image_size, left : left + run.image_size]
    return images, None


def _about(run: training.Run) -> dict[str, object]:
    data = run.config.data
    options = ", ".join(f"{key}={value}" for key, value in data.options.items())
    about: dict[str, object] = {
        "trained on": Path(data.source).name + (f" ({options})" if options else "")
    }
    for part, result in run.results().items():
        score = run.learned.in_words(result[run.learned.score])
        about[f"{part} {run.learned.score}"] = f"{score} of {result['images']} images"
    return {**about, **run.learned.about()}


def _show(report: ExportReport, bound: float, image_size: int, images: str) -> None:
    for file in report.files:
        typer.echo(f"wrote {file} ({file.stat().st_size / 1000:,.0f} kB)")
    sizes = "any image size" if report.any_size else f"images of {image_size} x {image_size} pixels"
    typer.echo(f"accepts any batch size and {sizes}")
    if report.forms:
        forms = ", ".join(f"{count} {form}" for form, count in sorted(report.forms.items()))
        typer.echo(f"Bessel convolutions: {forms}")
    for kind, value in report.differences.items():
        typer.echo(f"differs from PyTorch by {value:.1e} on {kind} (bound {bound:.0e})")
    if report.int8_agreement is not None:
        typer.echo(
            f"int8: calibrated on {images}; {report.int8_agreement:.1%} of them get the same class as in "
            f"PyTorch, logits differ by {report.int8_difference:.2f}"
        )
