"""ResNet-18 of He et al. (2016), for images of any number of channels."""

from torch import Tensor, nn

from besselnet.models._registry import PaperRow, register_model

__all__ = ["ResNet18"]


def _conv_norm(in_channels: int, out_channels: int, kernel_size: int, stride: int) -> nn.Sequential:
    padding = (kernel_size - 1) // 2
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, kernel_size, stride, padding, bias=False),
        nn.BatchNorm2d(out_channels),
    )


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions added to the input, which is projected where the shape changes."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            _conv_norm(in_channels, out_channels, 3, stride),
            nn.ReLU(),
            _conv_norm(out_channels, out_channels, 3, 1),
        )
        same_shape = stride == 1 and in_channels == out_channels
        self.shortcut = (
            nn.Identity() if same_shape else _conv_norm(in_channels, out_channels, 1, stride)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(N, in_channels, H, W) to (N, out_channels, ceil(H / stride), ceil(W / stride))."""
        return nn.functional.relu(self.residual(x) + self.shortcut(x))


@register_model(
    "resnet18",
    symmetry="none",
    exactness="no symmetry is built in",
    sizes="at least 16",
    smallest_size=16,
    summary="ResNet-18 as in the original: 7 x 7 stem of stride 2, max pooling, 2-2-2-2 blocks",
    paper_row=PaperRow("ResNet-18", "trivial"),
)
class ResNet18(nn.Module):
    """ResNet-18 with the original stem (7 x 7, stride 2, max pooling) at every image size.

    The stem was made for 224 pixels: an image of 28 is down to one pixel before the last stage
    ends. It is kept because the paper keeps it.

    Args:
        in_channels: channels of the images.
        num_classes: length of the logits.
        image_size: side of the images in pixels; the network is the same for all.
    """

    def __init__(self, *, in_channels: int, num_classes: int, image_size: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            _conv_norm(in_channels, 64, 7, stride=2),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
        ]
        channels = 64
        for stage, out_channels in enumerate((64, 128, 256, 512)):
            layers.append(BasicBlock(channels, out_channels, stride=1 if stage == 0 else 2))
            layers.append(BasicBlock(out_channels, out_channels, stride=1))
            channels = out_channels
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(channels, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward_features(self, x: Tensor) -> Tensor:
        """Images (N, in_channels, H, W) to feature maps (N, 512, h, w)."""
        maps: Tensor = self.features(x)
        return maps

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, in_channels, H, W) to logits (N, num_classes)."""
        logits: Tensor = self.head(self.forward_features(x).mean((-2, -1)))
        return logits
