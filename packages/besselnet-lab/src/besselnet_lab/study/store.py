"""The files of a study: one JSON for each finished cell, and the traces of unfinished ones.

RESULTS/COLUMN/METHOD.GROUP.seedN.json      a finished cell
RESULTS/COLUMN/METHOD.GROUP.seedN.failed.json   why it failed the last time
RESULTS/.work/                              runs that are not finished, locks, logs, timings
"""

import json
import reprlib
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from besselnet.atomic import remove_leftovers, write_atomically
from besselnet.locking import Busy, hold, is_held
from besselnet.models import model_info
from besselnet.train import ModelConfig, TrainConfig, changed_settings, from_dict, to_dict
from besselnet.untrusted import check_keys, read_json
from besselnet_lab.study.cells import Cell, CellKey
from besselnet_lab.study.images import CellImages
from besselnet_lab.study.robustness import RobustPlan, check_robust

__all__ = ["RESULT_FORMAT", "Busy", "Store", "now"]

RESULT_FORMAT = 2
_TEXT, _COUNT, _OBJECT = (str, "a string"), (int, "an integer"), (dict, "an object")
_NUMBER, _LIST = (int | float, "a finite number"), (list, "a list")
# What reports, estimates and checks of settings read.
_RESULT: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(("cell", "judged", "model", "config", "seconds", "curve"), _OBJECT),
    **{f"cell.{k}": _TEXT for k in ("data_set", "augmentation", "regime", "protocol")},
    **{f"cell.{k}": _TEXT for k in ("method", "group")},
    "cell.seed": _COUNT,
    **dict.fromkeys(("study", "judged.part"), _TEXT),
    "model.name": _TEXT,
    **dict.fromkeys(("train_images", "model.parameters", "model.multiply_adds"), _COUNT),
    **{f"config.{k}": _OBJECT for k in ("images", "model", "train")},
    **dict.fromkeys(("accuracy", "seconds.training"), _NUMBER),
    **dict.fromkeys(("notes", "curve.epoch", "curve.step", "curve.seconds"), _LIST),
}
# What newer results have, and older ones may lack.
_ROTATION = ("black_corners", "reflected_borders", "quarter_turns")
_OPTIONAL: dict[str, dict[str, tuple[Any, str]]] = {
    "rotation": {
        "rotation": _OBJECT,
        **{f"rotation.{k}": _NUMBER for k in _ROTATION},
    },
    "scores": {"scores": _OBJECT, "scores.classes": _OBJECT},
    "recommendation": {
        "recommendation": _OBJECT,
        "recommendation.reason": _TEXT,
        **{f"recommendation.{k}": _OBJECT for k in ("images", "model", "train")},
    },
}
# Shares of a result with masks; null where there is nothing to judge.
_SCORES = ("dice", "iou", "boundary_f1", "f1")
_INSTANCES = ("f1", "precision", "recall", "panoptic_quality")
_FAILURE: dict[str, tuple[Any, str]] = {"error": _TEXT, "attempts": _COUNT}


@dataclass(frozen=True)
class Store:
    """A folder of results."""

    folder: Path

    @property
    def work(self) -> Path:
        return self.folder / ".work"

    def prepare(self) -> None:
        """Make the folders."""
        self.work.mkdir(parents=True, exist_ok=True)
        ignore = self.work / ".gitignore"
        if not ignore.exists():
            write_atomically(ignore, "*\n")

    def result_path(self, key: CellKey) -> Path:
        return self.folder / f"{key.identity}.json"

    def failure_path(self, key: CellKey) -> Path:
        return self.folder / f"{key.identity}.failed.json"

    def run_folder(self, key: CellKey) -> Path:
        return self.work / "runs" / key.identity

    def log_path(self, key: CellKey) -> Path:
        return self.work / "logs" / f"{key.identity}.txt"

    def lock_path(self, key: CellKey) -> Path:
        return self.work / "locks" / f"{key.identity}.lock"

    @contextmanager
    def lock(self, key: CellKey) -> Iterator[None]:
        """Hold the cell, or raise `Busy`. The system lets go of it when the process ends."""
        with hold(self.lock_path(key), str(key)):
            for path in (self.result_path(key), self.failure_path(key)):
                remove_leftovers(path.parent, path.name)
            yield

    def is_running(self, key: CellKey) -> bool:
        """Whether some process holds the cell."""
        return is_held(self.lock_path(key))

    def write_result(self, key: CellKey, result: Mapping[str, Any]) -> None:
        """Write the result whole, and forget failures and the run."""
        path = self.result_path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json_by_line(result))
        self.note(f"finished {key.identity}")
        self.clean(key)

    def write_failure(self, key: CellKey, failure: Mapping[str, Any]) -> None:
        path = self.failure_path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        before = self.failure(key)
        attempts = 1 + (before["attempts"] if before else 0)
        write_atomically(path, json_by_line({**failure, "attempts": attempts}))
        self.note(f"failed {key.identity}")

    def clean(self, key: CellKey) -> None:
        """Remove what a finished cell has left behind."""
        self.failure_path(key).unlink(missing_ok=True)
        shutil.rmtree(self.run_folder(key), ignore_errors=True)
        self.log_path(key).unlink(missing_ok=True)

    def result(self, key: CellKey) -> dict[str, Any] | None:
        return _read_result(self.result_path(key))

    def failure(self, key: CellKey) -> dict[str, Any] | None:
        return _read(self.failure_path(key), _FAILURE)

    def results(self) -> list[dict[str, Any]]:
        """Every result in the folder, sorted by the name of its file."""
        paths = sorted(p for p in self.folder.glob("*/*.json") if not _is_failure(p))
        found = [_read_result(path) for path in paths if path.parent.name != ".work"]
        return [result for result in found if result is not None]

    def check_settings(self, cell: Cell) -> None:
        """Refuse a result that was made with other settings than the recipe has now."""
        result = self.result(cell.key)
        if result is None:
            return
        try:
            changes = changed_settings(_complete(result["config"]), _complete(cell.settings()))
        except ValueError as error:
            changes = [str(error)]
        # Recommended options of a model are no defaults.
        if not changes and cell.over_recommended is None:
            changes = _changed_defaults(cell, result["model"].get("options", {}))
        if changes:
            raise ValueError(
                f"{self.result_path(cell.key)} has other settings "
                f"({'; '.join(changes)}): remove it, or choose another folder with --results"
            )

    def note(self, text: str) -> None:
        """Append a line to the log of the study."""
        with (self.work / "log.txt").open("a", encoding="utf-8") as file:
            file.write(f"{now()} {text}\n")


def _complete(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a result, with the defaults of those that are newer than the result."""
    kinds = {"images": CellImages, "model": ModelConfig, "train": TrainConfig}
    parts = {
        name: to_dict(from_dict(kind, config[name], f"{name}.")) for name, kind in kinds.items()
    }
    if config.get("robust"):
        parts["robust"] = to_dict(from_dict(RobustPlan, config["robust"], "robust."))
    return {**parts, "recommended": config.get("recommended", False)}


def _changed_defaults(cell: Cell, built_with: Mapping[str, Any]) -> list[str]:
    """Options that the recipe does not name, and whose defaults have changed since the result."""
    model = cell.config.model
    present = to_dict(ModelConfig(model.name, {**model_info(model.name).options, **model.options}))
    options = {name: present["options"].get(name) for name in built_with}
    return changed_settings(built_with, options, "model.options.")


def now() -> str:
    """The time, in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def json_by_line(values: Mapping[str, Any]) -> str:
    """JSON with one line for each key at the top: short, and readable in a comparison."""
    lines = [
        ": ".join(json.dumps(part, allow_nan=False) for part in item) for item in values.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _read(path: Path, kinds: Mapping[str, tuple[Any, str]]) -> dict[str, Any] | None:
    try:
        values = read_json(path)
    except FileNotFoundError:
        return None
    if values.get("format") != RESULT_FORMAT:
        raise ValueError(
            f"{path}: result format {values.get('format')!r} is not the format {RESULT_FORMAT} of "
            "this besselnet-lab"
        )
    check_keys(path, values, kinds)
    return values


def _read_result(path: Path) -> dict[str, Any] | None:
    values = _read(path, _RESULT)
    if values is None:
        return None
    if not 0 <= values["accuracy"] <= 1:
        raise ValueError(f"{path}: 'accuracy' is {values['accuracy']!r}, must be in [0, 1]")
    if not all(isinstance(note, str) for note in values["notes"]):
        raise ValueError(f"{path}: 'notes' must be a list of strings")
    if not isinstance(values["model"].get("options", {}), dict):
        raise ValueError(f"{path}: 'model.options' must be an object")
    if not isinstance(values["config"]["model"].get("name", ""), str):
        raise ValueError(f"{path}: 'config.model.name' must be a string")
    for name, kinds in _OPTIONAL.items():
        if name in values:
            check_keys(path, values, kinds)
    for name in _ROTATION if "rotation" in values else ():
        share = values["rotation"][name]
        if not 0 <= share <= 1:
            raise ValueError(f"{path}: 'rotation.{name}' is {share!r}, must be in [0, 1]")
    if "scores" in values:
        _check_scores(path, values)
    if "robust" in values:
        check_robust(path, values)
    curve = values["curve"]
    for name, numbers in curve.items():
        good = isinstance(numbers, list) and len(numbers) == len(curve["epoch"]) > 0
        if not good or not all(type(n) in (int, float) and abs(n) < 1e18 for n in numbers):
            raise ValueError(
                f"{path}: 'curve.{name}' must be a list of one finite number per epoch"
            )
    if curve["step"][-1] <= 0:
        raise ValueError(f"{path}: 'curve.step' ends with {curve['step'][-1]}, must be above 0")
    return values


def _check_scores(path: Path, values: Mapping[str, Any]) -> None:
    """Refuse scores of masks that a report cannot show."""
    scores, rotation = values["scores"], values.get("rotation", {})
    sections: list[tuple[str, Any, tuple[str, ...]]] = [("scores", scores, _SCORES)]
    for name, table in scores["classes"].items():
        sections.append((f"scores.classes.{name}", table, ("dice", "iou", "boundary_f1")))
    if "instances" in scores:
        sections.append(("scores.instances", scores["instances"], _INSTANCES))
    if "foreground" in rotation:
        sections.append(("rotation.foreground", rotation["foreground"], _ROTATION))
    if "quarter_turns_changed" in rotation:
        sections.append(("rotation", rotation, ("quarter_turns_changed",)))
    for where, table, names in sections:
        if not isinstance(table, dict):
            raise ValueError(f"{path}: {where!r} must be an object")
        for name in names:
            share = table.get(name)
            number = isinstance(share, int | float) and not isinstance(share, bool)
            if share is not None and not (number and 0 <= share <= 1):
                raise ValueError(
                    f"{path}: '{where}.{name}' is {reprlib.repr(share)}: must be in [0, 1], or null"
                )


def _is_failure(path: Path) -> bool:
    return path.name.endswith(".failed.json")
