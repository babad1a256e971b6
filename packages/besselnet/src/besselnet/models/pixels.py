"""The frame of networks that answer for every pixel: a U-Net, and the last layer on its maps."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from besselnet.checks import check_count
from besselnet.models._registry import note_classes
from besselnet.models.template import Stage, channels_taken, feature_maps

__all__ = ["SMALLEST_SIDE", "PixelNetwork", "UNetFeatures"]

# Four halvings leave one pixel of it.
SMALLEST_SIDE = 16


class UNetFeatures(nn.Module):
    """Maps of the image's size, from levels of ever coarser maps and back (Ronneberger et al., 2015).

    Args:
        down: each maps the images, or the maps of the level before, to those of its level.
        up: from the coarsest but one to the finest: each takes the coarser maps, and those of `down` at its
            level.
    """

    def __init__(self, down: Iterable[nn.Module], up: Iterable[nn.Module]) -> None:
        super().__init__()
        self.down = nn.ModuleList(down)
        self.up = nn.ModuleList(up)

    def forward(self, x: Any) -> Any:
        """Images (N, in_channels, H, W) to maps (N, channels, H, W)."""
        levels = []
        for down in self.down:
            x = down(x)
            levels.append(x)
        for up, fine in zip(self.up, reversed(levels[:-1])):
            x = up(x, fine)
        return x


class PixelNetwork(nn.Module):
    """Feature maps of the image's size, and one dense layer on each of their pixels.

    Args:
        features: maps images (N, in_channels, H, W) to feature maps (N, channels, H, W).
        channels: channels of the feature maps, kept as ``num_features``.
        num_classes: logits of a pixel; 0 for no last layer: the network then gives the feature maps.
        level_channels: of the maps of each level of `features`, for `FeatureMaps`, if it is a `UNetFeatures`.
    """

    smallest_size = SMALLEST_SIDE

    def __init__(
        self,
        features: nn.Module,
        channels: int,
        num_classes: int,
        level_channels: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.features = features
        self.in_channels = channels_taken(features)
        self.num_features = channels
        self.head = _dense(channels, num_classes)
        self.stages = tuple(Stage(n, count, 2**n) for n, count in enumerate(level_channels))

    @property
    def encoder(self) -> nn.Module:
        """The levels that `stages` count, for `FeatureMaps`."""
        down: nn.Module = self.features.down  # type: ignore[assignment]
        return down

    def get_classifier(self) -> nn.Module:
        """The 1 x 1 convolution; `nn.Identity` where there is none."""
        return self.head

    def reset_classifier(self, num_classes: int) -> None:
        """Put a fresh last layer for another number of classes in place of the last one; 0 for none."""
        check_count("num_classes", num_classes, 0)
        like = next(self.features.parameters(), torch.empty(0))
        self.head = _dense(self.num_features, num_classes).to(like.device, like.dtype)
        note_classes(self, num_classes)

    def forward_features(self, x: Tensor) -> Tensor:
        """Images (N, in_channels, H, W) to feature maps (N, num_features, H, W)."""
        return feature_maps(self.features, x, self.smallest_size, self.in_channels)

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, in_channels, H, W) to logits (N, num_classes, H, W), or feature maps."""
        return self.classify(self.forward_features(x))

    def classify(self, maps: Tensor) -> Tensor:
        """Feature maps (N, num_features, H, W) to what `forward` gives."""
        logits: Tensor = self.head(maps)
        return logits

    def extra_repr(self) -> str:
        return f"smallest_size={self.smallest_size}"


def _dense(channels: int, num_classes: int) -> nn.Module:
    return nn.Conv2d(channels, num_classes, 1) if num_classes else nn.Identity()
