"""Small segmentation networks: images (N, C, H, W) -> logits (N, K, H, W)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from besselnet.nn import BesselConv2d, BlurPool2d


class Pyramid(nn.Module):
    """Two levels of Bessel layers, pooled by four in between, added up at full resolution."""

    def __init__(self, channels: int = 1, classes: int = 3, width: int = 4) -> None:
        super().__init__()
        self.fine = BesselConv2d(channels, width, 5, padding=2)
        self.pool = nn.Sequential(BlurPool2d(), BlurPool2d())
        self.coarse = BesselConv2d(width, width, 5, padding=2)
        self.head = nn.Conv2d(2 * width, classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        fine = torch.relu(self.fine(images - 0.5))
        coarse = torch.relu(self.coarse(self.pool(fine)))
        enlarged = F.interpolate(coarse, scale_factor=4.0, mode="bilinear", align_corners=False)
        logits: Tensor = self.head(torch.cat([fine, enlarged], 1))
        return logits


def equivariant(channels: int = 1, classes: int = 3) -> nn.Module:
    """Exact for quarter turns, and nearly so for other angles."""
    torch.manual_seed(0)
    model = Pyramid(channels, classes)
    return _contested(model, model.head, channels)


def plain(channels: int = 1, classes: int = 3) -> nn.Module:
    """Not equivariant."""
    torch.manual_seed(0)
    head = nn.Conv2d(8, classes, 1)
    model = nn.Sequential(nn.Conv2d(channels, 8, 5, padding=2), nn.ReLU(), head)
    return _contested(model, head, channels)


def _contested(model: nn.Module, head: nn.Conv2d, channels: int) -> nn.Module:
    """`model` with a last layer for which no class is the most probable one everywhere."""
    with torch.no_grad():
        head.weight.mul_(20)
        head.bias.sub_(model(torch.rand(1, channels, 32, 32)).mean((0, 2, 3)))
    return model.eval()
