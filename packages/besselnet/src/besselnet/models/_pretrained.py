"""Trained networks in folders, and those that come with besselnet.

A folder holds ``config.json`` (what `create_model` is to be called with, and the names of the classes) and
``model.safetensors`` (the weights); the ``model/`` folder of a run is one. Those in ``besselnet/weights`` are
called MODEL/NAME.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

__all__ = ["CONFIG_FILE", "FORMAT", "WEIGHTS_FILE", "list_pretrained", "load_state", "read_config"]

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
# The layout of a folder. It changes when an older besselnet could not read a newer one.
FORMAT = 1

PACKAGED = Path(__file__).parents[1] / "weights"
_SHAPE = ("in_channels", "num_classes", "image_size")


def list_pretrained(model: str = "*") -> list[str]:
    """What comes with besselnet, as MODEL/NAME, for a model or a shell pattern such as ``"bcnn*"``."""
    found = PACKAGED.glob(f"{model}/*/{CONFIG_FILE}")
    return sorted(path.parent.relative_to(PACKAGED).as_posix() for path in found)


def read_config(folder: Path) -> dict[str, Any]:
    """The ``config.json`` of a folder, checked."""
    path = folder / CONFIG_FILE
    if not path.is_file():
        raise ValueError(f"{folder} holds no trained network: it has no {CONFIG_FILE}")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    needed = ("format", "name", "options", *_SHAPE)
    missing = [key for key in needed if not isinstance(config, dict) or key not in config]
    if missing:
        raise ValueError(f"{path} does not describe a network: it has no {missing[0]!r}")
    if config["format"] != FORMAT:
        raise ValueError(
            f"{path}: format {config['format']!r} is not the format {FORMAT} of this besselnet: "
            "use the version that wrote it"
        )
    return config


def load_state(folder: Path, model: nn.Module) -> None:
    """Give a network the weights in a folder; names and shapes must agree."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = folder / WEIGHTS_FILE
    if not path.is_file():
        raise ValueError(f"{folder} holds no trained network: it has no {WEIGHTS_FILE}")
    try:
        model.load_state_dict(load_file(path))
    except SafetensorError as error:
        raise ValueError(f"{path} is not a readable safetensors file: {error}") from None
    except RuntimeError as error:
        raise ValueError(
            f"{path} does not fit the network: {' '.join(str(error).split())}"
        ) from None


def choose_pretrained(
    model: str,
    wanted: bool | str,
    shape: Mapping[str, int],
    options: Mapping[str, Any],
    defaults: Mapping[str, Any],
) -> tuple[Path, dict[str, Any]]:
    """The folder of the weights that a call of `create_model` asks for, and the options of the network.

    A name stands for these weights, with the options they were trained with; True for the weights that fit
    the network as it was asked for. `ValueError` with all there is if nothing fits.
    """
    folders = {name.split("/")[1]: PACKAGED / name for name in list_pretrained(model)}
    if isinstance(wanted, str) and wanted not in folders:
        raise ValueError(
            f"pretrained={wanted!r}: for {model!r} there are {', '.join(folders) or 'no weights'}"
            f"; in all: {', '.join(list_pretrained()) or 'none'}"
        )
    chosen = [wanted] if isinstance(wanted, str) else list(folders)
    configs = {name: read_config(folders[name]) for name in chosen}
    # What was not asked for is as in the folder for a name, and by default for True.
    asked = dict(options) if isinstance(wanted, str) else {**defaults, **options}
    asked = json.loads(json.dumps(asked))
    differences = {
        name: _differences(config, shape, asked, defaults) for name, config in configs.items()
    }
    fitting = [name for name, reasons in differences.items() if not reasons]
    if len(fitting) == 1:
        name = fitting[0]
        return folders[name], configs[name]["options"]
    if fitting:
        raise ValueError(f"pretrained=True: {', '.join(fitting)} fit; say which by its name")
    reasons = "; ".join(f"{name} has {', '.join(why)}" for name, why in differences.items())
    raise ValueError(
        f"pretrained={wanted!r}: no weights of {model!r} fit"
        + (
            f" ({reasons}). Build it as they ask and exchange its head to fine-tune"
            if reasons
            else ""
        )
        + f"; in all there are: {', '.join(list_pretrained()) or 'none'}"
    )


def _differences(
    config: Mapping[str, Any],
    shape: Mapping[str, int],
    asked: Mapping[str, Any],
    defaults: Mapping[str, Any],
) -> list[str]:
    """What weights were trained with, where it is not what was asked for."""
    trained = {**json.loads(json.dumps(dict(defaults))), **config["options"]}
    trained |= {key: config[key] for key in _SHAPE}
    return [
        f"{key}={trained.get(key)!r}"
        for key, value in {**shape, **asked}.items()
        if trained.get(key) != value
    ]
