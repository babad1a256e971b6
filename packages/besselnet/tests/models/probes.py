"""What the tests of the models share: kinds of images, a little training, the change on turning."""

import importlib.util

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

needs_escnn = pytest.mark.skipif(
    importlib.util.find_spec("escnn") is None,
    reason="escnn is not installed (pip install 'besselnet-lab[peers]')",
)

KINDS = {"mnist": (1, 10, 28), "malaria": (3, 2, 64), "galaxy10": (3, 10, 128)}
# Exactness does not depend on the width; a narrow network is tested in less time.
NARROW = (2, 3, 3, 3, 4, 4)


def model_params(names: list[str], *, slow: tuple[str, ...] = ()) -> list[pytest.param]:
    """Names as parameters of a test: skipped without escnn if it builds them, slow if so listed."""
    return [
        pytest.param(
            name,
            marks=[
                *([needs_escnn] if name.startswith(("e2cnn", "hnet")) else []),
                *([pytest.mark.slow] if name in slow else []),
            ],
        )
        for name in names
    ]


def arguments(kind: str) -> dict[str, int]:
    """`create_model`'s arguments for a kind of images."""
    return dict(zip(("in_channels", "num_classes", "image_size"), KINDS[kind]))


def smooth_images(count: int, channels: int, size: int, seed: int = 0) -> Tensor:
    """Images that differ from each other by more than noise."""
    noise = torch.rand(count, channels, 7, 7, generator=torch.Generator().manual_seed(seed))
    return F.interpolate(noise, size, mode="bicubic", align_corners=False)


def train_steps(model: nn.Module, images: Tensor, steps: int) -> None:
    """A few steps of training on invented labels.

    Normalisation layers take the statistics of the last step: running averages over so few steps
    would be far from them, and saturated activations would hide any change of the image.
    """
    for module in model.modules():
        if isinstance(getattr(module, "momentum", None), float):
            module.momentum = 1.0
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    labels = torch.arange(len(images)) % 2
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()


def turn_error(model: nn.Module, images: Tensor, mirror: bool = False) -> float:
    """Largest change of the logits of the first image under quarter turns (and mirroring).

    Relative to the change from that image to the second one: a network with constant logits does
    not pass for an invariant one.
    """
    model.eval()
    image = images[:1]
    with torch.no_grad():
        logits = model(image)
        moved = [image.flip(-1)] if mirror else [image.rot90(n, (-2, -1)) for n in (1, 2, 3)]
        change = max((model(other) - logits).norm() for other in moved)
        scale = (model(images[1:2]) - logits).norm()
    return float(change / scale)
