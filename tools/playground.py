"""Make what the playground shows of digits: two networks with their feature maps, and test images.

The networks are those of `besselnet demo`, trained on the same 1 000 upright digits: the one whose weights
come with besselnet, and the plain CNN, which is trained here in less than a minute. Run it with
`make playground`.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from besselnet.atomic import write_atomically, write_json
from besselnet.data import ImageSet
from besselnet.demo import DATA, NETWORKS, TRAIN
from besselnet.export import export_model
from besselnet.models import count_parameters, create_model
from besselnet.play import PAGE, kernels_of
from besselnet.train import RunConfig, load_images, train_run

PER_CLASS = 10


def shown_digits(test: ImageSet) -> ImageSet:
    """The first test images of each class, class by class."""
    places = [(test.labels == label).nonzero()[:PER_CLASS, 0] for label in range(10)]
    return test.select(torch.cat(places))


def main() -> None:
    splits = load_images(DATA)
    assert splits.test is not None
    digits = shown_digits(splits.test)
    with tempfile.TemporaryDirectory() as folder:
        config = RunConfig(DATA, NETWORKS["plain CNN"], TRAIN)
        plain = train_run(config, Path(folder, "plain"), images=splits)
    ours = create_model("besselnet_small", pretrained="digits")
    networks: dict[str, nn.Module] = {"besselnet": ours.eval(), "plain CNN": plain.model}
    images = digits.images.float() / 255
    described = []
    for name, model in networks.items():
        file = PAGE / "digits" / f"{name.split()[0]}.onnx"
        export_model(model, file, to="onnx", images=images, classes=digits.classes, maps=True)
        described.append(describe(name, file, model, splits.test))
        print(described[-1]["name"], described[-1]["accuracy"], f"{file.stat().st_size:,} bytes")
    about = {
        "classes": list(digits.classes),
        "image_size": images.shape[-1],
        "labels": digits.labels.tolist(),
        "networks": described,
    }
    write_json(PAGE / "digits" / "digits.json", about)
    write_atomically(PAGE / "digits" / "digits.bin", digits.images.numpy().tobytes())


def describe(name: str, file: Path, model: nn.Module, test: ImageSet) -> dict[str, Any]:
    """What the page says of a network."""
    with torch.no_grad():
        answers: Tensor = model(test.images.float() / 255).argmax(1)
    return {
        "name": name,
        "file": file.name,
        "parameters": count_parameters(model),
        "accuracy": (answers == test.labels).double().mean().item(),
        "kernels": kernels_of(model),
    }


if __name__ == "__main__":
    sys.exit(main())
