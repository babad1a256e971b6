"""The repair "flatten": average over a map before its positions become inputs of a linear layer."""

from torch import Tensor, nn

from besselnet.conversion._layers import summary
from besselnet.conversion._report import LayerChange
from besselnet.conversion._run import steps

__all__ = ["mend_flatten"]


def mend_flatten(model: nn.Module, images: Tensor) -> list[LayerChange]:
    """Mend, in place, what can be mended: an ``nn.Flatten``, or an adaptive pooling to several positions.

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
                counts = (sum(p.numel() for p in m.parameters()) for m in (old, new))
                changes.append(LayerChange(names[old], summary(old), summary(new), *counts))
            flattening = None
    return changes
