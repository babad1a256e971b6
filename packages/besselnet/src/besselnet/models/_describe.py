"""What a model is, costs and keeps: counted and measured on the model itself."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from besselnet.models._create import create_model
from besselnet.models._registry import model_info

__all__ = ["ModelDescription", "count_parameters", "describe_model"]


@dataclass(frozen=True)
class ModelDescription:
    """A model built for one kind of images.

    Attributes:
        name, ..., training: as in `ModelInfo`; in_channels, num_classes, image_size: what it was built for.
        parameters: learned numbers.
        multiply_adds: those of convolutions and matrix products for one image, counted while it ran.
        quarter_turn_error: largest change of the logits over the three quarter turns of an image,
            relative to the change from that image to another; untrained, float32.
    """

    name: str
    summary: str
    symmetry: str
    exactness: str
    sizes: str
    options: dict[str, Any]
    training: dict[str, Any]
    in_channels: int
    num_classes: int
    image_size: int
    parameters: int
    multiply_adds: int
    quarter_turn_error: float


def describe_model(
    name: str,
    *,
    in_channels: int = 1,
    num_classes: int = 10,
    image_size: int = 28,
    **options: Any,
) -> ModelDescription:
    """Build the model and tell what it is, costs and keeps. The arguments are `create_model`'s."""
    info = model_info(name)
    shape = {"in_channels": in_channels, "num_classes": num_classes, "image_size": image_size}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = create_model(name, **shape, **options)
        coarse = torch.rand(4, in_channels, 7, 7)
    images = F.interpolate(coarse, image_size, mode="bicubic", align_corners=False)
    # Normalisation takes the statistics of these images in place of its initial 0 and 1. Far from the real
    # ones, those would saturate every activation, and a model whose logits are constant would look
    # perfectly invariant.
    for layer in model.modules():
        if isinstance(getattr(layer, "momentum", None), float):
            layer.momentum = 1.0  # type: ignore[assignment]
    image, another = images[:1], images[1:2]
    with torch.no_grad():
        model.train()(images)
        model.eval()
        with FlopCounterMode(display=False) as counter:
            logits = model(image)
        turned = [model(image.rot90(turns, (-2, -1))) for turns in (1, 2, 3)]
        scale = (model(another) - logits).norm()
    return ModelDescription(
        name,
        info.summary,
        info.symmetry,
        info.exactness,
        info.sizes,
        options={**info.options, **options},
        training=dict(info.training),
        **shape,
        parameters=count_parameters(model),
        multiply_adds=counter.get_total_flops() // 2,
        quarter_turn_error=float(max((other - logits).norm() for other in turned) / scale),
    )


def count_parameters(model: nn.Module) -> int:
    """Number of learned numbers."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)
