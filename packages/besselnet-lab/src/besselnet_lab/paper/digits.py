"""``besselnet_digits``: besselnet_small as it was shaped on digits, for the studies that measured it."""

from collections.abc import Sequence

from torch import nn

from besselnet.checks import check_count
from besselnet.models import create_model, model_info, register_model

__all__ = ["besselnet_digits"]

_SMALL = model_info("besselnet_small")


@register_model(
    "besselnet_digits",
    symmetry=_SMALL.symmetry,
    exactness=_SMALL.exactness,
    sizes=_SMALL.sizes,
    smallest_size=_SMALL.smallest_size,
    default_size=28,
    summary="besselnet_small as it was shaped on digits: about 110 000 parameters at 28 pixels",
    training=_SMALL.training,
)
def besselnet_digits(
    *,
    in_channels: int,
    num_classes: int,
    image_size: int,
    width: float = 1.7,
    symmetry: str = "SO(2)",
    kernel_size: int = 7,
    cutoff: str | float = "strong",
    scales: Sequence[int] | None = None,
    response: str = "signed",
    sampling: str = "cubic",
    low_pass: float = 0.8,
    activation: str = "relu",
    normalization: str = "batch",
    pool_blur: float = 0.66,
    depth: int = 2,
    dropout: float = 0.3,
    last_padding: str = "valid",
    algorithm: str = "auto",
) -> nn.Module:
    """`besselnet_small` on images as they are, with `depth` convolutions in each stage."""
    further = check_count("depth", depth) - 1
    return create_model(
        "besselnet_small",
        in_channels=in_channels,
        num_classes=num_classes,
        image_size=image_size,
        field="none",
        channels=[[8, *[16] * further], [24, *[24] * further], [32, *[40] * further]],
        width=width,
        symmetry=symmetry,
        kernel_size=kernel_size,
        cutoff=cutoff,
        scales=scales,
        response=response,
        sampling=sampling,
        low_pass=low_pass,
        activation=activation,
        normalization=normalization,
        pool_blur=pool_blur,
        dropout=dropout,
        last_padding=last_padding,
        algorithm=algorithm,
    )
