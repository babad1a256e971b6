"""Train one cell: `train_run` on its configuration, and the result as JSON values."""

import csv
import functools
import json
import shutil
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import besselnet_lab
from besselnet.atomic import write_json
from besselnet.data import ImageSet, Provenance, Splits
from besselnet.models import count_parameters
from besselnet.nn import evaluating
from besselnet.testing import QUARTER_TURNS, Region, equivariance_error
from besselnet.train import (
    Run,
    RunConfig,
    describe_environment,
    make_config,
    merge_settings,
    recommend_settings,
    source_digest,
    to_dict,
    train_run,
)
from besselnet.untrusted import read_json
from besselnet_lab.study.cells import Cell
from besselnet_lab.study.images import load_images
from besselnet_lab.study.robustness import measure_robustness
from besselnet_lab.study.rotation import (
    background_class,
    mask_rotation_agreement,
    rotation_agreement,
)
from besselnet_lab.study.store import RESULT_FORMAT, Store, now

__all__ = ["describe_failure", "environment", "fill_cell", "train_cell"]

# In the folder of a run that is not finished: with what it was begun.
_BEGUN = "cell.json"
# There too, for as long as it takes: what is known of the robustness of the trained network.
_ROBUST = "robust.json"
# Judged images on which the rotations of a trained network are tried; of those with masks, fewer.
_PROBES, _PROBES_WITH_MASKS = 16, 2
# Settings of data that the cell alone decides.
_IMAGES_OF_THE_CELL = ("source", "root", "image_size", "seed", "options")
# Six digits are more than a curve needs, and keep the files small.
_DIGITS = 6


def fill_cell(store: Store, cell: Cell, study: str) -> dict[str, Any]:
    """Train the cell, or go on where it was cut off, and write its result; `Busy` if another does.

    A cell that is done already is left alone.
    """
    with store.lock(cell.key):
        done = store.result(cell.key)
        if done is not None:
            store.clean(cell.key)
            return done
        folder = store.run_folder(cell.key)
        _drop_other_run(folder, cell)
        going_on = (folder / "checkpoint.safetensors").exists()
        store.note(f"{'continued' if going_on else 'started'} {cell.key.identity}")
        result = train_cell(cell, folder, study)
        store.write_result(cell.key, result)
        return result


def train_cell(cell: Cell, folder: Path, study: str) -> dict[str, Any]:
    """The result of a cell, trained in `folder`: JSON values."""
    started = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / _BEGUN, _begun_with(cell))
    splits = load_images(cell.images)
    assert splits.test is not None  # the judged images
    config, reason = cell.config, None
    if cell.over_recommended is not None:
        config, reason = _recommended(cell, splits, cell.over_recommended)
    run = train_run(config, folder, images=splits, resume=True, quiet=True)
    results = run.results()["test"]
    curve = _curve(folder / "metrics.csv")
    return {
        "format": RESULT_FORMAT,
        "study": study,
        "cell": asdict(cell.key),
        "accuracy": results["accuracy"],
        "loss": results["loss"],
        "judged": {"part": cell.images.judge, "images": results["images"]},
        "train_images": len(splits.train),
        "data": str(splits.provenance),
        "notes": _notes(cell, splits.provenance),
        "model": _describe(run, splits.test),
        **_judge(run, splits.test, results),
        **_robustness(cell, run, splits.test, folder / _ROBUST),
        "seconds": {
            "training": round(sum(curve["seconds"]), 3),
            "last_session": round(time.monotonic() - started, 3),
        },
        "finished": now(),
        "config": cell.settings(),
        **({} if reason is None else {"recommendation": _describe_recommended(config, reason)}),
        "environment": environment(),
        "curve": curve,
        "classes": results["classes"],
        "confusion": results["confusion"],
    }


def _judge(run: Run, judged: ImageSet, results: Mapping[str, Any]) -> dict[str, Any]:
    """What rotations change in the answers; with masks, also how good these are."""
    if run.task != "segment":
        return {"rotation": rotation_agreement(run.model, judged)}
    return {
        "scores": mask_scores(results),
        "rotation": mask_rotation_agreement(run.model, judged),
    }


def _robustness(cell: Cell, run: Run, judged: ImageSet, kept: Path) -> dict[str, Any]:
    """What corruptions and attacks do, where the recipe asks for it."""
    if cell.robust is None:
        return {}
    return {"robust": measure_robustness(run.model, judged, cell.robust, kept)}


def mask_scores(results: Mapping[str, Any]) -> dict[str, Any]:
    """The scores of masks, from what a run found on the judged images: JSON values.

    `f1`, where there are two classes, is the Dice of the one that is not background; `instances` are the
    single objects, where the images have them.
    """
    names = ("dice", "iou", "boundary_f1")
    rows: Mapping[str, Any] = results["classes"]
    scores = {name: results[name] for name in names}
    scores["classes"] = {key: {name: row[name] for name in names} for key, row in rows.items()}
    if len(rows) == 2:
        scores["f1"] = list(rows.values())[1 - background_class(rows)]["dice"]
    if "objects" in results:
        scores["instances"] = results["objects"]
    return scores


def _recommended(cell: Cell, splits: Splits, over: Mapping[str, Any]) -> tuple[RunConfig, str]:
    """The settings that `besselnet train` gives to the images, under those of the cell; and why."""
    data, model = to_dict(cell.config.data), to_dict(cell.config.model)
    images = {name: data[name] for name in _IMAGES_OF_THE_CELL}
    given = merge_settings(
        {"data": {**images, **over["data"]}, "model": model, "train": over["train"]}
    )
    found = recommend_settings(splits, cell.config.model.name, given)
    names = found.settings["data"].get("augment")
    if names is not None:
        change = over["augment"]
        kept = [name for name in names if name not in (*change["without"], *change["further"])]
        found.settings["data"]["augment"] = [*kept, *change["further"]]
    return make_config(found.settings, given), found.reason


def _describe_recommended(config: RunConfig, reason: str) -> dict[str, Any]:
    """What was recommended, with the cell's own settings over it, in the parts of a cell's settings."""
    parts = to_dict(config)
    images = {k: v for k, v in parts["data"].items() if k not in _IMAGES_OF_THE_CELL}
    return {"reason": reason, "images": images, "model": parts["model"], "train": parts["train"]}


@functools.cache
def environment() -> dict[str, Any]:
    """Software and machine, as they were at the first call: the code that runs, not a later commit."""
    found = describe_environment()
    found["versions"]["besselnet-lab"] = besselnet_lab.__version__
    return {**found, "lab_source": source_digest(Path(besselnet_lab.__file__).parent)}


def describe_failure(cell: Cell, study: str, error: BaseException | str) -> dict[str, Any]:
    """JSON values about a cell that could not be filled."""
    if isinstance(error, BaseException):
        text = f"{type(error).__name__}: {error}"
        trace = "".join(traceback.format_exception(error))
    else:
        text, trace = error.strip().splitlines()[-1] if error.strip() else "no message", error
    return {
        "format": RESULT_FORMAT,
        "study": study,
        "cell": asdict(cell.key),
        "error": " ".join(text.split()),
        "traceback": trace.splitlines(),
        "failed": now(),
        "config": cell.settings(),
        "environment": environment(),
    }


def _drop_other_run(folder: Path, cell: Cell) -> None:
    """Remove an unfinished run of other settings or of other code: its end would be neither's."""
    if not folder.exists():
        return
    try:
        same = read_json(folder / _BEGUN) == _begun_with(cell)
    except (OSError, ValueError):
        same = False
    if not same:
        shutil.rmtree(folder)


def _begun_with(cell: Cell) -> dict[str, Any]:
    """Settings and code, as JSON values."""
    return {
        "settings": cell.settings(),
        "source": environment()["source"],
        "lab_source": environment()["lab_source"],
    }


def _describe(run: Run, judged: ImageSet) -> dict[str, Any]:
    """The trained network: what it was built with, its size, and what rotations do to it."""
    masks = run.task == "segment"
    probes = min(_PROBES_WITH_MASKS if masks else _PROBES, len(judged))
    images = torch.stack([judged[i][0] for i in range(probes)])
    images = images.to(next(run.model.parameters()).device)
    side = min(judged.image_size)
    region: Region = "disc" if masks else "centre"
    try:
        curve = equivariance_error(
            run.model, images[..., :side, :side], QUARTER_TURNS, region=region
        )
        error: float | None = curve.max()
    except ValueError:
        # The same logits for every image: there is nothing to measure an error against.
        error = None
    return {
        "name": run.config.model.name,
        "options": run.config.model.options,
        "parameters": count_parameters(run.model),
        "multiply_adds": _multiply_adds(run.model, images[:1]),
        "trained_quarter_turn_error": error,
    }


def _multiply_adds(model: nn.Module, image: torch.Tensor) -> int:
    """Of convolutions and matrix products for one image, counted while the network runs."""
    counter = FlopCounterMode(display=False)
    with evaluating(model), counter:
        model(image)
    return counter.get_total_flops() // 2


def _curve(path: Path) -> dict[str, list[float]]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {
        name: [json.loads(f"{float(row[name]):.{_DIGITS}g}") for row in rows] for name in rows[0]
    }


def _notes(cell: Cell, provenance: Provenance) -> list[str]:
    """What a reader of the table must know about this number."""
    images = cell.images
    notes = []
    if provenance.recreated:
        notes.append("the images are a re-creation from MNIST, not the published files")
    if images.judge_images:
        notes.append(f"judged on at most {images.judge_images} images, not on all")
    if images.judge == "val":
        notes.append("judged on validation images; no test image was touched")
    if images.by_group:
        notes.append("whole groups (slides) were kept on one side of the division")
    return notes
