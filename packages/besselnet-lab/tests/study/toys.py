"""A study small enough to run in tests: random images, a tiny plain network."""

from pathlib import Path

import numpy as np

RECIPE = """
title = "tiny"
seeds = [0, 1]
judge_images = 10

[train]
epochs = 2
device = "cpu"

[data.D]
source = "npz"
file = "tiny.npz"
image_size = 28
channels = 1
classes = 2
images = 80
train_images = { low = 8 }
train = { batch_size = 4 }

[[methods]]
method = "narrow"
model = "cnn"
options = { width = 0.13 }

[[methods]]
method = "quick"
group = "none"
model = "cnn"
options = { width = 0.13 }
train = { learning_rate = 0.01 }

[[columns]]
data_set = "D"
augmentation = "upright"
regimes = ["low"]
"""


def write_images(
    path: Path, *, count: int = 80, size: int = 28, channels: int = 1, classes: int = 2
):
    """Random images as an .npz file, from 16 slides."""
    generator = np.random.default_rng(0)
    shape = (count, size, size, channels)
    np.savez(
        path,
        x=generator.integers(0, 256, shape, dtype=np.uint8),
        y=np.arange(count) % classes,
        slide=np.arange(count) * 16 // count,
    )
    return path


def write_study(folder: Path, recipe: str = RECIPE) -> Path:
    """A recipe and its images in `folder`; returns the recipe."""
    folder.mkdir(parents=True, exist_ok=True)
    write_images(folder / "tiny.npz")
    path = folder / "tiny.toml"
    path.write_text(recipe)
    return path


def make_result(
    accuracy: float,
    *,
    data_set: str = "MNIST",
    augmentation: str = "upright",
    regime: str = "low",
    method: str = "B-CNN k_max",
    group: str = "SO(2)",
    seed: int = 0,
    model: str = "bcnn_so2",
    judge: str = "test",
    notes: tuple[str, ...] = (),
    train_images: int = 120,
    rotation: dict | None = None,
) -> dict:
    """What a finished cell leaves, with a share of right answers of `accuracy`."""
    cell = {
        "data_set": data_set,
        "augmentation": augmentation,
        "regime": regime,
        "method": method,
        "group": group,
        "seed": seed,
        "protocol": "paper",
    }
    result = {
        "format": 2,
        "study": "made up",
        "cell": cell,
        "accuracy": accuracy,
        "judged": {"part": judge, "images": 100},
        "train_images": train_images,
        "notes": list(notes),
        "model": {"name": model, "parameters": 1000, "multiply_adds": 2000},
        "seconds": {"training": 30.0 + seed},
        "config": {"images": {}, "model": {}, "train": {}},
        "curve": {
            "epoch": [1, 2],
            "step": [10, 20],
            "train_loss": [1.0, 0.5],
            "train_accuracy": [0.5, accuracy],
            "seconds": [10.0 + seed, 20.0 + seed],
        },
    }
    return result if rotation is None else {**result, "rotation": rotation}


def comparable(result: dict) -> dict:
    """What two runs of a cell must agree in: all but times and the environment."""
    kept = {k: v for k, v in result.items() if k not in ("seconds", "finished", "environment")}
    timing = ("seconds", "images_per_second")
    kept["curve"] = {k: v for k, v in result["curve"].items() if k not in timing}
    return kept
