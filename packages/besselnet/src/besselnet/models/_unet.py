"""U-Nets: ``besselnet_unet`` and ``besselnet_unet_base``, and the plain ``unet`` for comparison."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from besselnet.checks import LARGEST_SIGMA, check_count, check_number
from besselnet.functional import Algorithm, Response
from besselnet.models._blocks import Blocks, Cutoffs, check_channels, check_odd_kernel, widened
from besselnet.models._registry import register_model
from besselnet.models.pixels import SMALLEST_SIDE, PixelNetwork, UNetFeatures
from besselnet.models.template import LARGEST_WIDTH
from besselnet.nn import BlurPool2d, Upsample2d

__all__ = ["besselnet_unet", "unet"]

# Of the convolutions on the way down, before the width: few where maps are large and a channel costs most.
_CHANNELS = ((8,), (16,), (32, 32), (80, 80), (192, 192))
_LEVELS = 5


class Up(nn.Module):
    """Coarse maps, mixed and interpolated, beside the fine ones, and a block on both.

    Args:
        mix: a 1 x 1 convolution: before the interpolation, with which it commutes, it costs a fourth.
        block: the layers on both.
    """

    def __init__(self, mix: nn.Module, block: nn.Module) -> None:
        super().__init__()
        self.mix = mix
        self.upsample = Upsample2d()
        self.block = block

    def forward(self, coarse: Tensor, fine: Tensor) -> Tensor:
        """(N, C, h, w) and (N, C', H, W) to (N, channels, H, W)."""
        maps: Tensor = self.block(torch.cat([self.upsample(self.mix(coarse), fine), fine], 1))
        return maps


def besselnet_unet(
    *,
    in_channels: int,
    num_classes: int,
    image_size: int,
    width: float,
    symmetry: str = "SO(2)",
    channels: Sequence[Sequence[int]] = _CHANNELS,
    kernel_size: int = 5,
    cutoff: Cutoffs = "strong",
    scales: Sequence[int] | None = None,
    response: Response = "signed",
    sampling: str = "cubic",
    low_pass: float = 0.5,
    activation: str = "relu",
    normalization: str = "batch",
    pool_blur: float = 0.66,
    dropout: float = 0.0,
    algorithm: Algorithm = "auto",
) -> PixelNetwork:
    """Rotation-equivariant U-Net for segmentation, at any image size.

    It has five levels with anti-aliased pooling between them. In the decoder, each level concatenates the
    upsampled coarser maps with its own, and has one convolution.

    Args:
        image_size: the network is the same for every size.
        width: multiplier for the number of channels.
        symmetry: "SO(2)" (rotations), "O(2)" (rotations and reflections) or "none" (plain convolutions).
        channels: channels of the convolutions of each level, before `width`; one list per level, at most 5.
        kernel_size: side of all kernels; odd.
        cutoff: as in `BesselConv2d`; or a list, one for each level, of which coarser levels repeat the last.
        scales, response, sampling, algorithm: as in `BesselConv2d`.
        low_pass: sigma in pixels of a Gaussian filter on the input, 0 for none.
        activation: "relu", "gelu" or "softsign".
        normalization: "batch", "attentive" or "none".
        pool_blur: sigma in pixels of the Gaussian before each pooling, 0 for average pooling.
        dropout: dropout probability of the channels of the coarsest level (`nn.Dropout2d`).
    """
    check_number("width", width, above=0, most=LARGEST_WIDTH)
    blocks = Blocks(
        symmetry=symmetry,
        cutoff=cutoff,
        scales=scales,
        response=response,
        sampling=sampling,
        activation=activation,
        normalization=normalization,
        algorithm=algorithm,
    )
    check_odd_kernel(kernel_size)
    plan = check_channels(channels)
    if not 2 <= len(plan) <= _LEVELS:
        raise ValueError(f"channels={channels!r}: must have 2 to {_LEVELS} levels")
    check_number("low_pass", low_pass, least=0, most=LARGEST_SIGMA)
    check_number("pool_blur", pool_blur, least=0, most=LARGEST_SIGMA)
    check_number("dropout", dropout, least=0, below=1)
    counts = [[widened(count, width) for count in level] for level in plan]

    down = []
    current = in_channels
    for level, wanted in enumerate(counts):
        layers: list[nn.Module] = []
        if level:
            layers.append(BlurPool2d(sigma=pool_blur, ceil_mode=True))
        elif low_pass:
            layers.append(BlurPool2d(1, sigma=low_pass, padding_mode="zeros"))
        for count in wanted:
            layers += blocks.layers(current, count, kernel_size, kernel_size // 2, level)
            current = count
        down.append(nn.Sequential(*layers))
    if dropout:
        down[-1].append(nn.Dropout2d(dropout))
    ends = [level[-1] for level in counts]
    up = []
    for level, count in reversed(list(enumerate(ends[:-1]))):
        layers = blocks.layers(2 * count, count, kernel_size, kernel_size // 2, level)
        up.append(Up(nn.Conv2d(current, count, 1, bias=False), nn.Sequential(*layers)))
        current = count
    return PixelNetwork(UNetFeatures(down, up), current, num_classes, ends)


for _name, _width, _summary in (
    ("besselnet_unet", 1.0, "start here for masks: a U-Net for few images"),
    ("besselnet_unet_base", 1.5, "twice the parameters, for more images"),
):
    register_model(
        _name,
        symmetry="SO(2), optionally O(2)",
        exactness=(
            "masks rotate with the image: quarter turns (and reflections with O(2)) exact up to rounding at "
            "every size; other angles limited by the sampling of kernels and images"
        ),
        sizes=f"at least {SMALLEST_SIDE}",
        smallest_size=SMALLEST_SIDE,
        default_size=256,
        summary=_summary,
        defaults={"width": _width},
        training={
            "optimizer": "adamw",
            "learning_rate": 0.01,
            "weight_decay": 0.05,
            "batch_size": 8,
        },
        answers="pixels",
    )(besselnet_unet)


class PlainUp(nn.Module):
    """A transposed convolution on coarse maps, beside the fine ones, and a block on both."""

    def __init__(self, coarse: int, fine: int) -> None:
        super().__init__()
        self.enlarge = nn.ConvTranspose2d(coarse, fine, 2, stride=2)
        self.block = _double_conv(2 * fine, fine)

    def forward(self, coarse: Tensor, fine: Tensor) -> Tensor:
        """(N, C, h, w) and (N, C', H, W) to (N, C', H, W)."""
        height, width = fine.shape[2], fine.shape[3]
        # A row or column too many where a side is odd.
        enlarged = self.enlarge(coarse).narrow(2, 0, height).narrow(3, 0, width)
        maps: Tensor = self.block(torch.cat([enlarged, fine], 1))
        return maps


@register_model(
    "unet",
    symmetry="none",
    exactness="no symmetry is built in",
    sizes=f"at least {SMALLEST_SIDE}",
    smallest_size=SMALLEST_SIDE,
    default_size=256,
    summary="plain U-Net with as many parameters as besselnet_unet",
    answers="pixels",
)
def unet(*, in_channels: int, num_classes: int, image_size: int, width: int = 8) -> PixelNetwork:
    """Plain U-Net: two 3 x 3 convolutions per level with BatchNorm and ReLU, max pooling.

    Args:
        image_size: the network is the same for every size.
        width: channels of the first of five levels; each further level doubles them. With 8, it has as many
            parameters as `besselnet_unet`; the original has 64.
    """
    check_count("width", width)
    counts = [width * 2**level for level in range(_LEVELS)]
    down = [_double_conv(in_channels, width)]
    for before, count in pairwise(counts):
        # Rounded up: no row is lost where a side is odd.
        down.append(nn.Sequential(nn.MaxPool2d(2, ceil_mode=True), *_double_conv(before, count)))
    up = [PlainUp(2 * count, count) for count in reversed(counts[:-1])]
    return PixelNetwork(UNetFeatures(down, up), width, num_classes, counts)


def _double_conv(n_in: int, n_out: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for channels in (n_in, n_out):
        conv = nn.Conv2d(channels, n_out, 3, padding=1, bias=False)
        layers += [conv, nn.BatchNorm2d(n_out), nn.ReLU()]
    return nn.Sequential(*layers)
