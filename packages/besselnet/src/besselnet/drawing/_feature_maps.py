"""Feature maps of an image and of its rotated copies, side by side."""

from collections.abc import Mapping, Sequence

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from besselnet.drawing._style import SEQUENTIAL, WIDTH, new_figure, show
from besselnet.nn import evaluating

__all__ = ["draw_feature_maps", "layer_outputs", "strongest_maps"]


def layer_outputs(model: nn.Module, images: Tensor) -> list[Tensor]:
    """What each activation layer of ``model`` gives for images (N, C, H, W): (N, channels, h, w)."""
    found: list[Tensor] = []
    hooks = [
        module.register_forward_hook(lambda _module, _inputs, output: found.append(output))
        for module in model.modules()
        if isinstance(module, (nn.ReLU, nn.Softsign, nn.Tanh))
    ]
    try:
        with evaluating(model):
            model(images)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def strongest_maps(model: nn.Module, images: Tensor) -> list[Tensor]:
    """For each activation layer the map that responds most to the first image: (N, h, w).

    Maps smaller than 3 x 3 show nothing and are left out.
    """
    return [
        maps[:, maps[0].flatten(1).norm(dim=1).argmax()]
        for maps in layer_outputs(model, images)
        if min(maps.shape[-2:]) >= 3
    ]


def draw_feature_maps(
    models: Mapping[str, nn.Module],
    image: Tensor,
    degrees: float,
    rotated: Tensor,
    layers: Sequence[int],
) -> Figure:
    """Two rows for each model: the maps of ``image`` and of ``rotated``, at the given layers."""
    columns = len(layers) + 1
    # Two rows of square maps, and a title.
    figure = new_figure((2 * WIDTH / columns + 0.5) * len(models))
    parts = figure.subfigures(len(models), 1, squeeze=False)[:, 0]
    for part, (name, model) in zip(parts, models.items()):
        part.suptitle(name)
        pairs = strongest_maps(model, torch.stack([image, rotated]))
        axes = part.subplots(2, columns)
        for row, picture in enumerate((image, rotated)):
            show(axes[row, 0], picture.mean(0).numpy())
            axes[row, 0].set_ylabel("upright" if row == 0 else f"rotated by {degrees:g}°")
            for column, layer in enumerate(layers, start=1):
                pair = pairs[layer]
                limit = pair.max().item()
                show(axes[row, column], pair[row].numpy(), cmap=SEQUENTIAL, high=limit)
                if row == 0:
                    axes[row, column].set_title(f"layer {layer + 1}", fontsize="medium")
    return figure
