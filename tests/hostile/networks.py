"""A network whose training has everything that a checkpoint must keep."""

from torch import nn

from besselnet.models import register_model
from train.toys import toy_model


@register_model(
    "stateful",
    symmetry="none",
    exactness="none",
    sizes="fixed",
    smallest_size=6,
    summary="Batch normalisation and dropout, for two classes of grey images of 6 x 6 pixels",
)
def stateful_network(*, in_channels: int, num_classes: int, image_size: int) -> nn.Module:
    if (in_channels, num_classes, image_size) != (1, 2, 6):
        raise ValueError("stateful is for two classes of grey images of 6 x 6 pixels")
    return toy_model()
