"""Train one cell: `train_run` on its configuration, and the result as JSON values."""

import csv
import functools
import json
import shutil
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

from besselnet.models import describe_model
from besselnet.train import (
    RunConfig,
    describe_environment,
    load_images,
    read_run_config,
    to_dict,
    train_run,
)
from besselnet_lab.study.cells import Cell
from besselnet_lab.study.store import RESULT_FORMAT, Store, now

__all__ = ["describe_failure", "environment", "fill_cell", "train_cell"]

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
        _drop_other_run(folder, cell.config)
        going_on = (folder / "checkpoint.safetensors").exists()
        store.note(f"{'continued' if going_on else 'started'} {cell.key.identity}")
        result = train_cell(cell, folder, study)
        store.write_result(cell.key, result)
        return result


def train_cell(cell: Cell, folder: Path, study: str) -> dict[str, Any]:
    """The result of a cell, trained in `folder`: JSON values."""
    started = time.monotonic()
    splits = load_images(cell.config.data)
    run = train_run(cell.config, folder, resume=True, quiet=True)
    results = run.results()["test"]
    curve = _curve(folder / "metrics.csv")
    model = describe_model(
        cell.config.model.name,
        in_channels=run.in_channels,
        num_classes=len(run.classes),
        image_size=run.image_size,
        **cell.config.model.options,
    )
    judge = cell.config.data.options["judge"]
    return {
        "format": RESULT_FORMAT,
        "study": study,
        "cell": asdict(cell.key),
        "accuracy": results["accuracy"],
        "loss": results["loss"],
        "judged": {"part": judge, "images": results["images"]},
        "train_images": len(splits.train),
        "data": splits.source,
        "notes": _notes(cell, splits.source),
        "model": {
            "name": model.name,
            "parameters": model.parameters,
            "multiply_adds": model.multiply_adds,
            "quarter_turn_error": model.quarter_turn_error,
        },
        "seconds": {
            "training": round(sum(curve["seconds"]), 3),
            "last_session": round(time.monotonic() - started, 3),
        },
        "finished": now(),
        "config": to_dict(cell.config),
        "environment": environment(),
        "curve": curve,
        "classes": results["classes"],
        "confusion": results["confusion"],
    }


@functools.cache
def environment() -> dict[str, Any]:
    """Software and machine, as they were at the first call: the code that runs, not a later commit."""
    return describe_environment()


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
        "config": to_dict(cell.config),
        "environment": environment(),
    }


def _drop_other_run(folder: Path, config: RunConfig) -> None:
    """Remove an unfinished run of other settings or of other code: its end would be neither's."""
    if not (folder / "config.json").exists():
        return
    try:
        begun_by = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
        same_code = begun_by.get("source") == environment()["source"]
        same = same_code and read_run_config(folder) == config
    except (OSError, ValueError):
        same = False
    if not same:
        shutil.rmtree(folder)


def _curve(path: Path) -> dict[str, list[float]]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {
        name: [json.loads(f"{float(row[name]):.{_DIGITS}g}") for row in rows] for name in rows[0]
    }


def _notes(cell: Cell, source: str) -> list[str]:
    """What a reader of the table must know about this number."""
    notes = []
    if "re-creation" in source:
        notes.append("the images are a re-creation from MNIST, not the published files")
    if cell.config.data.options.get("judge_images"):
        notes.append(
            f"judged on at most {cell.config.data.options['judge_images']} images, not on all"
        )
    if cell.config.data.options["judge"] == "val":
        notes.append("judged on validation images; no test image was touched")
    if cell.config.data.options.get("by_group"):
        notes.append("whole groups (slides) were kept on one side of the division")
    return notes
