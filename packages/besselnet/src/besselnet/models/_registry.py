"""The list of models: `register_model` fills it, `create_model` and `list_models` read it."""

import difflib
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from torch import nn

from besselnet.models._pretrained import choose_pretrained, load_state

__all__ = [
    "ModelInfo",
    "ModelRecipe",
    "PaperRow",
    "create_model",
    "list_models",
    "model_info",
    "register_model",
]

Builder = Callable[..., nn.Module]


class PaperRow(NamedTuple):
    """A row of the paper's result tables, spelled as in its published numbers."""

    method: str
    group: str


@dataclass(frozen=True)
class ModelInfo:
    """What a model says about itself before it is built.

    Attributes:
        name: the name for `create_model`.
        summary: one line for the user.
        symmetry: the group of turns (and mirror images) that leaves the logits alone.
        exactness: how exactly it does so.
        sizes: which input sizes it takes, in words.
        smallest_size: the smallest side, in pixels, that some setting of its options accepts.
        options: the name and default of everything `create_model` accepts beyond the three
            arguments that every model has.
        paper_row: the row of the paper that this model is, going by the row's name.
        code_row: the row that this model is going by the paper's published experiment code, where
            that differs from the name.
        extra: the optional dependency group it needs, if any.
        training: settings of training that suit it, by the names that `besselnet train` knows.
    """

    name: str
    summary: str
    symmetry: str
    exactness: str
    sizes: str
    smallest_size: int
    options: Mapping[str, Any]
    build: Builder
    paper_row: PaperRow | None = None
    code_row: PaperRow | None = None
    extra: str | None = None
    training: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelRecipe:
    """How `create_model` has built a model, which knows it as ``model.recipe``: all options, also those that
    were left at their defaults, which another version may change.
    """

    name: str
    in_channels: int
    num_classes: int
    image_size: int
    options: Mapping[str, Any]


_MODELS: dict[str, ModelInfo] = {}
_COMMON = ("in_channels", "num_classes", "image_size")


def register_model(
    name: str,
    *,
    symmetry: str,
    exactness: str,
    sizes: str,
    smallest_size: int,
    summary: str | None = None,
    paper_row: PaperRow | None = None,
    code_row: PaperRow | None = None,
    extra: str | None = None,
    fixed: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
) -> Callable[[Builder], Builder]:
    """Add the decorated builder to the list of models.

    The builder takes `in_channels`, `num_classes` and `image_size` by keyword and returns a module
    with `forward_features(x) -> (N, C, h, w)` and `forward(x) -> (N, num_classes)`. Its further
    keyword arguments become the options of the model and must have defaults, except those in
    `fixed`, which tell this model from others of the same builder; `defaults` gives this model's own
    defaults to some of them. `training` holds the settings of training that suit the model, where they
    are not the usual ones. Without `summary`, the first line of the builder's docstring is used.
    """
    settings = dict(fixed or {})
    own = dict(defaults or {})

    def add(build: Builder) -> Builder:
        if name in _MODELS:
            raise ValueError(f"a model named {name!r} is registered already")
        parameters = inspect.signature(build).parameters
        missing = [argument for argument in _COMMON if argument not in parameters]
        if missing:
            raise TypeError(f"the builder of {name!r} does not take {', '.join(missing)}")
        options = {
            key: own.get(key, p.default)
            for key, p in parameters.items()
            if key not in {*_COMMON, *settings}
        }
        if inspect.Parameter.empty in options.values():
            raise TypeError(f"every option of {name!r} needs a default")
        _MODELS[name] = ModelInfo(
            name=name,
            summary=summary or (inspect.getdoc(build) or name).splitlines()[0],
            symmetry=symmetry,
            exactness=exactness,
            sizes=sizes,
            smallest_size=smallest_size,
            options=options,
            build=functools.partial(build, **settings, **own),
            paper_row=paper_row,
            code_row=code_row,
            extra=extra,
            training=dict(training or {}),
        )
        return build

    return add


def list_models(pattern: str = "*") -> list[str]:
    """Names of the registered models that match a shell pattern such as `"bcnn*"`, sorted."""
    return sorted(name for name in _MODELS if fnmatchcase(name, pattern))


def model_info(name: str) -> ModelInfo:
    """What the model `name` says about itself. `ValueError` with the nearest names if unknown."""
    if name not in _MODELS:
        near = difflib.get_close_matches(str(name), _MODELS, n=3, cutoff=0.4)
        hint = f"nearest: {', '.join(near)}" if near else f"known: {', '.join(list_models())}"
        raise ValueError(f"no model is named {name!r}; {hint}")
    return _MODELS[name]


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
    if unknown:
        allowed = ", ".join(info.options) or "none"
        raise ValueError(f"{name!r} has no option {unknown[0]!r}; its options: {allowed}")
    for argument, value, least in (
        ("in_channels", in_channels, 1),
        ("num_classes", num_classes, 1),
        ("image_size", image_size, info.smallest_size),
    ):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(
                f"{argument} of {name!r} is {value!r}; an integer >= {least} is needed"
            )
    shape = {"in_channels": in_channels, "num_classes": num_classes, "image_size": image_size}
    if pretrained:
        folder, options = choose_pretrained(name, pretrained, shape, options, info.options)
    model = info.build(**shape, **options)
    recipe = ModelRecipe(name, **shape, options={**info.options, **options})
    # Past nn.Module's own, which is for tensors and modules.
    object.__setattr__(model, "recipe", recipe)
    if pretrained:
        load_state(folder, model)
    return model
