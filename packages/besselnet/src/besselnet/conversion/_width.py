"""A network with all its inner channels multiplied by a factor."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from besselnet.conversion._run import run, steps

__all__ = ["widened"]


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
                "allowed are factors that leave whole numbers of channels"
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
            f"({error}); allowed is 1"
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
