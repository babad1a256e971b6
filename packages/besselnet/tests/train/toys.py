"""Small classifiers and batches that the tests of training train in milliseconds."""

from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn


class ToyBatches:
    """Images of noise whose label is the sign of their mean; shuffled by (seed, epoch) alone."""

    def __init__(self, images: int = 64, batch_size: int = 16, rank: int = 0, world_size: int = 1):
        generator = torch.Generator().manual_seed(7)
        self.images = torch.randn(images, 1, 6, 6, generator=generator)
        self.labels = (self.images.mean((1, 2, 3)) > 0).long()
        self.batch_size, self.rank, self.world_size = batch_size, rank, world_size
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return -(-len(self.labels) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(self.epoch)
        order = torch.randperm(len(self.labels), generator=generator)
        for batch in order.split(self.batch_size):
            mine = batch[self.rank :: self.world_size]
            yield self.images[mine], self.labels[mine]


def toy_model(dropout: float = 0.2, norm: bool = True) -> nn.Module:
    """A classifier with the things that carry state: dropout and batch normalisation."""
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4) if norm else nn.Identity(),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Flatten(),
        nn.Linear(64, 2),
    )


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    """Whether two state dicts agree in every bit."""
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def write_weights(path: Path, model: nn.Module) -> None:
    """The weights as bytes that two trainings can be compared by."""
    save_file(weights_of(model), path)
