"""Convert networks to functions on arrays, for tiles."""

import numpy as np
import torch
from torch import nn

from besselnet.masks._tiles import Array, Forward
from besselnet.nn import evaluating


def probabilities_of(model: nn.Module) -> Forward:
    """Return a function from images (C, h, w), float32 in [0, 1], to probabilities (K, h, w).

    The network runs in eval mode on its device; its mode is restored. The function raises `ValueError` if
    logits are infinite or NaN, or have another size than the image.
    """
    parameter = next(model.parameters(), None)
    device = torch.device("cpu") if parameter is None else parameter.device

    def forward(image: Array) -> Array:
        pixels = torch.from_numpy(np.ascontiguousarray(image, np.float32))
        with evaluating(model):
            logits = model(pixels[None].to(device))
        if logits.ndim != 4 or logits.shape[2:] != pixels.shape[1:]:
            raise ValueError(
                f"the network returns shape {tuple(logits.shape)} for {tuple(pixels[None].shape)}: must be "
                "logits for every pixel, (N, K, H, W)"
            )
        found: Array = logits[0].float().softmax(0).cpu().numpy()
        if not np.isfinite(found).all():
            raise ValueError("the logits of the network are infinite or NaN")
        return found

    return forward
