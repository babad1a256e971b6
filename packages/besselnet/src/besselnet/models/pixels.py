"""Base classes for segmentation networks: a U-Net and a linear layer on its feature maps."""

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor, nn

from besselnet.models.template import FeatureNetwork, Stage

__all__ = ["SMALLEST_SIDE", "PixelNetwork", "UNetFeatures"]

# Four halvings leave one pixel of it.
SMALLEST_SIDE = 16


class UNetFeatures(nn.Module):
    """Encoder and decoder of a U-Net (Ronneberger et al., 2015), with output of the size of the image.

    Args:
        down: encoder levels; each maps the images, or the maps of the previous level, to its own maps.
        up: decoder levels, from the second coarsest to the finest; each accepts the coarser maps and those
            of `down` at its level.
    """

    def __init__(self, down: Iterable[nn.Module], up: Iterable[nn.Module]) -> None:
        super().__init__()
        self.down = nn.ModuleList(down)
        self.up = nn.ModuleList(up)

    def forward(self, x: Any) -> Any:
        """Map images (N, in_channels, H, W) to feature maps (N, channels, H, W)."""
        levels = []
        for down in self.down:
            x = down(x)
            levels.append(x)
        for up, fine in zip(self.up, reversed(levels[:-1])):
            x = up(x, fine)
        return x


class PixelNetwork(FeatureNetwork):
    """Segmentation network: feature maps of the size of the image, and a linear layer on each pixel.

    Returns logits (N, num_classes, H, W), or the feature maps if `num_classes` is 0.

    Args:
        features, channels, num_classes: as in `FeatureNetwork`.
        level_channels: channels of each level of `features`, for `FeatureMaps`, if it is a `UNetFeatures`.
    """

    def __init__(
        self,
        features: nn.Module,
        channels: int,
        num_classes: int,
        level_channels: Sequence[int] = (),
    ) -> None:
        stages = [Stage(n, count, 2**n) for n, count in enumerate(level_channels)]
        super().__init__(features, channels, num_classes, SMALLEST_SIDE, stages)

    @staticmethod
    def make_head(channels: int, num_classes: int) -> nn.Module:
        return nn.Conv2d(channels, num_classes, 1)

    def classify(self, maps: Tensor) -> Tensor:
        logits: Tensor = self.head(maps)
        return logits

    @property
    def encoder(self) -> nn.Module:
        down: nn.Module = self.features.down  # type: ignore[assignment]
        return down
