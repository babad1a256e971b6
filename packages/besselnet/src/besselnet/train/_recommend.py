"""Recommended settings for a set of images: the defaults of `besselnet train`.

The constants are rules of thumb for sets of a hundred to a hundred thousand images. They are kept together
here, so that they can be measured and changed independently of the rest.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from besselnet.data import ImageSet, Splits, ground_colour
from besselnet.models import ModelInfo, model_info
from besselnet.train._config import RunConfig, default_model, make_config, merge_settings
from besselnet.train._images import check_source, first_division, load_images
from besselnet.train._mirror import trial_steps, try_mirror_images
from besselnet.train._process import check_processes, is_first_process, launch
from besselnet.train._run import check_task

# Optimiser steps by the number of training images; between these, on straight lines in a log-log plot.
STEPS = {100: 1_500, 1_000: 4_000, 10_000: 15_000, 60_000: 40_000}
FEWEST_EPOCHS, MOST_EPOCHS = 10, 300
# Images in a batch, from this number of training images on.
BATCH_SIZES = {0: 16, 5_001: 32, 20_001: 64}
# Mirror images can be another class (spirals, letters): "reflect" is for networks that cannot tell them
# apart, and for images that `try_mirror_images` has tried.
MOVES, HARMLESS_MOVES = ("rotate", "scale", "stretch", "shift"), ("shift",)
# Objects on a ground are centred, and where their centre lies can tell a 6 from a rotated 9.
MOVES_ON_GROUND, HARMLESS_ON_GROUND = ("rotate", "scale", "stretch"), ()
# Of pictures that fill their frame, and of objects on a ground, which says how bright "black" is.
LIGHT, LIGHT_ON_GROUND = ("brightness", "contrast"), ("contrast",)
COLOUR_CHANNELS = 3
# Values can be sizes, places or shades: rotation leaves all of them.
MOVES_OF_VALUES = ("rotate",)
# Masks move with their images, and objects of any size keep their class.
MOVES_OF_MASKS = ("rotate", "scale", "stretch")
# Of images with masks: the side of patches, and how many of them are in a batch.
PATCH, PATCHES_IN_BATCH = 128, 8
# A ground darker than this is continued by zeros.
DARK = 0.1
# Objects that are cut out as large as their frame leave a ground in its corners alone, further out than
# this. A disc would hide what lies between.
CORNERS = 1.2
# One object on a ground is told by its shape; a texture by details as well, which large kernels, the strong
# cut-off and the low-pass filter leave out. On validation images of 28 pixels each was worth one or two
# points; of 64, the cut-off was worth nothing.
DETAIL: dict[str, Any] = {"cutoff": ["soft", "strong"], "kernel_size": 5, "low_pass": 0.0}
DETAILED_SIDE = 56
# Images of the largest class for one of the smallest, above which classes are drawn equally often.
SKEW = 3.0
EMA_DECAY = 0.998
LABEL_SMOOTHING, SMOOTHED_CLASSES = 0.1, 3
# For networks that have no rate of their own (`ModelInfo.training`).
RATES = {"optimizer": "adamw", "learning_rate": 1e-3, "weight_decay": 0.05}

# A setting, its value, and what is said of it.
Choice = tuple[str, Any, str]


@dataclass(frozen=True)
class Recommendation:
    """Result of `recommend_settings`.

    Attributes:
        settings: nested settings for `make_config`, to be passed before those of the user.
        reason: the chosen settings and the reasons, in one line; empty if nothing was chosen.
        trial: whether a trial should decide about mirrored copies (`recommend_config(trial=True)`).
    """

    settings: dict[str, Any]
    reason: str
    trial: bool = False


def recommend_settings(
    splits: Splits, model: str, given: Mapping[str, Any] | None = None
) -> Recommendation:
    """Recommend training settings for images and a network, as a deterministic function of both.

    Args:
        splits: the images; only training images are used.
        model: name of a registered network. Its own learning rate, weight decay and optimiser are kept.
        given: nested settings that are already fixed (`merge_settings`). They are not part of the
            recommendation, and the others are adapted to them, such as the epochs to the batch size.
    """
    given = given or {}
    images = splits.train
    choices = _choices_for_masks if images.task == "segment" else _choices
    settings: dict[str, Any] = {}
    words = []
    for key, value, text in choices(images, model_info(model), given):
        *sections, name = key.split(".")
        decided: Mapping[str, Any] = given
        place = settings
        for section in sections:
            decided, place = decided.get(section, {}), place.setdefault(section, {})
        if name not in decided:
            place[name] = value
            words += [text] if text else []
    height, width = images.image_size
    named = "values" if images.task == "regress" else "classes"
    facts = f"{len(images)} images, {len(images.classes)} {named}, {height} x {width}"
    return Recommendation(settings, f"{facts}: {', '.join(words)}" if words else "")


def _choices(images: ImageSet, info: ModelInfo, given: Mapping[str, Any]) -> Iterator[Choice]:
    """The key of each setting, its value, and what is said of it; also of those that are given."""
    train = given.get("train", {})
    ground = ground_colour(images.images)
    batch = train.get("batch_size", BATCH_SIZES[_at_most(BATCH_SIZES, len(images))])
    yield from _pace(len(images), batch, info, train)
    moves: tuple[Sequence[str], Sequence[str]] = MOVES, HARMLESS_MOVES
    light: Sequence[str] = LIGHT
    if images.task == "regress":
        moves, light = (MOVES_OF_VALUES, ()), ()
    elif ground is not None:
        moves, light = (MOVES_ON_GROUND, HARMLESS_ON_GROUND), LIGHT_ON_GROUND
    augment = [
        *moves[0 if info.augmentable else 1],
        *(("reflect",) if _is_mirrored(info, given) else ()),
        *light,
        *(("colour",) if light and images.channels >= COLOUR_CHANNELS else ()),
    ]
    yield "data.augment", augment, "+".join(augment)
    border = "zeros" if ground is not None and float(ground.max()) < DARK else "reflect"
    yield "data.border", border, f"border: {border}"
    yield "train.ema_decay", EMA_DECAY, "averaged weights"
    if images.task == "classify":
        yield from _choices_for_classes(images, train)
    if "field" in info.options:
        if ground is None and ground_colour(images.images, CORNERS) is None:
            field, because = "disc", "the corners are part of the picture"
        else:
            field, because = "square", "objects have a uniform background"
        yield "model.options.field", field, f"field: {field}, because {because}"
        if ground is None and max(images.image_size) < DETAILED_SIDE:
            for option in sorted(DETAIL.keys() & info.options.keys()):
                said = "small kernels for fine detail" if option == "kernel_size" else ""
                yield f"model.options.{option}", DETAIL[option], said
    if "last_padding" in info.options:
        # One object is seen as a whole, a texture in many places.
        yield "model.options.last_padding", "same" if ground is None else "valid", ""


def _choices_for_classes(images: ImageSet, train: Mapping[str, Any]) -> Iterator[Choice]:
    if len(images.classes) >= SMOOTHED_CLASSES:
        yield "train.label_smoothing", LABEL_SMOOTHING, f"label smoothing {LABEL_SMOOTHING}"
    counts = images.class_counts()
    skew = int(counts.max()) / int(counts[counts > 0].min())
    if skew > SKEW and "class_weights" not in train:
        because = f"because the largest has {skew:.1f} times the images of the smallest"
        yield "data.balance", True, f"classes sampled equally often, {because}"


def _choices_for_masks(
    images: ImageSet, info: ModelInfo, given: Mapping[str, Any]
) -> Iterator[Choice]:
    """As `_choices`, for images with masks: patches of them, whose number decides how long to train."""
    train, data = given.get("train", {}), given.get("data", {})
    height, width = images.image_size
    patch = data.get("patch", PATCH if max(height, width) > PATCH else None)
    each = 1
    if patch is not None:
        each = max(1, round(height * width / min(patch, height) / min(patch, width)))
        each = data.get("patches_per_image", each)
        yield "data.patch", patch, f"{each} patches of {patch} x {patch} per image"
        yield "data.patches_per_image", each, ""
    batch = train.get("batch_size", PATCHES_IN_BATCH)
    yield from _pace(len(images) * each, batch, info, train)
    augment = [
        *(MOVES_OF_MASKS if info.augmentable else ()),
        *(("reflect",) if _is_mirrored(info, given) else ()),
        *LIGHT,
        *(("colour",) if images.channels >= COLOUR_CHANNELS else ()),
    ]
    yield "data.augment", augment, "+".join(augment)
    yield "data.border", "reflect", "border: reflect"
    yield "train.ema_decay", EMA_DECAY, "averaged weights"


def _pace(images: int, batch: int, info: ModelInfo, train: Mapping[str, Any]) -> Iterator[Choice]:
    """How long to train on so many images or patches, and in which steps."""
    epochs = recommended_epochs(images, batch * train.get("accumulate", 1))
    yield "train.epochs", epochs, f"{epochs} epochs"
    yield "train.batch_size", batch, f"batches of {batch}"
    # A rate belongs to its optimiser.
    if "optimizer" not in train:
        for key, usual in RATES.items():
            rate = info.training.get(key, usual)
            yield f"train.{key}", rate, f"learning rate {rate:g}" if key == "learning_rate" else ""


def _is_mirrored(info: ModelInfo, given: Mapping[str, Any]) -> bool:
    """Whether the network cannot tell mirror images apart."""
    options = {**info.options, **given.get("model", {}).get("options", {})}
    return bool(options.get("symmetry", info.symmetry) == "O(2)")


def recommend_config(
    *values: RunConfig | Mapping[str, Any] | str | Path,
    settings: Iterable[str] = (),
    images: Splits | None = None,
    trial: bool = False,
) -> tuple[RunConfig, Splits, Recommendation]:
    """Return the configuration of `make_config` with recommended settings, the images and the recommendation.

    With several processes, all get the same configuration.

    Args:
        values, settings: as for `make_config`.
        images: the images of the configuration, if they are already loaded.
        trial: decide by a short training whether to use mirrored copies (`try_mirror_images`). It prints its
            progress.
    """
    given = merge_settings(*values, settings=settings)
    config = make_config(given)
    if images is None:
        check_source(config.data)
        check_processes(config.train)
        if not is_first_process():
            # Wait for the first process, which downloads alone what all read.
            launch(config.train)
        images = load_images(config.data)
    looked_at = first_division(images, config.data)
    if "name" not in given.get("model", {}):
        named = {"model": {"name": default_model(looked_at.train.task)}}
        given = merge_settings(named, given)
        config = make_config(given)
    check_task(config, looked_at.train)
    found = recommend_settings(looked_at, config.model.name, given)
    config = make_config(found.settings, given)
    names = found.settings.get("data", {}).get("augment", ["reflect"])
    alone = config.train.devices * config.train.nodes == 1 and is_first_process()
    undecided = alone and "reflect" not in names and model_info(config.model.name).augmentable
    if undecided and not trial:
        found = replace(found, trial=trial_steps(config, looked_at.train) > 0)
    elif undecided:
        result = try_mirror_images(config, looked_at)
        if result is not None and result.same:
            names.append("reflect")
        if result is not None:
            found = replace(found, reason=f"{found.reason}; {result}")
    return make_config(found.settings, given), images, found


def recommended_epochs(images: int, batch_size: int) -> int:
    """Return how many epochs to train on so many images, or patches, with optimiser steps of `batch_size`."""
    epochs = round(_steps(images) * batch_size / images)
    return min(max(epochs, FEWEST_EPOCHS), MOST_EPOCHS)


def _steps(images: int) -> float:
    logs = np.log([list(STEPS), list(STEPS.values())])
    return float(np.exp(np.interp(np.log(images), *logs)))


def _at_most(table: Mapping[int, Any], number: int) -> int:
    """The largest key that is not above `number`."""
    keys = sorted(table)
    return keys[bisect_right(keys, number) - 1]
