"""Typed configuration: dataclasses whose values come from Python, a TOML or JSON file, or `key=value`.

Every section is a frozen dataclass that checks its own values. Unknown keys are refused with the
nearest known one. A field that may be None is None by default, so that a TOML file, which has no
null, can say everything by leaving a key out.
"""

import difflib
import hashlib
import json
import sys
import types
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# The layout of a run folder. It changes when an older besselnet could not read a newer run.
RUN_FORMAT = 1

T = TypeVar("T")


def _setting(default: Any, text: str) -> Any:
    """A dataclass field with a default and the sentence that `describe_settings` shows for it."""
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class TrainConfig:
    """How to train: any module, any batches. The defaults are the paper's schedule."""

    epochs: int = _setting(50, "passes over the training images")
    batch_size: int = _setting(64, "images in a batch, over all processes together")
    accumulate: int = _setting(1, "batches whose gradients are averaged into one step")
    optimizer: Literal["adam", "adamw", "sgd"] = _setting("adam", "the optimiser")
    learning_rate: float = _setting(1e-3, "the highest learning rate, reached after the warm-up")
    momentum: float = _setting(0.9, "momentum of sgd")
    weight_decay: float = _setting(0.0, "weight decay (decoupled for adamw)")
    schedule: Literal["cosine", "constant"] = _setting("cosine", "after the warm-up")
    warmup: float = _setting(0.2, "share of the steps in which the learning rate rises from 0")
    clip_norm: float | None = _setting(None, "largest norm of the gradient; unset: no clipping")
    label_smoothing: float = _setting(0.0, "share of each label spread over all classes")
    class_weights: Literal["balanced"] | tuple[float, ...] | None = _setting(
        None, '"balanced" (inverse class frequency), or one weight per class; unset: all equal'
    )
    ema_decay: float | None = _setting(
        None, "decay of a moving average of the weights, used for evaluation and as the result"
    )
    keep: Literal["last", "best"] = _setting("last", "weights to end with (best needs validation)")
    monitor: Literal["val_loss", "val_accuracy"] = _setting(
        "val_loss", "what `keep` and `patience` look at"
    )
    patience: int | None = _setting(
        None, "stop after this many epochs without a better `monitor`; unset: never"
    )
    seed: int = _setting(0, "fixes the first weights, the order of the images, dropout")
    device: Literal["auto", "cpu", "cuda", "mps"] = _setting("auto", "where to compute")
    devices: int = _setting(1, "processes (GPUs, or CPU processes) on each machine")
    nodes: int = _setting(1, "machines")
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = _setting("32-true", "arithmetic")
    checkpoint_steps: int | None = _setting(
        None, "save the state every so many steps, besides the end of each epoch"
    )
    tensorboard: bool = _setting(False, "write TensorBoard files as well as metrics.csv")

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "accumulate", "devices", "nodes"):
            _require(self, name, getattr(self, name) >= 1, "at least 1")
        for name in ("patience", "checkpoint_steps"):
            value = getattr(self, name)
            _require(self, name, value is None or value >= 1, "at least 1, or unset")
        _require(self, "learning_rate", self.learning_rate > 0, "above 0")
        _require(self, "momentum", 0 <= self.momentum < 1, "in [0, 1)")
        _require(self, "weight_decay", self.weight_decay >= 0, "0 or more")
        _require(self, "warmup", 0 <= self.warmup < 1, "in [0, 1): a share of all the steps")
        _require(self, "clip_norm", self.clip_norm is None or self.clip_norm > 0, "above 0")
        _require(self, "label_smoothing", 0 <= self.label_smoothing < 1, "in [0, 1)")
        _require(self, "ema_decay", self.ema_decay is None or 0 < self.ema_decay < 1, "in (0, 1)")
        _require(self, "seed", 0 <= self.seed < 2**63, "in [0, 2**63)")
        if isinstance(self.class_weights, tuple):
            positive = all(weight > 0 for weight in self.class_weights)
            _require(self, "class_weights", positive and self.class_weights, "all above 0")


@dataclass(frozen=True)
class DataConfig:
    """Which images, and how they are turned and mirrored while training."""

    source: str = _setting("", "name of a data set, or path of a folder or file of images")
    root: str | None = _setting(None, "folder for downloads; unset: the user's cache")
    image_size: int | None = _setting(None, "resize images to this; unset: as they are")
    seed: int = _setting(0, "fixes the split into train, validation and test")
    augment: tuple[Literal["rotate", "reflect"], ...] = _setting(
        (), "random turns and reflections of the training images"
    )
    interpolation: Literal["cubic", "bilinear", "nearest"] = _setting(
        "cubic", "how turned images are sampled, in training and in `evaluate --turned`"
    )
    options: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "further options of the data set"}
    )

    def __post_init__(self) -> None:
        _require(self, "image_size", self.image_size is None or self.image_size > 0, "above 0")
        _require(self, "seed", 0 <= self.seed < 2**63, "in [0, 2**63)")


@dataclass(frozen=True)
class ModelConfig:
    """Which network."""

    name: str = _setting("", "name of a registered network (see `besselnet.models.list_models`)")
    options: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "further options of the network"}
    )


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides the outcome of a run."""

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    format: int = _setting(RUN_FORMAT, "layout of the run folder; leave it alone")

    def __post_init__(self) -> None:
        if self.format != RUN_FORMAT:
            raise ValueError(
                f"run format {self.format} is not the format {RUN_FORMAT} of this besselnet: "
                "use the version that wrote it"
            )


def to_dict(config: Any) -> dict[str, Any]:
    """The config as nested dicts of JSON values; `from_dict(type(config), ...)` undoes it."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(config)))
    return plain


def from_dict(kind: type[T], values: Mapping[str, Any], where: str = "") -> T:
    """Build the dataclass `kind` from nested mappings, checking every key and type."""
    known = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    hints = get_type_hints(kind)
    checked = {}
    for key, value in values.items():
        if key not in known:
            raise ValueError(f"unknown setting {where + key!r}{_nearest(key, known, where)}")
        checked[key] = _convert(value, hints[key], where + key)
    return kind(**checked)


def read_config(path: str | Path) -> dict[str, Any]:
    """The mapping in a TOML or JSON file, not yet checked."""
    path = Path(path)
    if path.suffix not in (".toml", ".json"):
        raise ValueError(f"config file must end in .toml or .json, got {str(path)!r}")
    try:
        text = path.read_text(encoding="utf-8")
        values = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path}: expected a table of settings, got {type(values).__name__}")
    return values


def override(values: Mapping[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """`values` with each `a.b=value` set. The value is read as TOML; a bare word is a string.

    `none` unsets. The result is not checked; `from_dict` does that.
    """
    result: dict[str, Any] = json.loads(json.dumps(values))
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals or not all(key.split(".")):
            raise ValueError(f"setting must look like section.key=value, got {assignment!r}")
        *sections, last = key.strip().split(".")
        table = result
        for section in sections:
            table = table.setdefault(section, {})
            if not isinstance(table, dict):
                raise ValueError(f"setting {key!r}: {section!r} is a value, not a section")
        table[last] = _parse_value(text.strip())
    return result


def config_hash(config: Any) -> str:
    """Hexadecimal SHA-256 of the config: equal for equal configs, in any process."""
    canonical = json.dumps(to_dict(config), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def changed_settings(old: Mapping[str, Any], new: Mapping[str, Any], where: str = "") -> list[str]:
    """The settings in which two configs, as dicts, differ: `["train.epochs: 50 -> 60", ...]`."""
    changes = []
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            changes += changed_settings(before, after, f"{where}{key}.")
        elif before != after:
            changes.append(f"{where}{key}: {before!r} -> {after!r}")
    return changes


def describe_settings(kind: Any = RunConfig, where: str = "") -> list[tuple[str, str, str]]:
    """(key, default, meaning) of every setting, in the order of definition."""
    rows: list[tuple[str, str, str]] = []
    for f in fields(kind):
        if is_dataclass(f.type):
            rows += describe_settings(f.type, f"{where}{f.name}.")
        else:
            default = f.default if f.default_factory is not dict else {}
            shown = "unset" if default is None else json.dumps(default)
            rows.append((where + f.name, shown, f.metadata["help"]))
    return rows


def _require(config: object, name: str, satisfied: object, allowed: str) -> None:
    if not satisfied:
        raise ValueError(f"{name} must be {allowed}, got {getattr(config, name)!r}")


def _nearest(key: str, known: Iterable[str], where: str) -> str:
    close = difflib.get_close_matches(key, known, n=1)
    if close:
        return f": did you mean {where + close[0]!r}?"
    return f": known are {', '.join(sorted(known))}"


def _parse_value(text: str) -> Any:
    if text.lower() == "none":
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _convert(value: Any, hint: Any, key: str) -> Any:
    """`value` as the type `hint`, or a ValueError that names `key`."""
    origin, arguments = get_origin(hint), get_args(hint)
    if is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise ValueError(f"{key} must be a section of settings, got {value!r}")
        return from_dict(hint, value, f"{key}.")  # type: ignore[arg-type]
    if origin in (Union, types.UnionType):
        for choice in arguments:
            try:
                return _convert(value, choice, key)
            except ValueError:
                continue
    elif origin is Literal:
        if value in arguments and type(value) in {type(argument) for argument in arguments}:
            return value
    elif origin is tuple:
        if isinstance(value, list | tuple):
            return tuple(
                _convert(item, arguments[0], f"{key}[{i}]") for i, item in enumerate(value)
            )
    elif origin is dict:
        if isinstance(value, Mapping):
            return dict(value)
    elif hint is float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    elif type(value) is hint:
        return value
    raise ValueError(f"{key} must be {_in_words(hint)}, got {value!r}")


def _in_words(hint: Any) -> str:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_in_words(argument) for argument in arguments)
    if origin is Literal:
        return " or ".join(repr(argument) for argument in arguments)
    if origin is tuple:
        return f"a list of {_in_words(arguments[0])}"
    names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
    return "unset" if hint is type(None) else names.get(hint, "a section of settings")
