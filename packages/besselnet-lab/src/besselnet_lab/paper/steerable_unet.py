"""A U-Net on escnn, in the shape of ``besselnet_unet``; `besselnet_lab.paper.peers` registers it."""

from collections.abc import Sequence
from typing import Any

import torch
from escnn import gspaces
from escnn import nn as enn
from torch import nn

from besselnet.models.pixels import PixelNetwork, UNetFeatures
from besselnet.nn import BlurPool2d, Upsample2d
from besselnet_lab.paper.steerable import (
    FieldPool2d,
    SteerableConv,
    SteerableFeatures,
    quiet_escnn,
)

__all__ = ["regular_unet_network"]


def regular_unet_network(
    turns: int,
    *,
    in_channels: int,
    num_classes: int,
    fields: Sequence[Sequence[int]],
    kernel_size: int,
) -> PixelNetwork:
    """U-Net of regular fields of the group of `turns` turns, BatchNorm and ReLU.

    Pooling and interpolation are those of `besselnet_unet`. The last fields are reduced to their maximum over
    the group.

    Args:
        turns: of the group.
        in_channels: channels of the images.
        num_classes: logits of a pixel.
        fields: of the convolutions of each level.
        kernel_size: of all convolutions but those that mix fields before the interpolation.
    """
    with quiet_escnn():
        space = gspaces.rot2dOnR2(turns)

        def kind(count: int) -> Any:
            return enn.FieldType(space, count * [space.regular_repr])

        def block(in_type: Any, out_type: Any) -> list[nn.Module]:
            conv = SteerableConv(
                in_type, out_type, kernel_size, padding=kernel_size // 2, bias=False
            )
            return [conv, enn.InnerBatchNorm(out_type), enn.ReLU(out_type)]

        image = enn.FieldType(space, in_channels * [space.trivial_repr])
        current = image
        down = []
        for level, counts in enumerate(fields):
            layers: list[nn.Module] = []
            if level:
                layers.append(FieldPool2d(BlurPool2d(sigma=0.66, ceil_mode=True)))
            for count in counts:
                layers += block(current, kind(count))
                current = kind(count)
            down.append(nn.Sequential(*layers))
        up = []
        for counts in reversed(fields[:-1]):
            fine = kind(counts[-1])
            mix = SteerableConv(current, fine, 1, bias=False)
            up.append(FieldUp(mix, nn.Sequential(*block(fine + fine, fine))))
            current = fine
        invariant = enn.GroupPooling(current)
        layers = [UNetFeatures(down, up), invariant]
        features = SteerableFeatures(image, nn.Sequential(*layers))
    return PixelNetwork(features, invariant.out_type.size, num_classes)


class FieldUp(nn.Module):
    """Coarse fields, mixed and interpolated, beside the fine ones, and a block on both."""

    def __init__(self, mix: nn.Module, block: nn.Module) -> None:
        super().__init__()
        self.mix = mix
        self.upsample = Upsample2d()
        self.block = block

    def forward(self, coarse: Any, fine: Any) -> Any:
        """Fields of (h, w) pixels, and of (H, W), to fields of (H, W)."""
        mixed = self.mix(coarse)
        both = torch.cat([self.upsample(mixed.tensor, fine.tensor), fine.tensor], 1)
        return self.block(enn.GeometricTensor(both, mixed.type + fine.type))
