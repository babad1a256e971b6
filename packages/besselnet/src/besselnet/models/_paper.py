"""The networks of the paper: its template with Bessel or plain convolutions, and ResNet-18."""

import math

from torch import Tensor, nn

from besselnet.functional import Algorithm, Response
from besselnet.models._registry import register_model
from besselnet.models.template import SIZES, Stage, TemplateNetwork, Width, template_network
from besselnet.nn import AttentiveNorm2d, BesselConv2d, Softsign

__all__ = ["bcnn", "cnn", "resnet18"]

# The strong cut-off leaves a third of the weights per pair of channels; the paper's experiments
# make up for it with more channels.
_WIDTHS = {"soft": 1.0, "strong": 1.7}


def bcnn(
    *,
    symmetry: str,
    cutoff: str,
    scales: tuple[int, ...] | None,
    in_channels: int,
    num_classes: int,
    image_size: int,
    width: Width = 1.0,
    padding_scheme: str | None = None,
    response: Response = "power",
    sampling: str = "point",
    algorithm: Algorithm = "auto",
) -> TemplateNetwork:
    """The paper's template with Bessel convolutions, Attentive Normalization and softsign.

    The arguments are those of `template_network` and of `BesselConv2d`; the paper's response and sampling
    are "power" and "point".
    """

    def block(n_in: int, n_out: int, kernel_size: int, pad: int) -> nn.Module:
        conv = BesselConv2d(
            n_in,
            n_out,
            kernel_size,
            padding=pad,
            bias=False,  # normalisation takes a constant out again
            symmetry=symmetry,
            cutoff=cutoff,
            scales=scales,
            response=response,
            sampling=sampling,
            algorithm=algorithm,
        )
        # The authors' start. Adam moves all weights by the same amount: small ones learn faster, and
        # 300 steps must do on 120 images.
        nn.init.normal_(conv.weight, 0.0, math.sqrt(2 / n_in) / kernel_size)
        return nn.Sequential(conv, AttentiveNorm2d(n_out, preset="bcnn"), Softsign())

    return template_network(block, in_channels, num_classes, image_size, width, padding_scheme)


for _name, _group, _cutoff, _scales in (
    ("bcnn_so2", "SO(2)", "soft", None),
    ("bcnn_o2", "O(2)", "soft", None),
    ("bcnn_so2_plus", "SO(2)+", "soft", (-2, 0, 2)),
    ("bcnn_o2_plus", "O(2)+", "soft", (-2, 0, 2)),
    ("bcnn_so2_strong", "SO(2)", "strong", None),
):
    _symmetry = _group.removesuffix("+")
    _mirror = " and reflections" if _symmetry == "O(2)" else ""
    _summary = f"B-CNN of the paper: {_symmetry}, {_cutoff} cut-off"
    register_model(
        _name,
        symmetry=_group,
        exactness=(
            f"quarter turns{_mirror} exact up to rounding at every size; other angles limited by the "
            "sampling of kernels and images"
        ),
        sizes=SIZES,
        smallest_size=28,
        summary=_summary + (", three scales" if _scales else ""),
        fixed={"symmetry": _symmetry, "cutoff": _cutoff, "scales": _scales},
        defaults={"width": _WIDTHS[_cutoff]},
    )(bcnn)


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
    """Plain CNN: the paper's template with plain convolutions, BatchNorm and ReLU.

    The arguments are those of `template_network`.
    """

    def block(n_in: int, n_out: int, kernel_size: int, padding: int) -> nn.Module:
        return nn.Sequential(*_conv_norm(n_in, n_out, kernel_size, padding=padding), nn.ReLU())

    return template_network(block, in_channels, num_classes, image_size, width, padding_scheme)


def _conv_norm(
    n_in: int, n_out: int, kernel_size: int, stride: int = 1, padding: int | None = None
) -> nn.Sequential:
    padding = kernel_size // 2 if padding is None else padding
    conv = nn.Conv2d(n_in, n_out, kernel_size, stride, padding, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(n_out))


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions added to the input, which is projected where the shape changes."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            _conv_norm(in_channels, out_channels, 3, stride),
            nn.ReLU(),
            _conv_norm(out_channels, out_channels, 3),
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
    summary="original ResNet-18: 7 x 7 stem with stride 2, max pooling, 2-2-2-2 blocks",
)
def resnet18(*, in_channels: int, num_classes: int, image_size: int) -> TemplateNetwork:
    """ResNet-18 of He et al. (2016) with the original stem (7 x 7, stride 2, max pooling) at every size.

    The stem was designed for 224 pixels: an image of 28 pixels is reduced to one pixel in the last stage. The
    paper uses this stem, too. The network is the same for every `image_size`.
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
