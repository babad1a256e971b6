"""A study of masks small enough to run in tests: bright discs, tiny U-Nets."""

from pathlib import Path

import numpy as np

RECIPE = """
title = "tiny masks"
seeds = [0]

[data.Discs]
source = "npz"
file = "discs.npz"
channels = 1
classes = 2
images = 15
train_images = { few = 4 }
augment = ["rotate", "reflect"]

[data.Objects]
source = "npz"
file = "objects.npz"
options = { masks = "instances" }
channels = 1
classes = 3
images = 12
train_images = { few = 4 }

[[methods]]
method = "bessel"
group = "SO(2)"
model = "besselnet_unet"
options = { channels = [[2], [3]], kernel_size = 3 }
recommended = true
train = { epochs = 1 }

[[methods]]
method = "plain"
model = "unet"
options = { width = 1 }
recommended = true
train = { epochs = 1, learning_rate = 0.01 }

[[columns]]
data_set = "Discs"
augmentation = "aug"
protocol = "standard"
regimes = ["few"]

[[columns]]
data_set = "Objects"
augmentation = "aug"
judge_images = 3
regimes = ["few"]
"""


def discs(count: int, size: tuple[int, int], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(N, H, W) images with two bright discs each, and the numbers of the discs."""
    generator = np.random.default_rng(seed)
    rows, columns = np.mgrid[: size[0], : size[1]]
    instances = np.zeros((count, *size), np.uint16)
    for numbers in instances:
        for label, shift in ((1, 0.25), (2, 0.7)):
            row, column = generator.uniform(6, size[0] - 6), shift * size[1]
            numbers[np.hypot(rows - row, columns - column) < 4] = label
    noise = generator.integers(0, 60, instances.shape, dtype=np.uint8)
    return (180 * (instances > 0)).astype(np.uint8) + noise, instances


def write_study(folder: Path, recipe: str = RECIPE) -> Path:
    """A recipe and its images in `folder`; returns the recipe."""
    x, y = discs(15, (24, 21))
    fov = np.ones_like(y, np.uint8)
    fov[:, :, 0] = 0
    parts = {"train": slice(10), "test": slice(10, None)}
    arrays = {"x": x, "y": (y > 0).astype(np.uint8), "fov": fov}
    named = {f"{k}_{p}": a[s] for k, a in arrays.items() for p, s in parts.items()}
    np.savez(folder / "discs.npz", **named)
    x, y = discs(12, (24, 24), seed=1)
    np.savez(folder / "objects.npz", x=x, y=y)
    path = folder / "masks.toml"
    path.write_text(recipe)
    return path
