"""Feature maps of several sizes from a besselnet network, for a decoder that names every pixel.

`features_only=True` gives the maps of every stage; a small decoder brings them to one size and adds
them. The images show a rod and a disc. In training every rod lies flat; in the test they stand.

    python examples/segmentation_backbone.py --steps 200
"""

import argparse
import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from besselnet import create_model
from besselnet.testing import equivariance_error, plane_waves


class Segmenter(nn.Module):
    """Only 1 x 1 convolutions and enlargements after the backbone: nothing that knows a direction."""

    def __init__(self, backbone: nn.Module, num_classes: int) -> None:
        super().__init__()
        self.backbone = backbone
        channels = [stage["num_chs"] for stage in backbone.feature_info]
        self.lateral = nn.ModuleList(nn.Conv2d(count, 16, 1) for count in channels)
        self.head = nn.Conv2d(16, num_classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        maps = [layer(m) for layer, m in zip(self.lateral, self.backbone(x))]
        size = maps[0].shape[-2:]
        enlarged = [F.interpolate(m, size, mode="bilinear", align_corners=False) for m in maps]
        return self.head(F.relu(sum(enlarged)))


def rods_and_discs(count: int, degrees: float, seed: int, size: int = 32) -> tuple[Tensor, Tensor]:
    """Images (N, 1, S, S) and the class of each pixel: 0 nothing, 1 a rod at an angle, 2 a disc."""
    generator = torch.Generator().manual_seed(seed)
    axis = torch.arange(size) - (size - 1) / 2
    y, x = torch.meshgrid(-axis, axis, indexing="ij")
    (x1, y1), (x2, y2) = (torch.rand(2, 2, count, 1, 1, generator=generator) - 0.5) * size / 2
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    along, across = cos * (x - x1) + sin * (y - y1), cos * (y - y1) - sin * (x - x1)
    disc = (x - x2).square() + (y - y2).square() < 16
    classes = torch.where((along.abs() < 7) & (across.abs() < 2), 1, 2 * disc)
    noise = 0.1 * torch.randn(count, size, size, generator=generator)
    return ((classes > 0) + noise).unsqueeze(1), classes


def main(steps: int) -> None:
    torch.manual_seed(0)
    # "same": the maps of every stage cover the whole image.
    options = {"width": 0.5, "last_padding": "same"}
    backbone = create_model(
        "besselnet_small", in_channels=1, image_size=32, features_only=True, **options
    )
    model = Segmenter(backbone, num_classes=3)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for step in range(steps):
        images, classes = rods_and_discs(8, degrees=0, seed=step)
        loss = F.cross_entropy(model(images), classes, weight=torch.tensor([0.2, 1, 1]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        for name, degrees in (("lie", 0), ("lean", 45), ("stand", 90)):
            images, classes = rods_and_discs(16, degrees, seed=10**6)
            right = (model(images).argmax(1) == classes)[classes > 0].float().mean()
            print(f"rods that {name}: {right:.1%} of the pixels of rods and discs named right")
    error = equivariance_error(model, plane_waves(4, size=32), (90, 180, 270), region="disc")
    print(f"largest error of the maps at quarter turns: {error.max():.0e}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40)
    main(parser.parse_args().steps)
