"""Feature maps of several sizes from a besselnet network, for a decoder that names every pixel.

The network is cut where it halves its maps; a small decoder brings the maps of all stages to one size
and adds them. The images show a rod and a disc. In training every rod lies flat; in the test they stand.

    python examples/segmentation_backbone.py --steps 200
"""

import argparse
import math
from itertools import accumulate, pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from besselnet import BlurPool2d, create_model
from besselnet.testing import equivariance_error, plane_waves


class Backbone(nn.Module):
    """Images (N, C, H, W) to the maps of every stage, finest first."""

    def __init__(self, layers: nn.Sequential) -> None:
        super().__init__()
        starts = [i for i, m in enumerate(layers) if isinstance(m, BlurPool2d) and m.stride > 1]
        bounds = [0, *starts, len(layers)]
        self.stages = nn.ModuleList(layers[a:b] for a, b in pairwise(bounds))

    def forward(self, x: Tensor) -> list[Tensor]:
        return list(accumulate(self.stages, lambda maps, stage: stage(maps), initial=x))[1:]


class Segmenter(nn.Module):
    """Only 1 x 1 convolutions and enlargements after the backbone: nothing that knows a direction."""

    def __init__(self, backbone: Backbone, image: Tensor, num_classes: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.lateral = nn.ModuleList(nn.Conv2d(m.shape[1], 16, 1) for m in backbone(image))
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
    network = create_model(
        "besselnet_small", in_channels=1, num_classes=3, image_size=32, **options
    )
    model = Segmenter(Backbone(network.features), torch.zeros(1, 1, 32, 32), num_classes=3)
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
