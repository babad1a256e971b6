"""`create_model`: a network by its name, with the weights that come with besselnet where they are wanted."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from besselnet.models._folder import CONFIG_FILE, load_weights, read_network_config
from besselnet.models._registry import ModelRecipe, model_info

__all__ = ["create_model", "list_pretrained"]

PACKAGED = Path(__file__).parents[1] / "weights"
_SHAPE = ("in_channels", "num_classes", "image_size")


def create_model(
    name: str,
    *,
    in_channels: int,
    num_classes: int,
    image_size: int,
    pretrained: bool | str = False,
    **options: Any,
) -> nn.Module:
    """Build a model by name.

    Args:
        name: one of `list_models()`.
        in_channels: channels of the images.
        num_classes: length of the logits.
        image_size: side of the (square) images in pixels.
        pretrained: the name of weights that come with besselnet (see `list_pretrained`), which also
            decide the options; or True for those that fit the arguments.
        options: the model's own options, see `model_info(name).options`.

    Returns:
        A module: `forward(x)` maps images (N, in_channels, H, W) to logits (N, num_classes),
        `forward_features(x)` to the feature maps before the global pooling.
    """
    info = model_info(name)
    unknown = [option for option in options if option not in info.options]
    shape = {"in_channels": in_channels, "num_classes": num_classes, "image_size": image_size}
    if pretrained and not unknown:
        folder, options = _choose_pretrained(name, pretrained, shape, options, info.options)
    model = ModelRecipe(name, **shape, options={**info.options, **options}).build()
    if pretrained:
        load_weights(folder, model)
    return model


def list_pretrained(model: str = "*") -> list[str]:
    """What comes with besselnet, as MODEL/NAME, for a model or a shell pattern such as ``"bcnn*"``."""
    found = PACKAGED.glob(f"{model}/*/{CONFIG_FILE}")
    return sorted(path.parent.relative_to(PACKAGED).as_posix() for path in found)


def _choose_pretrained(
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
    configs = {name: read_network_config(folders[name]) for name in chosen}
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
