"""Save networks to folders and load them.

``config.json`` has the arguments of `create_model`, and ``model.safetensors`` has the weights. Nothing in a
folder is ever executed.
"""

import hashlib
import json
import math
import reprlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor, nn

from besselnet._version import __version__
from besselnet.atomic import write_together
from besselnet.checks import CUTOFFS, LARGEST_SIDE
from besselnet.models._registry import ModelRecipe
from besselnet.untrusted import check_file, check_keys, read_json, reading

__all__ = [
    "CONFIG_FILE",
    "WEIGHTS_FILE",
    "check_weights",
    "load_network",
    "network_config",
    "network_files",
    "read_network_config",
    "save_network",
]

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
# The layout of a folder. It changes when another version could not read it, or would misread it.
FORMAT = 2
# How often, and after how many seconds, to read again what another process is just replacing.
_TRIES, _PAUSE = 300, 0.02
_KEYS: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(("besselnet", "name"), (str, "a string")),
    **dict.fromkeys(("options", "about"), (dict, "an object")),
    **dict.fromkeys(("in_channels", "num_classes", "image_size"), (int, "an integer")),
    "classes": (list | None, "a list or null"),
}


def network_config(
    model: nn.Module,
    classes: Sequence[str] | None = None,
    about: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the content of ``config.json``, as JSON values, for a network built by `create_model`.

    The arguments are those of `save_network`. Raises `ValueError` if the model was changed after
    `create_model` built it, because then its recipe no longer describes it.
    """
    recipe = getattr(model, "recipe", None)
    if not isinstance(recipe, ModelRecipe):
        raise ValueError(
            f"model is a {type(model).__name__} that was not built by `create_model`: register it with "
            "`register_model`, or save its state_dict"
        )
    if classes is not None and len(classes) != recipe.num_classes:
        raise ValueError(f"classes: {len(classes)} names for {recipe.num_classes} classes")
    difference = _first_difference(model, recipe.outline())
    if difference:
        raise ValueError(
            f"model is no longer the {recipe.name!r} that `create_model` built: {difference}; "
            "save its state_dict, or register the changed network with `register_model`"
        )
    config = {
        "format": FORMAT,
        "besselnet": __version__,
        **vars(recipe),
        "classes": None if classes is None else list(classes),
        "about": dict(about or {}),
    }
    try:
        plain: dict[str, Any] = json.loads(json.dumps(config, allow_nan=False))
    except TypeError as error:
        raise ValueError(
            f"options or about of {recipe.name!r} must be JSON values: {error}"
        ) from None
    return plain


def save_network(
    model: nn.Module,
    folder: str | Path,
    *,
    classes: Sequence[str] | None = None,
    about: Mapping[str, Any] | None = None,
) -> None:
    """Save a network built by `create_model` to a folder, for `load_network`.

    Args:
        model: the network.
        folder: created if missing; files of an earlier call are replaced.
        classes: names of the classes.
        about: further information (data, accuracy, ...), as JSON values.
    """
    write_together(folder, network_files(model, classes, about))


def network_files(
    model: nn.Module,
    classes: Sequence[str] | None = None,
    about: Mapping[str, Any] | None = None,
) -> dict[str, bytes]:
    """Return the files that `save_network` writes: contents by file name."""
    config = network_config(model, classes, about)
    tensors = {
        name: tensor.detach().cpu().contiguous().clone()
        for name, tensor in model.state_dict().items()
    }
    weights = save(tensors)
    config["weights"] = f"sha256:{hashlib.sha256(weights).hexdigest()}"
    # The weights first: a config says that they are there.
    text = json.dumps(config, indent=2, allow_nan=False)
    return {WEIGHTS_FILE: weights, CONFIG_FILE: f"{text}\n".encode()}


def read_network_config(folder: str | Path) -> dict[str, Any]:
    """Read and check the ``config.json`` of a folder, see `network_config`."""
    path = Path(folder) / CONFIG_FILE
    if not path.exists():
        raise ValueError(f"{folder} has no trained network: {CONFIG_FILE} is missing")
    config = read_json(path)
    if "format" not in config:
        raise ValueError(f"{path} does not describe a network: 'format' is missing")
    if config["format"] == 1:
        raise ValueError(
            f"{path}: format 1 of besselnet 0.1.0 orders the coefficients differently: train the network "
            "again, or use besselnet 0.1.0"
        )
    if config["format"] != FORMAT:
        raise ValueError(
            f"{path}: format {config['format']!r} is not the format {FORMAT} of this besselnet: "
            "use the version that wrote it"
        )
    check_keys(path, config, _KEYS)
    classes, count = config["classes"], config["num_classes"]
    if not all(isinstance(name, str) for name in classes or ()):
        raise ValueError(f"{path}: 'classes' is {reprlib.repr(classes)}: must be a list of strings")
    if classes is not None and len(classes) != count:
        raise ValueError(f"{path}: 'classes' has {len(classes)} names for {count} classes")
    return config


def load_network(folder: str | Path) -> nn.Module:
    """Load a network from a folder of `save_network`, in eval mode.

    ``model.recipe`` has the arguments of `create_model`, and ``model.classes`` the names of the classes (a
    tuple, or None if they are not known). If `save_network` replaces the folder meanwhile, the result is
    either the old or the new network.
    """
    folder = Path(folder)
    tries = 0
    while tries < _TRIES:
        problem = ValueError(
            f"{folder}: {WEIGHTS_FILE} does not match 'weights' in {CONFIG_FILE}: save the network again"
        )
        before, whole = _stamps(folder), _is_whole(folder)
        model = None
        try:
            model = _load(folder)
        except ValueError as error:
            problem = error
        replaced = _stamps(folder) != before
        if whole and not replaced:
            if model is not None:
                return model
            break
        # While somebody writes, the files may differ for long; once nobody does, only for a moment.
        tries += 1 if replaced else _TRIES // 10
        time.sleep(_PAUSE)
    raise problem


def _load(folder: Path) -> nn.Module:
    config = read_network_config(folder)
    path = Path(folder) / WEIGHTS_FILE
    if not path.exists():
        raise ValueError(f"{folder} has no trained network: {WEIGHTS_FILE} is missing")
    shapes = _stored_shapes(path)
    size = {key: config[key] for key in ("in_channels", "num_classes", "image_size")}
    with reading(Path(folder) / CONFIG_FILE):
        _check_sizes({**config["options"], **size}, shapes)
        recipe = ModelRecipe(config["name"], **size, options=config["options"])
        # Without values first: what it has is compared with the file before memory is asked for.
        expected = {name: tuple(t.shape) for name, t in recipe.outline().state_dict().items()}
    if shapes != expected:
        key = next(k for k in {**expected, **shapes} if expected.get(k) != shapes.get(k))
        raise ValueError(
            f"{path} does not fit the network: {key!r} has shape {shapes.get(key)}, must be "
            f"{expected.get(key)}"
        )
    model = recipe.build()
    tensors = load_file(path)
    check_weights(path, tensors)
    for key, wanted in model.state_dict().items():
        if tensors[key].is_floating_point() != wanted.is_floating_point():
            raise ValueError(f"{path}: {key!r} is {tensors[key].dtype}, must be {wanted.dtype}")
    model.load_state_dict(tensors)
    classes = config["classes"]
    # Past nn.Module's own, which is for tensors and modules.
    object.__setattr__(model, "classes", None if classes is None else tuple(classes))
    return model.eval()


def _is_whole(folder: Path) -> bool:
    """Whether the weights are those that the config was written with, as far as it says so."""
    try:
        config = read_json(folder / CONFIG_FILE)
        check_file(folder / WEIGHTS_FILE)
        digest = hashlib.sha256()
        with (folder / WEIGHTS_FILE).open("rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
    except (OSError, ValueError):
        return True
    # Folders of earlier versions say nothing.
    return config.get("weights") in (None, f"sha256:{digest.hexdigest()}")


def _stamps(folder: Path) -> list[tuple[int, int, int]]:
    """What changes when a file is replaced."""
    found = [path.stat() for path in (folder / CONFIG_FILE, folder / WEIGHTS_FILE) if path.exists()]
    return [(status.st_ino, status.st_size, status.st_mtime_ns) for status in found]


def check_weights(path: str | Path, tensors: Mapping[str, Tensor]) -> None:
    """Raise `ValueError` if weights are NaN or infinite; `path` is their file."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise ValueError(f"{path}: {name!r} has values that are NaN or infinite")


def _stored_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors in a safetensors file, from its header."""
    check_file(path)
    try:
        with safe_open(path, framework="pt") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in list(file.keys())}
    except SafetensorError as error:
        raise ValueError(f"{path} is not a readable safetensors file: {error}") from None


def _check_sizes(settings: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse sizes that a network with weights of these shapes cannot have, before it is outlined."""
    values = sum(math.prod(shape) for shape in shapes.values())
    most: dict[str, float] = {
        **dict.fromkeys(("in_channels", "num_classes", "width", "channels"), max(values, 10_000)),
        "image_size": LARGEST_SIDE,
    }
    taps = max((math.prod(shape[2:]) for shape in shapes.values()), default=1)
    shares = [
        CUTOFFS.get(share, 1.0) if isinstance(share, str) else share
        for share in _leaves(settings.get("cutoff", "strong"))
    ]
    share = max(filter(_is_number, shares), default=0)
    if share > 0:
        # A kernel of k pixels with the cut-off c has about (ck)^2 weights for each pair of channels. Its
        # table is made with the outline: seconds for ck = 7.5, minutes for twice that.
        most["kernel_size"] = max(7.5, 2 * math.sqrt(taps)) / share
    for key, limit in most.items():
        for number in filter(_is_number, _leaves(settings.get(key))):
            if not abs(number) <= limit:
                raise ValueError(
                    f"{key!r} is {number!r}: must be at most {limit:g} with the weights in {WEIGHTS_FILE}"
                )


def _leaves(value: object) -> list[Any]:
    """What lists of lists hold, at any depth."""
    if not isinstance(value, list | tuple):
        return [value]
    return [leaf for item in value for leaf in _leaves(item)]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _first_difference(model: nn.Module, built: nn.Module) -> str | None:
    """Where a network is not what its recipe builds: a layer that is missing, added, exchanged or reset."""
    layers, expected = dict(model.named_modules()), dict(built.named_modules())
    for name in {**expected, **layers}:
        if name not in layers:
            return f"{name!r} is missing"
        if name not in expected:
            return f"{name!r}, a {type(layers[name]).__name__}, was added"
        now, then = layers[name], expected[name]
        is_now, was = (f"{type(m).__name__}({m.extra_repr()})" for m in (now, then))
        # By name: a parametrised layer has a type of its own.
        if is_now != was or type(now).__module__ != type(then).__module__:
            return f"{name or 'the network'} is {is_now}, not {was}"
    shapes, wanted = (
        {k: tuple(v.shape) for k, v in m.state_dict().items()} for m in (model, built)
    )
    for name in {**wanted, **shapes}:
        if shapes.get(name) != wanted.get(name):
            return f"{name!r} has shape {shapes.get(name)}, not {wanted.get(name)}"
    return None
