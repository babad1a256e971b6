"""Typed configuration: dataclasses whose values come from Python, a TOML or JSON file, or `key=value`.

Every section is a frozen dataclass that checks its own values. Unknown keys raise an error with the
nearest known one. A field that can be None is None by default, so a TOML file, which has no null, leaves
the key out.
"""

import difflib
import hashlib
import json
import sys
import types
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from besselnet.checks import LARGEST_SIDE, check_count, check_finite, check_number, check_seed
from besselnet.data import AugmentName, Task
from besselnet.models import (
    CONFIG_FILE,
    check_options,
    list_models,
    list_pretrained,
    model_info,
    packaged_folder,
    read_network_config,
)
from besselnet.untrusted import check_file, read_json, reading

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# The layout of a run folder. It changes when one besselnet could not read, or would misread, what another
# wrote. Of format 1 are the runs of besselnet 0.1.0, which hold only those options of a network that were
# given, and its weights in another order.
RUN_FORMAT = 2
# Of a class. Losses are float32: their sums over a batch stay finite, and above 0.
LEAST_WEIGHT = 1e-30

T = TypeVar("T")


def _setting(default: Any, text: str) -> Any:
    """A dataclass field with a default and the sentence that `describe_settings` shows for it."""
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class TrainConfig:
    """Settings of training, for any module and any batches. The defaults are the schedule of the paper."""

    epochs: int = _setting(50, "number of passes over the training images")
    batch_size: int = _setting(64, "global batch size, over all processes")
    accumulate: int = _setting(1, "number of batches for gradient accumulation")
    optimizer: Literal["adam", "adamw", "sgd"] = _setting("adam", "the optimiser")
    learning_rate: float = _setting(1e-3, "maximum learning rate, reached after the warm-up")
    momentum: float = _setting(0.9, "momentum of SGD")
    weight_decay: float = _setting(0.0, "weight decay (decoupled for AdamW)")
    schedule: Literal["cosine", "constant"] = _setting(
        "cosine", "learning rate schedule after the warm-up"
    )
    warmup: float = _setting(0.2, "fraction of the steps in which the learning rate rises from 0")
    clip_norm: float | None = _setting(None, "maximum gradient norm; unset: no clipping")
    label_smoothing: float = _setting(
        0.0, "label smoothing: fraction of each label spread over all classes"
    )
    class_weights: Literal["balanced"] | tuple[float, ...] | None = _setting(
        None, '"balanced" (inverse class frequency), or one weight per class; unset: all equal'
    )
    adversarial: float | None = _setting(
        None,
        "adversarial training (PGD) with this maximum change of a pixel (0 to 1); unset: off",
    )
    ema_decay: float | None = _setting(
        None,
        "decay of the exponential moving average of the weights (the final weights); unset: off",
    )
    keep: Literal["last", "best"] = _setting("last", "final weights (best needs validation images)")
    monitor: Literal["val_loss", "val_accuracy", "val_iou", "val_r2", "val_f1"] = _setting(
        "val_loss", "metric for `keep` and `patience`: the loss, or the score of the task"
    )
    patience: int | None = _setting(
        None, "early stopping after this many epochs without improvement of `monitor`; unset: off"
    )
    seed: int = _setting(0, "random seed for initial weights, order of the images and dropout")
    device: Literal["auto", "cpu", "cuda", "mps"] = _setting(
        "auto", "device; auto is a GPU if available"
    )
    devices: int = _setting(1, "processes (GPUs, or CPU processes) per machine")
    nodes: int = _setting(1, "number of machines")
    sync_norm: bool | None = _setting(
        None, "synchronised batch normalisation; unset: if a process has fewer than 16 images"
    )
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = _setting(
        "32-true", "numerical precision"
    )
    checkpoint_steps: int | None = _setting(
        None, "also save a checkpoint every this many steps; unset: only after each epoch"
    )
    tensorboard: bool = _setting(False, "write TensorBoard files in addition to metrics.csv")

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "accumulate", "devices", "nodes"):
            check_count(name, getattr(self, name))
        for name in ("patience", "checkpoint_steps"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        check_number("learning_rate", self.learning_rate, above=0)
        check_number("weight_decay", self.weight_decay, least=0)
        for name in ("momentum", "warmup", "label_smoothing"):
            check_number(name, getattr(self, name), least=0, below=1)
        if self.clip_norm is not None:
            check_number("clip_norm", self.clip_norm, above=0)
        if self.ema_decay is not None:
            check_number("ema_decay", self.ema_decay, above=0, below=1)
        if self.adversarial is not None:
            check_number("adversarial", self.adversarial, least=0, most=1)
        check_seed(self.seed)
        if isinstance(self.class_weights, tuple):
            if not self.class_weights:
                raise ValueError("class_weights=(): must be one weight per class")
            for i, weight in enumerate(self.class_weights):
                check_number(
                    f"class_weights[{i}]", weight, least=LEAST_WEIGHT, most=1 / LEAST_WEIGHT
                )


@dataclass(frozen=True)
class DataConfig:
    """Settings of the images: source, splits, sampling and augmentation."""

    source: str = _setting("", "name of a data set, or path of a folder or file of images")
    root: str | None = _setting(
        None, "folder with published files; unset: the cache folder, with downloads"
    )
    image_size: int | None = _setting(None, "resize images to this size; unset: chosen, if needed")
    seed: int = _setting(0, "random seed for the split into train, val and test")
    augment: tuple[AugmentName, ...] = _setting(
        (), f"augmentation of the training images: {', '.join(get_args(AugmentName))}"
    )
    interpolation: Literal["cubic", "bilinear", "nearest"] = _setting(
        "cubic", "interpolation of rotated images, in training and in `evaluate --rotated`"
    )
    border: Literal["zeros", "reflect"] = _setting("zeros", "pixels outside the frame in `augment`")
    balance: bool = _setting(False, "sample every class equally often")
    folds: int | None = _setting(None, "number of folds for cross-validation")
    fold: int | None = _setting(None, "the fold that this run tests on, from 1; unset: all folds")
    patch: int | None = _setting(
        None,
        "patch size for training on larger images with masks; unset: whole images",
    )
    patches_per_image: int = _setting(1, "patches per image and epoch")
    task: Literal["classify", "segment", "regress", "multilabel"] | None = _setting(
        None, "kind of labels, required if ambiguous; unset: detected"
    )
    cache: Literal["always", "never"] | None = _setting(
        None, "keep decoded images on disk (always) or in memory (never); unset: by their size"
    )
    options: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "options of the data set"}
    )

    def __post_init__(self) -> None:
        if self.folds is not None:
            check_count("folds", self.folds, least=2)
        if self.fold is not None:
            if self.folds is None:
                raise ValueError(f"fold={self.fold!r}: must be unset without folds")
            check_count("fold", self.fold, most=self.folds)
        for name in ("image_size", "patch"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), most=LARGEST_SIDE)
        check_count("patches_per_image", self.patches_per_image)
        check_seed(self.seed)
        check_finite("options", self.options)
        for name in ("root", "image_size", "seed", "name_or_path", "cache"):
            if name in self.options:
                raise ValueError(f"options.{name}: must not be an option of a data set")


@dataclass(frozen=True)
class ModelConfig:
    """Settings of the network."""

    name: str = _setting("", "name of a registered network (see `besselnet.models.list_models`)")
    options: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "option of the network"}
    )
    weights: str | None = _setting(
        None,
        "start from this trained network: a run folder, a folder of `save_network`, or the name of "
        "pretrained weights, such as besselnet_small/mnist-rot",
    )

    def __post_init__(self) -> None:
        check_finite("options", self.options)


@dataclass(frozen=True)
class RunConfig:
    """All settings of a run, which determine its result."""

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    format: int = _setting(RUN_FORMAT, "format of the run folder; do not change")

    def __post_init__(self) -> None:
        check_format("format", self.format)


def check_format(where: object, found: object, wanted: object = RUN_FORMAT) -> None:
    """Refuse what is not of the format `wanted`; `where` says what was read."""
    if found != wanted:
        writer = "besselnet 0.1.0" if found in (1, "1") else "the besselnet that wrote it"
        raise ValueError(
            f"{where}: format {found!r} is not the format {wanted!r} of this besselnet: use {writer}"
        )


def make_config(
    *values: RunConfig | Mapping[str, Any] | str | Path, settings: Iterable[str] = ()
) -> RunConfig:
    """Return the complete configuration of a run, merged from several sources.

    Settings that are not given come from the model (`besselnet.models.model_info(name).training`), or from
    `TrainConfig`. All options of the model are included, so a changed default in a later version does not
    change the run. The default model is the first of `besselnet.models.list_models()`; with
    `data.task="segment"`, the first for segmentation.

    With `model.weights`, the model and its options are those of the trained network.

    Args:
        values: configurations, nested mappings, TOML or JSON files; later ones override earlier ones. Model
            options are dropped if a later value selects another model.
        settings: assignments such as ``"train.epochs=5"``, which override all of them.

    >>> config = make_config({"data": {"source": "photos"}}, settings=["train.epochs=5"])
    >>> config.model.name, config.train.epochs
    ('besselnet_small', 5)
    """
    merged = merge_settings(*values, settings=settings)
    config = from_dict(RunConfig, merged)
    model = replace(config.model, name=config.model.name or default_model(config.data.task))
    training = {**model_info(model.name).training, **merged.get("train", {})}
    train = from_dict(TrainConfig, training, "train.")
    return resolve_options(replace(config, model=model, train=train))


def default_model(task: Task | None) -> str:
    """The first network that answers as the task asks for: for each pixel, or for the image."""
    answers = "pixels" if task == "segment" else "image"
    found = [name for name in list_models() if model_info(name).answers == answers]
    if not found:
        raise ValueError(
            "model.name='': must be given, because no network is registered for segmentation"
        )
    return found[0]


def merge_settings(
    *values: RunConfig | Mapping[str, Any] | str | Path, settings: Iterable[str] = ()
) -> dict[str, Any]:
    """Merge the arguments of `make_config` to nested settings, without defaults and checks."""
    merged: dict[str, Any] = {}
    for layer in (*values, override({}, settings)):
        if isinstance(layer, RunConfig):
            layer = to_dict(layer)
        merged = _merge(merged, read_config(layer) if isinstance(layer, str | Path) else layer)
    model = merged.get("model")
    if isinstance(model, Mapping) and model.get("weights") is not None:
        merged = {**merged, "model": _with_weights(model)}
    return merged


def network_folder(folder: str | Path) -> Path:
    """Return the folder of the network in a run folder; any other folder is that of a network itself.

    A name of `list_pretrained` stands for the weights that come with besselnet, if there is no such folder.
    """
    if not Path(folder).exists():
        known = list_pretrained()
        if str(folder) in known:
            return packaged_folder(str(folder))
        raise ValueError(
            f"model.weights={str(folder)!r}: must be a folder with a trained network, or one of: "
            f"{', '.join(known)}"
        )
    inside = Path(folder) / "model"
    return inside if (inside / CONFIG_FILE).exists() else Path(folder)


def _with_weights(model: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a model with name and options of the trained network that they name."""
    weights = model["weights"]
    if not isinstance(weights, str):
        raise ValueError(f"model.weights={weights!r}: must be a string")
    trained = read_network_config(network_folder(weights))
    given = {"name": model.get("name") or trained["name"], **(model.get("options") or {})}
    # Options that are newer than the weights are by default.
    defaults = model_info(trained["name"]).options
    known = {"name": trained["name"], **defaults, **trained["options"]}
    for key, value in given.items():
        if key not in known or _plain({key: value}) != {key: known[key]}:
            setting = "model.name" if key == "name" else f"model.options.{key}"
            raise ValueError(
                f"{setting}={value!r}: must be unset, because the network in {weights} has "
                f"{known.get(key)!r}"
            )
    return {**model, "name": trained["name"], "options": trained["options"]}


def resolve_options(config: RunConfig) -> RunConfig:
    """`config` with all options of its model, also those left at their defaults, as JSON values."""
    info = check_options(config.model.name, config.model.options)
    plain = _plain({**info.options, **config.model.options})
    return replace(config, model=replace(config.model, options=plain))


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` over `below`, section by section."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        if not (isinstance(old, Mapping) and isinstance(value, Mapping)):
            merged[key] = value
            continue
        if key == "model" and len({part["name"] for part in (old, value) if "name" in part}) == 2:
            old = {name: kept for name, kept in old.items() if name != "options"}
        merged[key] = _merge(old, value)
    return merged


def to_dict(config: Any) -> dict[str, Any]:
    """Convert a config to nested dicts of JSON values, the inverse of `from_dict(type(config), ...)`."""
    return _plain(asdict(config))


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same as JSON values."""
    plain: dict[str, Any] = json.loads(json.dumps(values, allow_nan=False))
    return plain


def from_dict(kind: type[T], values: Mapping[str, Any], where: str = "") -> T:
    """Build the dataclass `kind` from nested mappings, checking every key and type."""
    hints = get_type_hints(kind)
    checked = {}
    for key, value in values.items():
        if key not in hints:
            close = difflib.get_close_matches(key, hints, n=1)
            known = f"must be one of {', '.join(sorted(hints))}"
            hint = f"did you mean {where + close[0]!r}?" if close else known
            raise ValueError(f"unknown setting {where + key!r}: {hint}")
        checked[key] = _convert(value, hints[key], where + key)
    try:
        return kind(**checked)
    except ValueError as error:
        raise ValueError(f"{where}{error}") from None


def read_config(path: str | Path) -> dict[str, Any]:
    """Read a TOML or JSON file, without checks."""
    path = Path(path)
    if path.suffix not in (".toml", ".json"):
        raise ValueError(f"config file must end in .toml or .json, got {str(path)!r}")
    if path.suffix == ".json":
        return read_json(path)
    check_file(path)
    with reading(path):
        return tomllib.loads(path.read_text(encoding="utf-8"))


def override(values: Mapping[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """Return `values` with each `a.b=value` set. The value is parsed as TOML; a bare word is a string.

    `none` unsets a value. The result is not checked; `from_dict` does that.
    """
    result = _plain(values)
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals or not all(key.split(".")):
            raise ValueError(f"setting must be of the form section.key=value, got {assignment!r}")
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
    canonical = json.dumps(to_dict(config), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def changed_settings(old: Mapping[str, Any], new: Mapping[str, Any], where: str = "") -> list[str]:
    """List the differences of two configs, given as dicts: `["train.epochs: 50 -> 60", ...]`."""
    changes = []
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            changes += changed_settings(before, after, f"{where}{key}.")
        elif before != after:
            changes.append(f"{where}{key}: {before!r} -> {after!r}")
    return changes


def describe_settings(config: Any = None, where: str = "") -> list[tuple[str, str, str]]:
    """Return (key, value, description) of every setting of `config`, in the order of definition.

    The default `config` is `make_config()`.
    """
    config = config or make_config()
    rows: list[tuple[str, str, str]] = []
    for f in fields(config):
        value = getattr(config, f.name)
        if is_dataclass(value):
            rows += describe_settings(value, f"{where}{f.name}.")
            continue
        # One row for each option, and one for options that there are none of.
        inner = {f".{key}": one for key, one in value.items()} if isinstance(value, dict) else {}
        for key, one in (inner or {"": value}).items():
            shown = "unset" if one is None else json.dumps(one, allow_nan=False)
            rows.append((f"{where}{f.name}{key}", shown, f.metadata["help"]))
    return rows


def _parse_value(text: str) -> Any:
    if text.lower() == "none":
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):  # brackets a thousand deep
        return text


def _convert(value: Any, hint: Any, key: str) -> Any:
    """`value` as the type `hint`, or a ValueError that names `key`."""
    origin, arguments = get_origin(hint), get_args(hint)
    if is_dataclass(hint):
        if isinstance(value, Mapping):
            return from_dict(hint, value, f"{key}.")  # type: ignore[arg-type]
    elif origin in (Union, types.UnionType):
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
            kind = arguments[0]
            return tuple(_convert(one, kind, f"{key}[{i}]") for i, one in enumerate(value))
    elif origin is dict:
        if isinstance(value, Mapping):
            return dict(value)
    elif hint is float:
        if isinstance(value, float) or (type(value) is int and abs(value) < 2**63):
            return float(value)
    elif type(value) is hint:
        return value
    raise ValueError(f"{key}={value!r}: must be {_in_words(hint)}")


def _in_words(hint: Any) -> str:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_in_words(argument) for argument in arguments)
    if origin is Literal:
        return " or ".join(repr(argument) for argument in arguments)
    if origin is tuple:
        return f"a list, each item {_in_words(arguments[0])}"
    names = {int: "an integer", float: "a number", str: "a string", bool: "true or false"}
    return "unset" if hint is type(None) else names.get(hint, "a section of settings")
