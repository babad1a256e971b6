"""Layers made anew with other numbers of inputs: the repair "flatten" and the factor on the width."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from besselnet.conversion._layers import change
from besselnet.conversion._report import LayerChange
from besselnet.conversion._run import run, steps

__all__ = ["mend_flatten", "widened"]


def mend_flatten(model: nn.Module, images: Tensor) -> list[LayerChange]:
    """Fix, in place, what can be fixed: an ``nn.Flatten``, or an adaptive pooling to several positions.

    The linear layer that follows is made anew with one input for each channel. A ``forward`` that flattens
    the maps of another layer by a function call is left as it is, and found by `find_faults`.
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

    The layers are made anew, with random weights. `ValueError` if a number of channels times `width` is
    not whole, or if the network does not fit together afterwards.
    """
    readers, last = _ends(model, images)

    def times(name: str, channels: int) -> int:
        wide = channels * width
        if abs(wide - round(wide)) > 1e-9 or wide < 1:
            raise ValueError(
                f"width={width!r}: {name} has {channels} channels, and {wide:g} are not possible; "
                "the factor must leave whole numbers of channels"
            )
        return round(wide)

    for name, layer in list(model.named_modules()):
        remake = _REMAKE.get(type(layer))
        # A single layer has nothing between its ends.
        if remake is None or not name:
            continue
        new = remake(
            layer,
            (lambda n: n) if name in readers else (lambda n, name=name: times(name, n)),
            (lambda n: n) if name == last else (lambda n, name=name: times(name, n)),
        )
        new.to(images.dtype).to(images.device).train(layer.training)
        model.set_submodule(name, new)
    try:
        run(model, images)
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"width={width!r}: with other numbers of channels this model does not fit together "
            f"({error}); it must be 1"
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


def _conv(layer: Any, inputs: Channels, outputs: Channels) -> nn.Module:
    depthwise = layer.groups == layer.in_channels > 1
    settings: dict[str, Any] = {
        "groups": inputs(layer.groups) if depthwise else layer.groups,
        "bias": layer.bias is not None,
        "padding_mode": layer.padding_mode,
    }
    if isinstance(layer, nn.ConvTranspose2d):
        settings["output_padding"] = layer.output_padding
    made: nn.Module = type(layer)(
        inputs(layer.in_channels),
        outputs(layer.out_channels),
        layer.kernel_size,
        stride=layer.stride,
        padding=layer.padding,
        dilation=layer.dilation,
        **settings,
    )
    return made


def _linear(layer: nn.Linear, inputs: Channels, outputs: Channels) -> nn.Module:
    return nn.Linear(inputs(layer.in_features), outputs(layer.out_features), layer.bias is not None)


def _norm(layer: Any, inputs: Channels, outputs: Channels) -> nn.Module:
    settings = (layer.eps, layer.momentum, layer.affine, layer.track_running_stats)
    made: nn.Module = type(layer)(inputs(layer.num_features), *settings)
    return made


def _group_norm(layer: nn.GroupNorm, inputs: Channels, outputs: Channels) -> nn.Module:
    return nn.GroupNorm(layer.num_groups, inputs(layer.num_channels), layer.eps, layer.affine)


_REMAKE: dict[type[nn.Module], Callable[..., nn.Module]] = {
    nn.Conv2d: _conv,
    nn.ConvTranspose2d: _conv,
    nn.Linear: _linear,
    nn.BatchNorm1d: _norm,
    nn.BatchNorm2d: _norm,
    nn.InstanceNorm2d: _norm,
    nn.GroupNorm: _group_norm,
}
