"""Rebuild layers with other numbers of inputs: for the repair "flatten" and for `width`."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn

from besselnet.conversion._layers import change
from besselnet.conversion._report import LayerChange
from besselnet.conversion._run import run, steps

__all__ = ["mend_flatten", "widened"]


def mend_flatten(model: nn.Module, images: Tensor) -> list[LayerChange]:
    """Fix, in place, what can be fixed: an ``nn.Flatten``, or an adaptive pooling to several positions.

    The next linear layer is rebuilt with one input per channel. A ``forward`` that flattens maps by a
    function call is not changed; `find_faults` reports it.
    """
    flattening: nn.Module | None = None
    maps: tuple[int, ...] = ()
    changes: list[LayerChange] = []
    names = {layer: name for name, layer in model.named_modules()}
    for _, layer, given in steps(model, images):
        shape = tuple(given.shape)
        if len(shape) == 4 and shape[-2] * shape[-1] > 1 and isinstance(layer, nn.Flatten):
            flattening, maps = layer, shape
        elif isinstance(layer, nn.AdaptiveAvgPool2d | nn.AdaptiveMaxPool2d):
            sides = layer.output_size
            rows, columns = sides if isinstance(sides, tuple) else (sides, sides)
            if (rows, columns) != (1, 1) and rows is not None and columns is not None:
                flattening, maps = layer, (*shape[:2], rows, columns)
        elif isinstance(layer, nn.Linear) and flattening is not None:
            if layer.in_features != maps[1] * maps[2] * maps[3]:
                flattening = None
                continue
            pooled: nn.Module
            if isinstance(flattening, nn.Flatten):
                pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(1))
            else:
                pooled = type(flattening)(1)
            linear = nn.Linear(
                maps[1],
                layer.out_features,
                layer.bias is not None,
                device=layer.weight.device,
                dtype=layer.weight.dtype,
            )
            for old, new in ((flattening, pooled), (layer, linear)):
                model.set_submodule(names[old], new.train(old.training))
                changes.append(change(names[old], old, new))
            flattening = None
    return changes


def widened(model: nn.Module, width: float, images: Tensor) -> None:
    """Multiply, in place, the channels of all layers, but not those of the images nor of the output.

    The layers are rebuilt with random weights. Raises `ValueError` if a number of channels times `width` is
    not an integer, or if the layers do not fit together afterwards.
    """
    readers, last = _ends(model, images)

    def times(name: str, is_end: bool, channels: int) -> int:
        if is_end:
            return channels
        wide = channels * width
        if abs(wide - round(wide)) > 1e-9 or wide < 1:
            raise ValueError(
                f"width={width!r}: {name} has {channels} channels and would get {wide:g}; must give "
                "whole numbers of channels"
            )
        return round(wide)

    for name, layer in list(model.named_modules()):
        # A single layer has nothing between its ends.
        if type(layer) not in _REMADE or not name:
            continue
        new = _remade(
            layer, partial(times, name, name in readers), partial(times, name, name == last)
        )
        new.to(images.dtype).to(images.device).train(layer.training)
        model.set_submodule(name, new)
    try:
        run(model, images)
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"width={width!r}: must be 1 for this model, whose layers do not fit together with other "
            f"numbers of channels ({error})"
        ) from error


def _ends(model: nn.Module, images: Tensor) -> tuple[set[str], str]:
    """The layers that read the images, and the last one that has weights."""
    weighted = [
        step
        for step in steps(model, images)
        if type(step.layer) in (nn.Conv2d, nn.ConvTranspose2d, nn.Linear)
    ]
    return {step.name for step in weighted if step.input is images}, weighted[-1].name


Channels = Callable[[int], int]

_REMADE = (
    *(nn.Conv2d, nn.ConvTranspose2d, nn.Linear),
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.InstanceNorm2d, nn.GroupNorm),
)
_INPUTS = ("in_channels", "in_features", "num_features", "num_channels")
_OUTPUTS = ("out_channels", "out_features")


def _remade(layer: Any, inputs: Channels, outputs: Channels) -> nn.Module:
    """A layer with the settings of another, and other numbers of channels."""
    settings: dict[str, Any] = {}
    for name in inspect.signature(type(layer)).parameters:
        if name in ("device", "dtype"):
            continue
        value = getattr(layer, name)
        if name == "bias":
            value = value is not None
        elif name in _INPUTS or (name == "groups" and value == layer.in_channels > 1):
            value = inputs(value)
        elif name in _OUTPUTS:
            value = outputs(value)
        settings[name] = value
    made: nn.Module = type(layer)(**settings)
    return made
