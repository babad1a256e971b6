"""Trainings of a moment, and a network with everything that a checkpoint must keep."""

from torch import nn

from besselnet.models import register_model
from train.toys import toy_model

# Options of `besselnet train`.
ONE_EPOCH = [
    *("--set", "train.epochs=1", "--set", "train.batch_size=8", "--set", "train.device=cpu"),
]
QUICK = ["--model", "toy", *ONE_EPOCH]
SMALL = ["--model", "besselnet_small", "--set", "model.options.width=0.2", *ONE_EPOCH]


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
