"""Networks that return feature maps in addition to logits."""

import torch
from torch import Tensor, nn

from besselnet.nn import activation_maps

# Smaller maps show nothing.
SMALLEST_SIDE = 3


class WithMaps(nn.Module):
    """Images to a tuple: the logits of `network`, then the maps of its last activation at each resolution.

    Args:
        network: made of ordinary layers (:mod:`besselnet.export._layers`).
        images: (N, C, H, W), what it takes.

    Attributes:
        places: which activations, counted as they are called.
    """

    def __init__(self, network: nn.Module, images: Tensor) -> None:
        super().__init__()
        self.network = network
        with torch.no_grad():
            _, maps = activation_maps(network, images[:1])
        sizes = [tuple(each.shape[2:]) for each in maps]
        last = {size: place for place, size in enumerate(sizes) if len(size) == 2}
        self.places = [place for size, place in last.items() if min(size) >= SMALLEST_SIDE]

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        logits, maps = activation_maps(self.network, x)
        return logits, *(maps[place] for place in self.places)
