"""A run: configuration in, run folder out.

config.json       all settings that determine the result (`RunConfig`), including the network options
environment.json  versions, kind of machine, seed, commit
log.txt, metrics.csv
checkpoint.safetensors   the state of the training, for resuming, and a digest of its images
model/config.json, model/model.safetensors   the trained network (`besselnet.models.save_network`)
model/trust.safetensors  for classes with validation images: calibrated trust (`besselnet.robust`)
results.json      results on the validation and test images
curves.png, confusion.png (for classes and masks), overlays.png (masks on images), values.png
.lock             lock of the process that writes to the folder
"""

import reprlib
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from besselnet.atomic import write_json
from besselnet.data import ImageSet, Splits, resolve_reading
from besselnet.locking import hold_folder
from besselnet.models import (
    CONFIG_FILE,
    adapt_network,
    create_model,
    load_network,
    model_info,
    read_network_config,
    save_network,
)
from besselnet.robust import Trust, load_trust, save_trust
from besselnet.train._adversarial import check_adversarial
from besselnet.train._config import (
    RunConfig,
    changed_settings,
    check_format,
    config_hash,
    default_model,
    from_dict,
    network_folder,
    read_config,
    resolve_options,
    to_dict,
)
from besselnet.train._digest import digest_images
from besselnet.train._environment import describe_environment
from besselnet.train._evaluate import evaluate, with_objects
from besselnet.train._fit import fit
from besselnet.train._images import check_source, load_images, make_batches
from besselnet.train._process import (
    check_processes,
    choose_device,
    is_first_process,
    launch,
)
from besselnet.train._tasks import Classify, LearningTask, read_task, task_of
from besselnet.train._trust import TRUST_COLUMNS, describe_trust, explain_no_trust, fit_run_trust
from besselnet.untrusted import check_keys, read_json, reading


@dataclass(frozen=True)
class Run:
    """A finished run: the folder, its configuration and the trained network, in eval mode.

    Attributes:
        in_channels, image_size, classes: input and output of the network.
        learned: the task.
        trust: when predictions are sure; None without classes or validation images.
    """

    folder: Path
    config: RunConfig
    model: nn.Module
    in_channels: int
    image_size: int
    classes: tuple[str, ...]
    learned: LearningTask = field(default_factory=Classify)
    trust: Trust | None = field(default=None, repr=False)

    @property
    def task(self) -> str:
        """Name of the task: "classify", "segment", "regress" or "multilabel"."""
        return self.learned.name

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of `predict_rows`, besides "image" and "error"."""
        return self.learned.columns if self.trust is None else tuple(TRUST_COLUMNS)

    def untrained_model(self) -> nn.Module:
        """Return the network as it was before training, in eval mode, on the CPU."""
        return build_model(self.config, self.in_channels, len(self.classes), self.image_size).eval()

    def load_images(self) -> Splits:
        """Load the images of the run, at the input size of its network."""
        if self.learned.answers == "pixels":
            # Of any size, and never resized unasked.
            return load_images(self.config.data)
        return load_images(replace(self.config.data, image_size=self.image_size))

    def results(self) -> dict[str, Any]:
        """Return the results of `train_run` on the test (or validation) images; empty if there were none."""
        number = (int | float, "a finite number")
        shown: dict[str, tuple[Any, str]] = {
            **dict.fromkeys((self.learned.score, "loss"), number),
            "images": (int, "an integer"),
        }
        path = self.folder / "results.json"
        found = read_json(path) if path.exists() else {}
        for part, result in found.items():
            if not isinstance(result, dict):
                raise ValueError(f"{path}: {part!r} is {reprlib.repr(result)}: must be an object")
            check_keys(f"{path}: {part!r}", result, shown)
        return found


def default_folder(config: RunConfig) -> Path:
    """Return `runs/DATA-MODEL-HASH`, where the hash depends only on the configuration."""
    source = Path(config.data.source).name or "data"
    return Path("runs") / f"{source}-{config.model.name}-{config_hash(config)[:8]}"


def build_model(
    config: RunConfig, in_channels: int, num_classes: int, image_size: int
) -> nn.Module:
    """Build the network that the training of `config` starts from; the same seed gives the same weights."""
    with torch.random.fork_rng():
        torch.manual_seed(config.train.seed)
        if config.model.weights is not None:
            return _trained_model(config.model.weights, in_channels, num_classes, image_size)
        try:
            return create_model(
                config.model.name,
                in_channels=in_channels,
                num_classes=num_classes,
                image_size=image_size,
                **config.model.options,
            )
        except (TypeError, RuntimeError, OverflowError) as error:
            # Of a network that does not check what it is given.
            raise ValueError(
                f"model.options={config.model.options}: {config.model.name!r} cannot be built: {error}"
            ) from error


def _trained_model(folder: str, in_channels: int, num_classes: int, image_size: int) -> nn.Module:
    model = load_network(network_folder(folder))
    try:
        adapted = adapt_network(
            model, in_channels=in_channels, num_classes=num_classes, image_size=image_size
        )
    except ValueError as error:
        raise ValueError(f"model.weights={folder!r}: {error}") from None
    return adapted.train()


def train_network(config: RunConfig, images: Splits, *, quiet: bool = False) -> nn.Module:
    """Train the network of `config` on `images` and return it in eval mode, without a run folder or a test.

    Args:
        config: from `recommend_config` or `make_config`; its `data.source` may be empty.
        images: the images; validation images are used if `config.train.keep` is "best".
        quiet: print nothing.
    """
    config = resolve_options(config)
    splits, model = prepare(config, images)
    val = None if splits.val is None else make_batches(config, splits.val)
    fit(
        model,
        make_batches(config, splits.train, training=True),
        val,
        config.train,
        labels=splits.train.labels,
        task=task_of(splits.train),
        quiet=quiet,
    )
    return model.eval()


def train_run(
    config: RunConfig,
    folder: str | Path,
    *,
    images: Splits | None = None,
    resume: bool = False,
    quiet: bool = False,
) -> Run:
    """Train the network of `config` on its images, write everything to `folder`, and return the run.

    Args:
        config: from `make_config`, or a `RunConfig`, which is used unchanged, without the recommended
            training settings of the model.
        folder: a new folder, or with `resume` that of an earlier call with the same `config`.
        images: images for training and testing. Default: loaded from `config.data`.
        resume: continue an interrupted call. Raises `ValueError` if the images have changed.
        quiet: print nothing.

    Raises:
        Busy: if another process is writing to `folder` (`besselnet.locking`).
    """
    folder = Path(folder)
    # Before further processes exist, so that a mistake ends in one clear message.
    if images is None:
        check_source(config.data)
    if not config.model.name:
        raise ValueError("model.name='': must be a network, see besselnet.models.list_models()")
    config = _with_reading(resolve_options(config))
    check_processes(config.train)
    # The others of several processes write nothing.
    with hold_folder(folder) if is_first_process() else nullcontext():
        return _fill(config, folder, images, resume, quiet)


def _fill(config: RunConfig, folder: Path, images: Splits | None, resume: bool, quiet: bool) -> Run:
    """`train_run`, in a folder that no other process writes to."""
    prepared = None
    if is_first_process():
        _check_folder(config, folder, resume)
        # The others wait for this one in `launch`: it downloads alone what all read.
        prepared = prepare(config, images)
    fabric = launch(config.train)
    splits, model = prepared or prepare(config, images)
    train, task = splits.train, task_of(splits.train)
    if fabric.is_global_zero:
        about = {**describe_environment(), "seed": config.train.seed}
        write_json(folder / "environment.json", about)
        write_json(folder / "config.json", to_dict(config))
        for line in filter(None, (splits.provenance.stored, splits.provenance.fitted)):
            if not quiet:
                print(line, flush=True)
    batches = partial(
        make_batches,
        config,
        device=fabric.device,
        rank=fabric.global_rank,
        world_size=fabric.world_size,
    )
    history = fit(
        model,
        batches(train, training=True),
        None if splits.val is None else batches(splits.val),
        config.train,
        folder,
        resume=resume,
        fabric=fabric,
        labels=train.labels,
        digest=digest_images(splits),
        task=task,
        quiet=quiet,
    )
    if fabric.is_global_zero:
        # At once: whatever fails from here on, the network is there.
        save_network(model, folder / "model", classes=train.classes, about=task.about())
    results = {
        name: evaluate(model, batches(part), task=task, autocast=fabric.autocast)
        for name, part in splits.parts().items()
        if name != "train"
    }
    if fabric.is_global_zero:
        for name, result in results.items():
            # By this process alone, which needs all batches.
            whole = make_batches(config, splits.parts()[name], device=fabric.device)
            results[name] = with_objects(result, model, whole, fabric.autocast)
        found = {name: result.to_dict(train.classes) for name, result in results.items()}
        if found:
            write_json(folder / "results.json", found)
        # matplotlib takes half a second to import.
        from besselnet.drawing import attempt, draw_curves

        attempt(draw_curves, folder / "curves.png", history.rows, task.score)
        if results:
            tested = "test" if "test" in results else "val"
            task.draw(folder, results[tested], model, splits.parts()[tested])
    trust = _fit_trust(config, folder, splits, model, quiet) if fabric.is_global_zero else None
    fabric.barrier()
    side = _side(config, train)
    return Run(folder, config, model.eval(), train.channels, side, train.classes, task, trust)


def _fit_trust(
    config: RunConfig, folder: Path, splits: Splits, model: nn.Module, quiet: bool
) -> Trust | None:
    """The trust in the network of a folder, written beside it; None where the labels or parts allow none."""
    if splits.train.task != "classify":
        return None
    if splits.val is None:
        trust, line = None, explain_no_trust(config.data.source)
    else:
        trust = fit_run_trust(model, splits.train, splits.val, config.train.batch_size)
        save_trust(trust, folder / "model", _weights_digest(folder))
        line = describe_trust(trust)
    # All folds of a cross-validation would say the same.
    if not quiet and config.data.fold is None:
        print(line, flush=True)
    return trust


def _weights_digest(folder: Path) -> str:
    """Which weights the network of a run folder has; folders of earlier versions do not say."""
    return str(read_network_config(folder / "model").get("weights", ""))


def _with_reading(config: RunConfig) -> RunConfig:
    """`config` with how its images are brought to their size, also where that is the default."""
    options = resolve_reading(config.data.source, config.data.options)
    return replace(config, data=replace(config.data, options=options))


def prepare(config: RunConfig, images: Splits | None) -> tuple[Splits, nn.Module]:
    """The images, and the untrained network for them."""
    splits = load_images(config.data) if images is None else images
    train = splits.train
    check_task(config, train)
    height, width = train.image_size
    if height != width and train.task != "segment":
        raise ValueError(
            f"{config.data.source or 'images'}: images are {height} x {width} pixels and must be square: "
            "choose a size, for example data.image_size=64"
        )
    least = model_info(config.model.name).smallest_size
    if min(height, width) < least:
        raise ValueError(
            f"{config.data.source or 'images'}: images are {height} x {width} pixels and must be at least "
            f"{least} x {least} for {config.model.name}"
        )
    weights = config.train.class_weights
    if isinstance(weights, tuple) and len(weights) != len(train.classes):
        raise ValueError(
            f"train.class_weights={list(weights)}: must be one weight for each of the "
            f"{len(train.classes)} classes"
        )
    return splits, build_model(config, train.channels, len(train.classes), _side(config, train))


def check_task(config: RunConfig, images: ImageSet) -> None:
    """Refuse labels that are not those of `config.data.task`, or that its network cannot answer for."""
    task, source = task_of(images), config.data.source or "images"
    if config.data.task not in (None, task.name):
        raise ValueError(
            f"data.task={config.data.task!r}: {source} has {task.labels}, which is {task.name!r}"
        )
    check_adversarial(config.train, task)
    answers = model_info(config.model.name).answers
    if answers != task.answers:
        gives = "one prediction per image" if answers == "image" else "one prediction per pixel"
        raise ValueError(
            f"{source} has {task.labels}, but {config.model.name} returns {gives}; "
            f"use --model {default_model(task.name)}"
        )


def _side(config: RunConfig, images: ImageSet) -> int:
    """The side in pixels that the network is built for; those that answer for pixels take any."""
    longest = max(images.image_size)
    return longest if config.data.patch is None else min(longest, config.data.patch)


def load_run(folder: str | Path, *, device: torch.device | str = "cpu") -> Run:
    """Load a run, with its trained network in eval mode. Code in the folder is never executed.

    `device` can be "auto": a GPU if available.
    """
    folder = Path(folder)
    chosen = choose_device(device) if isinstance(device, str) else device
    config = read_run_config(folder)
    if not (folder / "model" / CONFIG_FILE).exists():
        raise ValueError(
            f"{folder}: the training has not finished: "
            f"continue with `besselnet train --out {folder} --resume`"
        )
    model: Any = load_network(folder / "model")
    recipe = model.recipe
    # Runs always name their classes; the folder may have been put there by something else.
    classes = model.classes or tuple(map(str, range(recipe.num_classes)))
    about = read_network_config(folder / "model")["about"]
    learned = read_task(folder / "model" / CONFIG_FILE, classes, about)
    taken = recipe.in_channels, recipe.image_size
    trust = load_trust(folder / "model", _weights_digest(folder))
    return Run(folder, config, model.to(chosen), *taken, classes, learned, trust)


def read_run_config(folder: str | Path) -> RunConfig:
    """Read the configuration of a run folder."""
    path = Path(folder) / "config.json"
    if not path.is_file():
        raise ValueError(f"{folder} is not a run folder: config.json is missing")
    values = read_config(path)
    # First of all: another version may have other settings.
    check_format(path, values.get("format"))
    with reading(path):
        return from_dict(RunConfig, values)


def fold_folder(folder: Path, number: int) -> Path:
    """The run folder of a fold, from 1, in the folder of a cross-validation."""
    return folder / f"fold-{number}"


def _check_folder(config: RunConfig, folder: Path, resume: bool) -> None:
    """Refuse a folder that cannot be, or become, that of `config`."""
    if fold_folder(folder, 1).exists():
        raise ValueError(f"{folder} already holds folds: choose another folder for a run")
    if (folder / "config.json").exists():
        if not resume:
            raise ValueError(f"{folder} already holds a run: resume it, or choose another folder")
        recorded = _with_reading(read_run_config(folder))
        # Where the images are kept changes no result, and another machine may have less memory.
        recorded = replace(recorded, data=replace(recorded.data, cache=config.data.cache))
        changes = changed_settings(to_dict(recorded), to_dict(config))
        if changes:
            raise ValueError(f"cannot resume {folder} with changed settings: {'; '.join(changes)}")
