"""The model registry: `register_model` adds models, `list_models` and `model_info` read it."""

import difflib
import functools
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Literal

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from besselnet.checks import check_count, check_finite

__all__ = ["ModelInfo", "ModelRecipe", "list_models", "model_info", "register_model"]

Builder = Callable[..., nn.Module]
# What a network has logits for: each image, or each pixel of it.
Answers = Literal["image", "pixels"]

# What a network is built for at most: far more than any here is useful for.
MOST_CHANNELS, MOST_CLASSES, MOST_PIXELS = 2**16, 2**20, 2**16
# Of a network: 4 gigabytes in float32.
MOST_NUMBERS = 10**9


@dataclass(frozen=True)
class ModelInfo:
    """Information about a registered model; from `model_info`.

    Attributes:
        name: name for `create_model`.
        summary: description in one line.
        symmetry: group of rotations (and reflections) under which the logits are invariant.
        exactness: how exact the invariance is.
        sizes: accepted image sizes, in words.
        smallest_size: smallest side in pixels that the model accepts with some options.
        default_size: default `image_size` in pixels.
        options: names and defaults of the options of `create_model` beyond the three arguments that every
            model has.
        training: recommended training settings, with the names of `besselnet train`.
        augmentable: whether rotated, reflected and scaled training images help the model. They do not help a
            network that learns the symmetry from the images.
        answers: "image" for logits (N, num_classes), "pixels" for logits (N, num_classes, H, W), which are
            equivariant instead of invariant.
    """

    name: str
    summary: str
    symmetry: str
    exactness: str
    sizes: str
    smallest_size: int
    default_size: int
    options: Mapping[str, Any]
    build: Builder
    training: Mapping[str, Any] = field(default_factory=dict)
    augmentable: bool = True
    answers: Answers = "image"


class _NothingDrawn(TorchFunctionMode):
    """Weights are not drawn: on tensors without values torch would load its compiler to do nothing."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        drawn = kwargs.get("tensor", args[0] if args else None)
        if getattr(func, "__name__", "") in ("normal_", "uniform_") and drawn.is_meta:
            return drawn
        return func(*args, **kwargs)


class _NotTooLarge(TorchFunctionMode):
    """Tensors of a network that would have too many numbers are refused before memory is asked for."""

    def __init__(self, recipe: "ModelRecipe") -> None:
        super().__init__()
        self.recipe = recipe
        self.numbers = 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in (torch.empty, torch.zeros, torch.ones):
            size = kwargs.get("size", args)
            sides = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
            self.numbers += math.prod(sides)
            if self.numbers > MOST_NUMBERS:
                raise ValueError(
                    f"{self.recipe}: must have at most {MOST_NUMBERS} numbers in total"
                )
        return func(*args, **kwargs)


@dataclass(frozen=True)
class ModelRecipe:
    """Arguments with which `create_model` built a model, stored as ``model.recipe``.

    Attributes:
        name: name of the model, see `list_models`.
        in_channels, num_classes, image_size: as in `create_model`.
        options: all options, including defaults, which another version may change; lists are stored as
            tuples.
    """

    name: str
    in_channels: int
    num_classes: int
    image_size: int
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", {k: _as_tuples(v) for k, v in self.options.items()})

    def build(self) -> nn.Module:
        """Build the network with new weights and this recipe as ``model.recipe``."""
        info = check_options(self.name, self.options)
        shape = {
            "in_channels": check_count("in_channels", self.in_channels, most=MOST_CHANNELS),
            "num_classes": check_count("num_classes", self.num_classes, 0, MOST_CLASSES),
            "image_size": check_count(
                "image_size", self.image_size, info.smallest_size, MOST_PIXELS
            ),
        }
        with _NotTooLarge(self):
            model = info.build(**shape, **self.options)
        # After the model's own checks, which know more of an option.
        check_finite("options", self.options)
        # Past nn.Module's own, which is for tensors and modules.
        object.__setattr__(model, "recipe", self)
        return model

    def outline(self) -> nn.Module:
        """Build the network on the device "meta" if possible: parameters have shapes but no values."""
        with torch.random.fork_rng(devices=[]):
            try:
                with torch.device("meta"), _NothingDrawn():
                    return self.build()
            except (NotImplementedError, RuntimeError) as error:
                # Some layer computes with values while it is built. Sizes that overflow would again.
                if "meta" not in str(error):
                    raise
                return self.build()


def note_classes(model: nn.Module, num_classes: int) -> None:
    """Note on a model that it now answers for another number of classes, whose names are not known."""
    recipe = getattr(model, "recipe", None)
    if recipe is not None:
        object.__setattr__(model, "recipe", replace(recipe, num_classes=num_classes))
    object.__setattr__(model, "classes", None)


def _as_tuples(value: Any) -> Any:
    return tuple(_as_tuples(item) for item in value) if isinstance(value, list | tuple) else value


_MODELS: dict[str, ModelInfo] = {}
_COMMON = ("in_channels", "num_classes", "image_size")


def register_model(
    name: str,
    *,
    symmetry: str,
    exactness: str,
    sizes: str,
    smallest_size: int,
    default_size: int | None = None,
    summary: str | None = None,
    fixed: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
    augmentable: bool = True,
    answers: Answers = "image",
) -> Callable[[Builder], Builder]:
    """Decorator that registers a model builder.

    The builder has the keyword arguments `in_channels`, `num_classes` and `image_size`. It returns a module
    with `forward_features(x) -> (N, C, h, w)` and `forward(x) -> (N, num_classes)`, or the pooled features
    (N, C) for `num_classes=0`. `besselnet.models.template.TemplateNetwork` is such a module, and has the
    other methods documented in `create_model`. With `answers="pixels"`, `forward(x)` returns
    (N, num_classes, H, W), as `besselnet.models.pixels.PixelNetwork` does.

    Other keyword arguments of the builder become options of the model and must have defaults, except those
    in `fixed`, which distinguish this model from others of the same builder. `defaults` overrides some of the
    defaults. `training` has recommended training settings that differ from the usual ones, and `augmentable`
    says whether rotated images help the model. The default `summary` is the first line of the builder's
    docstring, and the default `default_size` is the smallest size.
    """
    settings, own = dict(fixed or {}), dict(defaults or {})

    def add(build: Builder) -> Builder:
        if name in _MODELS:
            raise ValueError(f"a model named {name!r} is already registered")
        parameters = inspect.signature(build).parameters
        missing = [argument for argument in _COMMON if argument not in parameters]
        if missing:
            raise TypeError(f"the builder of {name!r} does not accept {', '.join(missing)}")
        options = {
            key: own.get(key, p.default)
            for key, p in parameters.items()
            if key not in {*_COMMON, *settings}
        }
        if inspect.Parameter.empty in options.values():
            raise TypeError(f"every option of {name!r} must have a default")
        _MODELS[name] = ModelInfo(
            name=name,
            summary=summary or (inspect.getdoc(build) or name).splitlines()[0],
            symmetry=symmetry,
            exactness=exactness,
            sizes=sizes,
            smallest_size=smallest_size,
            default_size=smallest_size if default_size is None else default_size,
            options=options,
            build=functools.partial(build, **settings, **own),
            training=dict(training or {}),
            augmentable=augmentable,
            answers=answers,
        )
        return build

    return add


def list_models(pattern: str = "*") -> list[str]:
    """List the names of the registered models that match a shell pattern such as `"bcnn*"`.

    The order is that of registration: recommended models, then those of the paper, then your own.
    """
    return [name for name in _MODELS if fnmatchcase(name, pattern)]


def model_info(name: str) -> ModelInfo:
    """Return information about the model `name`; raise `ValueError` with similar names if unknown."""
    if name not in _MODELS:
        near = difflib.get_close_matches(str(name), _MODELS, n=3, cutoff=0.4)
        hint = f"nearest: {', '.join(near)}" if near else f"known: {', '.join(list_models())}"
        raise ValueError(f"no model is named {name!r}; {hint}")
    return _MODELS[name]


def check_options(name: str, options: Mapping[str, Any]) -> ModelInfo:
    """Return information about a model; raise `ValueError` if it lacks one of the options."""
    info = model_info(name)
    unknown = [option for option in options if option not in info.options]
    if unknown:
        allowed = ", ".join(info.options) or "none"
        raise ValueError(f"{name!r} has no option {unknown[0]!r}; its options: {allowed}")
    return info
