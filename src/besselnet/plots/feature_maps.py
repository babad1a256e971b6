"""Feature maps of an image and of its turned copy, side by side."""

from collections.abc import Mapping, Sequence

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

__all__ = ["draw_feature_maps", "strongest_maps"]


@torch.no_grad()
def strongest_maps(model: nn.Module, image: Tensor, turned: Tensor) -> list[tuple[Tensor, Tensor]]:
    """For each activation layer of ``model`` the map that responds most, for both images (C, H, W).

    The channel is chosen on the upright image; maps are (h, w). Maps smaller than 3 x 3 show nothing.
    """
    found: list[Tensor] = []
    hooks = [
        module.register_forward_hook(lambda _module, _inputs, output: found.append(output))
        for module in model.modules()
        if isinstance(module, (nn.ReLU, nn.Softsign, nn.Tanh))
    ]
    try:
        model(torch.stack([image, turned]))
    finally:
        for hook in hooks:
            hook.remove()
    pairs = []
    for maps in found:
        if min(maps.shape[-2:]) >= 3:
            channel = maps[0].flatten(1).norm(dim=1).argmax()
            pairs.append((maps[0, channel], maps[1, channel]))
    return pairs


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
        pairs = strongest_maps(model, image, turned)
        axes = part.subplots(2, len(layers) + 1)
        for row, picture in enumerate((image, turned)):
            axes[row, 0].imshow(picture.mean(0).numpy(), vmin=0, vmax=1, cmap="gray")
            axes[row, 0].set_ylabel("upright" if row == 0 else f"turned by {degrees:g}°")
            for column, layer in enumerate(layers, start=1):
                pair = pairs[layer]
                limit = max(m.max().item() for m in pair)
                axes[row, column].imshow(pair[row].numpy(), vmin=0, vmax=limit, cmap="viridis")
                if row == 0:
                    axes[row, column].set_title(f"layer {layer + 1}", fontsize="medium")
        for axis in axes.flat:
            axis.set(xticks=[], yticks=[])
    return figure
