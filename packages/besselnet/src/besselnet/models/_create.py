"""Build, outline and describe networks by name, also with the weights that come with besselnet."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from besselnet.checks import LARGEST_SIDE, check_count
from besselnet.models._folder import CONFIG_FILE, load_network, read_network_config
from besselnet.models._registry import Answers, ModelRecipe, check_options, model_info
from besselnet.models.template import FeatureMaps

__all__ = [
    "ModelDescription",
    "adapt_network",
    "count_parameters",
    "create_model",
    "describe_model",
    "list_pretrained",
    "outline_model",
    "packaged_folder",
]

PACKAGED = Path(__file__).parents[1] / "weights"


def list_pretrained(model: str = "*") -> list[str]:
    """List the pretrained weights as MODEL/NAME, for a model or a pattern such as ``"bcnn*"``."""
    found = PACKAGED.glob(f"{model}/*/{CONFIG_FILE}")
    return sorted(path.parent.relative_to(PACKAGED).as_posix() for path in found)


def packaged_folder(name: str) -> Path:
    """Return the folder of pretrained weights, by a name of `list_pretrained`."""
    if name not in list_pretrained():
        everything = ", ".join(list_pretrained()) or "none"
        raise ValueError(f"name={name!r}: must be one of the pretrained weights: {everything}")
    return PACKAGED / name


def create_model(
    name: str,
    *,
    in_channels: int | None = None,
    num_classes: int | None = None,
    image_size: int | None = None,
    pretrained: bool | str = False,
    features_only: bool = False,
    **options: Any,
) -> nn.Module:
    """Build a model by name.

    Args:
        name: one of `list_models()`.
        in_channels: image channels. Default: those of the pretrained weights, or 3. If the pretrained
            weights have another number of channels, the first layer is adapted: weights are repeated for
            additional channels, or summed for fewer. A grey image, repeated over the channels, gives the
            same output as before.
        num_classes: number of logits. Default: that of the pretrained weights; for another number, the last
            layer is reinitialised. 0 removes the last layer: the model returns (pooled) features.
        image_size: side of the (square) images in pixels. Default: that of the pretrained weights, or
            `model_info(name).default_size`. For another size than that of the pretrained weights, the
            network keeps its layers.
        pretrained: name of pretrained weights (see `list_pretrained`), which also determine the options; or
            True for the weights that fit the arguments.
        features_only: return the feature maps of every stage (for a U-Net, of the encoder), as a
            `FeatureMaps`, whose `feature_info` describes them.
        options: model-specific options, see `model_info(name).options`.

    Returns:
        A module: `forward(x)` maps images (N, in_channels, H, W) to logits (N, num_classes), and
        `forward_features(x)` to the feature maps before global pooling, (N, num_features, h, w). If
        `model_info(name).answers` is "pixels", logits are (N, num_classes, H, W) and feature maps have the
        same size. `get_classifier()` returns the last layer, `reset_classifier(num_classes)` replaces it.
    """
    given = {"in_channels": in_channels, "num_classes": num_classes, "image_size": image_size}
    shape = {key: value for key, value in given.items() if value is not None}
    if pretrained:
        trained = load_network(_choose_pretrained(name, pretrained, shape, options))
        model = adapt_network(trained, **given)
    elif features_only or "num_classes" in shape:
        model = _recipe(name, shape, options).build()
    else:
        raise ValueError(
            "num_classes=None: must be given without pretrained weights (0 for features)"
        )
    return FeatureMaps(model) if features_only else model.train()


def outline_model(
    name: str,
    *,
    num_classes: int,
    in_channels: int = 3,
    image_size: int | None = None,
    **options: Any,
) -> nn.Module:
    """Build a model on the device "meta": parameters have shapes but no values.

    The arguments are those of `create_model`. A model whose layers compute while they are built has values.
    """
    shape = {"in_channels": in_channels, "num_classes": num_classes, "image_size": image_size}
    return _recipe(name, shape, options).outline()


@dataclass(frozen=True)
class ModelDescription:
    """Description of a model for given images; from `describe_model`.

    Attributes:
        name, ..., training: as in `ModelInfo`; in_channels, num_classes, image_size: as in `create_model`.
        parameters: number of learned parameters.
        multiply_adds: multiply-adds of convolutions and matrix products for one image, counted in a run.
        quarter_turn_error: largest change of the logits over the three quarter turns of an image, relative
            to the change between two images; untrained, float32. None if the logits are the same for every
            image. Logits of pixels are rotated back.
    """

    name: str
    summary: str
    symmetry: str
    exactness: str
    sizes: str
    options: dict[str, Any]
    training: dict[str, Any]
    in_channels: int
    num_classes: int
    image_size: int
    parameters: int
    multiply_adds: int
    quarter_turn_error: float | None
    answers: Answers


def describe_model(
    name: str,
    *,
    in_channels: int = 1,
    num_classes: int = 10,
    image_size: int = 28,
    **options: Any,
) -> ModelDescription:
    """Build a model and measure its size, cost and equivariance. Arguments as in `create_model`."""
    info = model_info(name)
    shape = {"in_channels": in_channels, "num_classes": num_classes, "image_size": image_size}
    check_count("image_size", image_size, info.smallest_size, LARGEST_SIDE)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = _recipe(name, shape, options).build()
        coarse = torch.rand(4, in_channels, 7, 7)
    images = F.interpolate(coarse, image_size, mode="bicubic", align_corners=False)
    # Normalisation takes the statistics of these images in place of its initial 0 and 1. Far from the real
    # ones, those would saturate every activation, and a model whose logits are constant would look
    # perfectly invariant.
    for layer in model.modules():
        if isinstance(getattr(layer, "momentum", None), float):
            layer.momentum = 1.0  # type: ignore[assignment]
    image, another = images[:1], images[1:2]
    with torch.no_grad():
        model.train()(images)
        model.eval()
        with FlopCounterMode(display=False) as counter:
            logits = model(image)
        turned = [model(image.rot90(turns, (-2, -1))) for turns in (1, 2, 3)]
        if info.answers == "pixels":
            turned = [maps.rot90(-turns, (-2, -1)) for turns, maps in enumerate(turned, start=1)]
        scale = (model(another) - logits).norm()
    change = max((other - logits).norm() for other in turned)
    return ModelDescription(
        name,
        info.summary,
        info.symmetry,
        info.exactness,
        info.sizes,
        options={**info.options, **options},
        training=dict(info.training),
        **shape,
        parameters=count_parameters(model),
        multiply_adds=counter.get_total_flops() // 2,
        quarter_turn_error=float(change / scale) if scale > 0 else None,
        answers=info.answers,
    )


def count_parameters(model: nn.Module) -> int:
    """Return the number of learned parameters."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def _recipe(name: str, shape: Mapping[str, int | None], options: Mapping[str, Any]) -> ModelRecipe:
    info = model_info(name)
    asked = {key: value for key, value in shape.items() if value is not None}
    common = {"in_channels": 3, "num_classes": 1, "image_size": info.default_size, **asked}
    return ModelRecipe(name, **common, options={**info.options, **options})


def adapt_network(
    model: nn.Module,
    *,
    in_channels: int | None = None,
    num_classes: int | None = None,
    image_size: int | None = None,
) -> nn.Module:
    """Return a trained network for other images or classes; the arguments are those of `create_model`.

    The weights are kept. For another number of channels, the first layer is adapted; for another number of
    classes, the last layer is reinitialised. Raises `ValueError` if the network cannot have the same layers
    at `image_size`.
    """
    recipe: ModelRecipe = model.recipe  # type: ignore[assignment]
    channels = (
        recipe.in_channels if in_channels is None else check_count("in_channels", in_channels)
    )
    wanted = recipe_at_size(recipe, recipe.image_size if image_size is None else image_size)
    if (channels, wanted) != (recipe.in_channels, recipe):
        trained, model = model, replace(wanted, in_channels=channels).build()
        weights = trained.state_dict()
        for name, fresh in model.state_dict().items():
            weights[name] = _refitted(name, weights[name], fresh.shape)
        model.load_state_dict(weights)
        object.__setattr__(model, "classes", getattr(trained, "classes", None))
    if num_classes not in (None, recipe.num_classes):
        model.reset_classifier(num_classes)  # type: ignore[operator]
    return model


def recipe_at_size(recipe: ModelRecipe, image_size: int) -> ModelRecipe:
    """Return the recipe of a network with the same layers for images of another size.

    Networks whose layers depend on the size keep theirs by the option "layers_for", if they have it.
    """
    if image_size == recipe.image_size:
        return recipe
    other, layers = replace(recipe, image_size=image_size), _layers(recipe)
    if _layers(other) == layers:
        return other
    if "layers_for" in model_info(recipe.name).options:
        kept = recipe.options.get("layers_for") or recipe.image_size
        return replace(other, options={**recipe.options, "layers_for": kept})
    raise ValueError(
        f"image_size={image_size}: {recipe.name!r} was trained on images of {recipe.image_size} pixels, "
        f"and has other layers for {image_size}"
    )


def _layers(recipe: ModelRecipe) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the weights."""
    return {name: tuple(t.shape) for name, t in recipe.outline().state_dict().items()}


def _refitted(name: str, weight: Tensor, shape: torch.Size) -> Tensor:
    """Weights (O, C, ...) for another number of input channels, with the same sum over them."""
    if weight.shape == shape:
        return weight
    if weight.shape[:1] + weight.shape[2:] != shape[:1] + shape[2:]:
        raise ValueError(
            f"in_channels: {name!r} has shape {tuple(weight.shape)} and cannot be adapted to {tuple(shape)}"
        )
    channels = shape[1]
    place = torch.arange(max(channels, weight.shape[1]))
    source, target = place % weight.shape[1], place % channels
    shares = weight[:, source] / source.bincount()[source].view(-1, *[1] * (weight.ndim - 2))
    return weight.new_zeros(shape).index_add_(1, target, shares)


def _choose_pretrained(
    model: str, wanted: bool | str, shape: Mapping[str, int], options: Mapping[str, Any]
) -> Path:
    """The folder of the weights that a call of `create_model` asks for.

    A name stands for these weights, with the options they were trained with; True for the weights that fit
    the network as it was asked for. `ValueError` with all there is if nothing fits.
    """
    defaults = check_options(model, options).options
    folders = {name.split("/")[1]: PACKAGED / name for name in list_pretrained(model)}
    everything = f"available: {', '.join(list_pretrained()) or 'none'}"
    by_name = isinstance(wanted, str)
    if by_name and wanted not in folders:
        known = ", ".join(folders) or "no weights"
        raise ValueError(f"pretrained={wanted!r}: {model!r} has {known}; {everything}")
    configs = {
        name: read_network_config(folder)
        for name, folder in folders.items()
        if name == wanted or not by_name
    }
    # Options that are newer than the weights are by default when these are loaded.
    configs = {
        name: {**config, "options": {**defaults, **config["options"]}}
        for name, config in configs.items()
    }
    # What was not asked for is as in the folder for a name, and by default for True.
    asked = dict(options) if by_name else {**defaults, **options}
    differences = {
        name: [*_differences(config, asked), *_too_small(config, shape.get("image_size"))]
        for name, config in configs.items()
    }
    fitting = [name for name, reasons in differences.items() if not reasons]
    # Of several, those of the nearest size, and of these those that need not be adapted.
    if "image_size" in shape:
        distance = {n: abs(configs[n]["image_size"] - shape["image_size"]) for n in fitting}
        fitting = [n for n in fitting if distance[n] == min(distance.values())]
    exact = [name for name in fitting if not _differences(configs[name], shape)]
    if len(fitting) == 1 or len(exact) == 1:
        return folders[(exact or fitting)[0]]
    if fitting:
        raise ValueError(f"pretrained=True: {', '.join(fitting)} fit; choose one by name")
    reasons = "; ".join(f"{name} has {', '.join(why)}" for name, why in differences.items())
    unfit = f"no weights of {model!r} fit{f' ({reasons})' if reasons else ''}"
    raise ValueError(f"pretrained={wanted!r}: {unfit}; {everything}")


def _differences(config: Mapping[str, Any], asked: Mapping[str, Any]) -> list[str]:
    """What weights were trained with, where it is not what was asked for."""
    trained = {**config, **config["options"]}
    return [
        f"{key}={trained.get(key)!r}"
        for key, value in json.loads(json.dumps(dict(asked), allow_nan=False)).items()
        if trained.get(key) != value
    ]


def _too_small(config: Mapping[str, Any], image_size: int | None) -> list[str]:
    """The size that weights were trained for, where the network with these layers cannot take this one."""
    if image_size is None:
        return []
    known = {key: config[key] for key in ("name", "in_channels", "num_classes", "image_size")}
    try:
        recipe_at_size(ModelRecipe(**known, options=config["options"]), image_size).outline()
    except ValueError:
        return [f"image_size={config['image_size']}"]
    return []
