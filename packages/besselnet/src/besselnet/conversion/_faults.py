"""Find the steps of a network whose output does not rotate with their input.

Every layer, and every function that a ``forward`` calls on feature maps, runs again on its own input,
rotated by 90 degrees. Its output must be the rotated output. So each step is tested alone, on the maps that
it gets in the network, without knowledge of the code around it. A step that passes may still drop samples
without a blur, which causes aliasing at other angles. Its settings show that.
"""

import copy
import math
from collections.abc import Callable
from itertools import repeat
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._pytree import tree_leaves, tree_map

from besselnet.conversion._layers import pair, repaired_pool
from besselnet.conversion._report import Fault
from besselnet.nn import BesselConv2d, evaluating, sliding_fault, window_stride
from besselnet.testing import ROUNDING

__all__ = ["find_faults"]

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
_LAYOUT = {"permute", "transpose", "movedim", "moveaxis", "swapaxes", "swapdims", "t"}
_FLATTENING = {"flatten", "view", "reshape"}
_COMBINING = {"add", "mul", "sub", "div", "cat", "concat", "where", "lerp", "addcmul"}
_WHY = {
    "conv2d": "a plain convolution with its own weights; convert can replace it if it is an nn.Conv2d",
    "conv_transpose2d": "a transposed convolution; it can be repaired if it is an nn.ConvTranspose2d",
    "max_pool2d": "its windows are not centred on the maps; it can be repaired if it is an nn.MaxPool2d",
    "avg_pool2d": "its windows are not centred on the maps; it can be repaired if it is an nn.AvgPool2d",
    "interpolate": "its samples are not centred on the maps; use mode='bilinear'",
    "__getitem__": "its samples are not centred on the maps",
    "pad": "the sides are padded differently",
    "pixel_shuffle": "channels become positions",
    "unfold": "positions become channels",
}

Turn = Callable[[Tensor], Tensor]


def find_faults(model: nn.Module, images: Tensor, *, mirror: bool) -> tuple[list[Fault], list[str]]:
    """Find the steps of `model` that break equivariance to quarter turns (and mirroring) or to other angles.

    Returns the faults in the order of execution, and notes on steps that could not be tested. It runs a copy
    of the model in eval mode, without gradients.
    """
    model = copy.deepcopy(model).requires_grad_(False)
    # Parameters that differ from position to position often start as all ones or zeros.
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.add_(noise.to(parameter), alpha=0.1)
    watch = _Watch(model, images, mirror)
    watch.add_hooks()
    with evaluating(model), watch:
        model(images)
    return list(dict.fromkeys(watch.faults)), watch.notes


class _Watch(TorchFunctionMode):
    """Judges the steps of one forward pass."""

    def __init__(self, model: nn.Module, images: Tensor, mirror: bool) -> None:
        super().__init__()
        self.model = model
        self.turns: list[Turn] = [lambda t: t.rot90(1, (-2, -1)).contiguous()]
        if mirror:
            self.turns.append(lambda t: t.flip(-1))
        self.faults: list[Fault] = []
        self.notes: list[str] = []
        # What comes from the images, by id; the tensors are kept, lest an id be given again.
        self.derived: dict[int, Tensor] = {id(images): images}
        # Those of them whose last two dimensions are no longer rows and columns.
        self.rearranged: set[int] = set()
        # Modules that are running, and the rotated inputs of the innermost layer.
        self.running: list[str] = []
        self.inside_layer = 0
        self.rotated_inputs: list[Any] = []

    def add_hooks(self) -> None:
        for name, module in self.model.named_modules():
            layer = type(module).__module__.startswith(("torch.nn.", "besselnet.nn."))
            before, after = (
                (self._enter_layer, self._leave_layer)
                if layer and not isinstance(module, _CONTAINERS)
                else (self._enter, self._leave)
            )
            module.register_forward_pre_hook(
                lambda module, args, kwargs, name=name, hook=before: hook(name, args, kwargs),
                with_kwargs=True,
            )
            module.register_forward_hook(
                lambda module, args, output, name=name, hook=after: hook(name, module, output)
            )

    def _enter(self, name: str, args: Any, kwargs: Any) -> None:
        self.running.append(name)

    def _leave(self, name: str, module: nn.Module, output: Any) -> None:
        self.running.pop()

    def _enter_layer(self, name: str, args: Any, kwargs: Any) -> None:
        self.inside_layer += 1
        if self.inside_layer == 1:
            self.inputs = args, kwargs
            self.rotated_inputs = self._rotated(args, kwargs)

    def _leave_layer(self, name: str, module: nn.Module, output: Any) -> None:
        # A method of the class: `forward` alone, without these hooks.
        if self.inside_layer == 1:
            self._judge(name, module, module.forward, *self.inputs, output, self.rotated_inputs)
        self.inside_layer -= 1

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.inside_layer:
            return func(*args, **kwargs)
        # Before the call, which may work in place.
        rotated = self._rotated(args, kwargs)
        output = func(*args, **kwargs)
        if any(isinstance(leaf, Tensor) for leaf in tree_leaves(output)):
            name = self.running[-1] if self.running else ""
            self._judge(name, func, func, args, kwargs, output, rotated)
        return output

    def _rotated(self, args: Any, kwargs: Any) -> list[Any]:
        """The arguments with all maps rotated, for each turn; none if there are no maps."""
        if not any(self._is_map(leaf) for leaf in tree_leaves((args, kwargs))):
            return []
        return [
            tree_map(
                lambda leaf, turn=turn: turn(leaf) if self._is_map(leaf) else leaf, (args, kwargs)
            )
            for turn in self.turns
        ]

    def _is_map(self, leaf: Any) -> bool:
        return (
            isinstance(leaf, Tensor)
            and leaf.dim() == 4
            and leaf.shape[-1] == leaf.shape[-2] > 1
            and id(leaf) in self.derived
            and id(leaf) not in self.rearranged
        )

    def _judge(
        self,
        name: str,
        step: Any,
        call: Callable[..., Any],
        args: Any,
        kwargs: Any,
        output: Any,
        rotated_inputs: list[Any],
    ) -> None:
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if id(leaf) in self.derived]
        if not inputs:
            return
        outputs = [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor)]
        self.derived |= {id(tensor): tensor for tensor in outputs}
        kind = type(step).__name__ if isinstance(step, nn.Module) else function_name(step)
        known = [tensor for tensor in inputs if id(tensor) not in self.rearranged]
        maps = [tensor for tensor in known if self._is_map(tensor)]
        rearranging = kind in _LAYOUT or any(t.dim() == 3 or t.dim() > 4 for t in outputs)
        if len(known) < len(inputs) or (maps and rearranging):
            self.rearranged |= {id(tensor) for tensor in outputs if tensor.dim() > 2}
            if len(known) == len(inputs):
                self._note(f"{kind} in {name or 'the model'} rearranges the maps; what follows it")
            return
        if not rotated_inputs:
            return
        try:
            again = [call(*given, **named) for given, named in rotated_inputs]
        except (RuntimeError, TypeError, ValueError) as refusal:
            self.notes.append(
                f"{kind} in {name or 'the model'} cannot be run again on rotated maps: {refusal}"
            )
            return
        error = max(map(self._error, self.turns, repeat(outputs), again))
        size = pair(maps[0].shape[-2:])
        if error > ROUNDING[maps[0].dtype]:
            self.faults.append(broken(name, step, kind, size, error))
            return
        new_size = pair(outputs[0].shape[-2:]) if outputs[0].dim() == 4 else size
        repair = None
        if isinstance(step, nn.Module):
            factor, advice = kept_share(step, size, new_size), ""
            repair = layer_repair(step)
        else:
            factor, advice = kept_share_of_function(kind, args, kwargs, size, new_size)
        if factor > 1:
            why = f"keeps one sample in {factor:g} without a blur{advice and '; '}{advice}"
            self.faults.append(Fault(name, kind, why, 0.0, repair))

    @staticmethod
    def _error(turn: Turn, outputs: list[Tensor], again: Any) -> float:
        """How far what came out for rotated maps is from the rotated outputs, relatively."""
        largest = 0.0
        responses = [leaf for leaf in tree_leaves(again) if isinstance(leaf, Tensor)]
        for output, response in zip(outputs, responses):
            expected = turn(output) if output.dim() == 4 else output
            if expected.shape != response.shape:
                return math.inf
            if output.is_floating_point():
                error = (response - expected).norm() / output.norm().clamp_min(1e-30)
                largest = max(largest, error.item())
        return largest

    def _note(self, subject: str) -> None:
        self.notes.append(f"{subject} was not tested step by step")


def broken(name: str, step: Any, kind: str, size: tuple[int, int], error: float) -> Fault:
    """A fault in words, and how it can be fixed."""
    if isinstance(step, nn.Module):
        why, repair = layer_fault(step, size)
        return Fault(name, kind, why, error, repair)
    name_of = kind.strip("_").removeprefix("i").removesuffix("_")
    if kind in _FLATTENING:
        why = flattening(size) + "; average over the map instead, x.mean((-2, -1))"
        return Fault(name, kind, why, error, None)
    if name_of in _COMBINING:
        why = "combines the maps with values that depend on the position"
    else:
        why = _WHY.get(kind, "its output does not rotate with its input")
    return Fault(name, kind, why, error, None)


def layer_fault(layer: nn.Module, size: tuple[int, int]) -> tuple[str, str | None]:
    """Why a layer does not rotate with its input, and the repair for it."""
    if isinstance(layer, nn.Flatten):
        return flattening(size), "flatten"
    if isinstance(layer, nn.ConvTranspose2d):
        return "a transposed convolution", "transpose"
    if isinstance(layer, nn.Conv2d):
        uneven = sliding_fault(layer, size)
        if layer.kernel_size == (1, 1) and uneven:
            return uneven, "stride"
        return f"a plain convolution of {'x'.join(map(str, layer.kernel_size))} pixels", None
    if isinstance(layer, BesselConv2d):
        uneven = sliding_fault(layer, size)
        if uneven:
            return uneven, "padding" if layer.padding == "same" else "stride"
    if isinstance(layer, nn.MaxPool2d | nn.AvgPool2d):
        return sliding_fault(layer, size) or "its windows are not centred", layer_repair(layer)
    if isinstance(layer, nn.LayerNorm):
        return "has a separate weight for each position", None
    if isinstance(layer, nn.Upsample):
        return "its samples are not centred on the maps; use mode='bilinear'", None
    kind = type(layer).__name__
    return f"the output of {kind}({layer.extra_repr()}) does not rotate with its input", None


def layer_repair(layer: nn.Module) -> str | None:
    """The repair for a layer that drops samples."""
    if isinstance(layer, nn.Conv2d | BesselConv2d):
        return "stride"
    is_pool = isinstance(layer, nn.MaxPool2d | nn.AvgPool2d)
    return "pool" if is_pool and isinstance(repaired_pool(layer), nn.Module) else None


def flattening(size: tuple[int, int]) -> str:
    return f"flattens the {size[0]} x {size[1]} positions of a map, which rotate with the image"


def kept_share(layer: nn.Module, size: tuple[int, int], new_size: tuple[int, int]) -> float:
    """One sample in how many a layer keeps, without a low-pass before.

    An average over windows that reach from sample to sample is a low-pass; a maximum over them is none.
    """
    if isinstance(layer, nn.Conv2d | BesselConv2d):
        return max(layer.stride)
    if isinstance(layer, nn.MaxPool2d | nn.AvgPool2d):
        stride = max(window_stride(layer))
        blurs = isinstance(layer, nn.AvgPool2d) and max(pair(layer.kernel_size)) >= stride
        return 1 if blurs else stride
    if isinstance(layer, nn.Upsample):
        return shrinking(layer.mode, size, new_size)
    return 1


def kept_share_of_function(
    kind: str, args: Any, kwargs: Any, size: tuple[int, int], new_size: tuple[int, int]
) -> tuple[float, str]:
    """The same for a function that a ``forward`` calls, and what to do about it."""

    def argument(position: int, name: str) -> Any:
        return kwargs.get(name, args[position] if len(args) > position else None)

    if kind in ("max_pool2d", "avg_pool2d"):
        twin = nn.MaxPool2d if kind == "max_pool2d" else nn.AvgPool2d
        layer = twin(argument(1, "kernel_size"), argument(2, "stride") or None)
        return kept_share(
            layer, size, new_size
        ), f"it can be repaired if it is an nn.{twin.__name__}"
    if kind == "conv2d":
        stride = max(pair(argument(3, "stride") or 1))
        return stride, "convert can replace it if it is an nn.Conv2d"
    if kind == "interpolate" and not argument(7, "antialias"):
        mode = argument(3, "mode") or "nearest"
        return shrinking(mode, size, new_size), "antialias=True blurs"
    if kind == "__getitem__":
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        places = index[-2:] if any(part is Ellipsis for part in index) else index[2:]
        steps = [part.step or 1 for part in places if isinstance(part, slice)]
        return max(steps, default=1), "BlurPool2d blurs"
    return 1, ""


def shrinking(mode: str, size: tuple[int, int], new_size: tuple[int, int]) -> float:
    """One sample in how many an interpolation keeps; halving, the linear ones average all of them."""
    factor = size[0] / new_size[0]
    blurs = mode == "area" or (mode in ("bilinear", "bicubic") and factor <= 2)
    return 1 if blurs else factor


def function_name(function: Any) -> str:
    """The last part of a function's public name, such as "max_pool2d"."""
    full: str = resolve_name(function) or getattr(function, "__name__", str(function))
    return full.rsplit(".", 1)[-1]
