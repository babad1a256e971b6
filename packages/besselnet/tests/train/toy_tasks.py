"""Particles to segment, to measure and to label, and networks that learn them in a second."""

from pathlib import Path

import torch
from torch import Tensor, nn

from besselnet.data import IGNORED, ImageSet, Splits, register_data
from besselnet.models import register_model
from besselnet.train import DataConfig, ModelConfig, RunConfig, TrainConfig

SHAPES = {"segment": (20, 28), "regress": (20, 20), "multilabel": (20, 20)}
COUNTS = {"train": 48, "val": 16, "test": 16}


@register_model(
    "toy_pixels",
    symmetry="none",
    exactness="none",
    sizes="any",
    smallest_size=4,
    summary="A network for tests that answers for each pixel",
    answers="pixels",
)
def toy_pixels(*, in_channels: int, num_classes: int, image_size: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(in_channels, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Conv2d(8, num_classes, 1),
    )


@register_model(
    "toy_pooled",
    symmetry="none",
    exactness="none",
    sizes="any",
    smallest_size=4,
    summary="A network for tests that sees how much there is of something",
)
def toy_pooled(*, in_channels: int, num_classes: int, image_size: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(in_channels, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, num_classes),
    )


def particles(task: str, count: int, seed: int, shape: tuple[int, int] | None = None) -> ImageSet:
    """Bright discs on noise, one in an image; labels are their mask, their size, or how they look."""
    generator = torch.Generator().manual_seed(seed)
    height, width = shape or SHAPES[task]

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, 1, 1, generator=generator)

    y, x, radius = uniform(7, height - 8), uniform(7, width - 8), uniform(3, 6)
    rows, columns = torch.arange(height)[:, None], torch.arange(width)
    inside = (rows - y) ** 2 + (columns - x) ** 2 < radius**2
    noise = 0.3 * torch.rand(count, height, width, generator=generator)
    if task == "multilabel":
        # A disc in some, a bright ground in some, both or neither.
        disc, ground = (torch.rand(2, count, generator=generator) > 0.5).unbind()
        images = noise + 0.3 * ground[:, None, None] + 0.4 * (inside & disc[:, None, None])
        labels = torch.stack([disc, ground], dim=1)
        return ImageSet(images.clamp(0, 1)[:, None], labels, ("disc", "ground"))
    images = (noise + 0.6 * inside)[:, None]
    if task == "regress":
        values = torch.stack([radius[:, 0, 0] ** 2, 100 - radius[:, 0, 0] ** 2], dim=1)
        return ImageSet(images, values, ("area", "rest"))
    masks = inside.to(torch.uint8)
    masks[:, :2] = IGNORED
    return ImageSet(images, masks, ("ground", "particle"))


def make_splits(task: str, shape: tuple[int, int] | None = None) -> Splits:
    """Training, validation and test images."""
    return Splits(*(particles(task, n, i, shape) for i, n in enumerate(COUNTS.values())))


@register_data("toy-particles", summary="Particles for tests")
def load_particles(
    *, root: Path | None, image_size: int | None, seed: int, task: str = "segment"
) -> Splits:
    return make_splits(task)


def task_config(task: str, **settings: object) -> RunConfig:
    """A training on particles that learns something in a second."""
    train = {"epochs": 12, "batch_size": 8, "learning_rate": 0.03, "device": "cpu", **settings}
    name = "toy_pixels" if task == "segment" else "toy_pooled"
    data = DataConfig(source="toy-particles", augment=("rotate",), options={"task": task})
    return RunConfig(data, ModelConfig(name), TrainConfig(**train))  # type: ignore[arg-type]
