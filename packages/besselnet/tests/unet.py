"""A small U-Net as people write it, for the tests of the conversion."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def double_conv(in_channels: int, out_channels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=False),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(inplace=True),
        nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    """Two levels down by max pooling, two up, skip connections; images to maps of the same size.

    Args:
        in_channels, num_classes, width: channels of images, of the output and of the first level.
        transposed: enlarge by transposed convolutions instead of bilinear interpolation.
        pool_by_function: call ``F.max_pool2d`` instead of owning an ``nn.MaxPool2d``.
    """

    def __init__(
        self,
        in_channels: int = 1,
        num_classes: int = 2,
        width: int = 6,
        transposed: bool = False,
        pool_by_function: bool = False,
    ) -> None:
        super().__init__()
        self.first = double_conv(in_channels, width)
        self.pool = partial(F.max_pool2d, kernel_size=2) if pool_by_function else nn.MaxPool2d(2)
        self.second = double_conv(width, 2 * width)
        self.bottom = double_conv(2 * width, 4 * width)
        self.up_second = self.enlarge(4 * width, 2 * width, transposed)
        self.merge_second = double_conv(4 * width, 2 * width)
        self.up_first = self.enlarge(2 * width, width, transposed)
        self.merge_first = double_conv(2 * width, width)
        self.head = nn.Conv2d(width, num_classes, 1)

    @staticmethod
    def enlarge(in_channels: int, out_channels: int, transposed: bool) -> nn.Module:
        if transposed:
            return nn.ConvTranspose2d(in_channels, out_channels, 2, stride=2)
        return nn.Sequential(
            nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False),
            nn.Conv2d(in_channels, out_channels, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        second = self.second(self.pool(first))
        bottom = self.bottom(self.pool(second))
        second = self.merge_second(torch.cat([second, self.up_second(bottom)], 1))
        first = self.merge_first(torch.cat([first, self.up_first(second)], 1))
        logits: Tensor = self.head(first)
        return logits
