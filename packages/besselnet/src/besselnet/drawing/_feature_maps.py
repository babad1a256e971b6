"""Feature maps of an image and of its turned copies, side by side."""

from collections.abc import Mapping, Sequence

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

__all__ = ["draw_feature_maps", "layer_outputs", "strongest_maps"]


@torch.no_grad()
def layer_outputs(model: nn.Module, images: Tensor) -> list[Tensor]:
    """What each activation layer of ``model`` gives for images (N, C, H, W): (N, channels, h, w)."""
    found: list[Tensor] = []
    hooks = [
        module.register_forward_hook(lambda _module, _inputs, output: found.append(output))
        for module in model.modules()
        if isinstance(module, (nn.ReLU, nn.Softsign, nn.Tanh))
    ]
    try:
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
    turned: Tensor,
    layers: Sequence[int],
) -> Figure:
    """Two rows for each model: the maps of ``image`` and of ``turned``, at the given layers."""
    figure = Figure(figsize=(1.7 * (len(layers) + 1), 3.7 * len(models)), layout="constrained")
    parts = figure.subfigures(len(models), 1, squeeze=False)[:, 0]
    for part, (name, model) in zip(parts, models.items()):
        part.suptitle(name)
        pairs = strongest_maps(model, torch.stack([image, turned]))
        axes = part.subplots(2, len(layers) + 1)
        for row, picture in enumerate((image, turned)):
            axes[row, 0].imshow(picture.mean(0).numpy(), vmin=0, vmax=1, cmap="gray")
            axes[row, 0].set_ylabel("upright" if row == 0 else f"turned by {degrees:g}°")
            for column, layer in enumerate(layers, start=1):
                pair = pairs[layer]
                limit = pair.max().item()
                axes[row, column].imshow(pair[row].numpy(), vmin=0, vmax=limit, cmap="viridis")
                if row == 0:
                    axes[row, column].set_title(f"layer {layer + 1}", fontsize="medium")
        for axis in axes.flat:
            axis.set(xticks=[], yticks=[])
    return figure
