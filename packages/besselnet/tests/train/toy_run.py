"""A network and a folder of images small enough to train whole runs in tests."""

from pathlib import Path

import numpy as np
from PIL import Image
from torch import nn

from besselnet.models import register_model
from besselnet.train import DataConfig, ModelConfig, RunConfig, TrainConfig


@register_model(
    "toy",
    symmetry="none",
    exactness="none",
    sizes="any",
    smallest_size=8,
    summary="A network for tests",
)
def toy_network(
    *, in_channels: int, num_classes: int, image_size: int, width: int = 4
) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(in_channels, width, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(width * image_size**2, num_classes),
    )


def quick_config(images: Path) -> RunConfig:
    """A training of the toy in a moment."""
    train = TrainConfig(epochs=2, batch_size=8, learning_rate=0.01, device="cpu")
    return RunConfig(DataConfig(source=str(images)), ModelConfig("toy"), train)


def make_images(folder: Path, size: int = 10) -> Path:
    """train/, val/ and test/ of two classes, "bars" and "blobs", as PNG files."""
    chance = np.random.default_rng(0)
    y, x = np.mgrid[:size, :size]
    for part, count in (("train", 12), ("val", 6), ("test", 6)):
        for name in ("bars", "blobs"):
            place = folder / part / name
            place.mkdir(parents=True)
            for i in range(count):
                middle = chance.uniform(3, size - 3, 2)
                bright = x % 4 < 2 if name == "bars" else np.hypot(x - middle[0], y - middle[1]) < 3
                noise = chance.integers(0, 50, (size, size))
                Image.fromarray((200 * bright + noise).astype(np.uint8)).save(place / f"{i}.png")
    return folder
