"""Networks without built-in symmetry: the paper's template with ordinary convolutions, and ResNet-18."""

from torch import Tensor, nn

from besselnet.models._registry import register_model
from besselnet.models.template import SIZES, Stage, TemplateNetwork, Width, template_network

__all__ = ["cnn", "resnet18"]


def _block(in_channels: int, out_channels: int, kernel_size: int, padding: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, kernel_size, padding=padding, bias=False),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(),
    )


@register_model(
    "cnn",
    symmetry="none",
    exactness="no symmetry is built in",
    sizes=SIZES,
    smallest_size=28,
)
def cnn(
    *,
    in_channels: int,
    num_classes: int,
    image_size: int,
    # The text of the paper asks for about 115 000 parameters for every method: this has 114 747.
    width: Width = (7, 14, 21, 21, 27, 34),
    padding_scheme: str | None = None,
) -> TemplateNetwork:
    """Plain CNN: the paper's template with ordinary convolutions, BatchNorm and ReLU.

    Args:
        in_channels, num_classes, image_size: as in `create_model`.
        width, padding_scheme: as in `template_network`.
    """
    return template_network(
        _block,
        in_channels=in_channels,
        num_classes=num_classes,
        image_size=image_size,
        width=width,
        padding_scheme=padding_scheme,
    )


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
    default_size=224,
    summary="ResNet-18 as in the original: 7 x 7 stem of stride 2, max pooling, 2-2-2-2 blocks",
)
def resnet18(*, in_channels: int, num_classes: int, image_size: int) -> TemplateNetwork:
    """ResNet-18 of He et al. (2016) with the original stem (7 x 7, stride 2, max pooling) at every size.

    The stem was made for 224 pixels: an image of 28 is down to one pixel before the last stage
    ends. It is kept because the paper keeps it.

    Args:
        in_channels, num_classes: as in `create_model`.
        image_size: does not matter, the network is the same for all.
    """
    layers: list[nn.Module] = [
        _conv_norm(in_channels, 64, 7, stride=2),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
    ]
    stages = [Stage(1, 64, 2)]
    channels = 64
    for stage, out_channels in enumerate((64, 128, 256, 512)):
        layers.append(BasicBlock(channels, out_channels, stride=1 if stage == 0 else 2))
        layers.append(BasicBlock(out_channels, out_channels, stride=1))
        channels = out_channels
        stages.append(Stage(len(layers) - 1, channels, 4 * 2**stage))
    features = nn.Sequential(*layers)
    for module in features.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return TemplateNetwork(features, channels, num_classes, smallest_size=1, stages=stages)
