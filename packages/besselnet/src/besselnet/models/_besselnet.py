"""The recommended networks: ``besselnet_small``, ``besselnet_base`` and ``besselnet_large``.

A field of view and a low-pass filter; stages of one or two convolutions with signed responses, batch
normalisation and ReLU, with anti-aliased pooling between them, until the maps are as small as a kernel;
global average pooling and a linear layer.
"""

from collections.abc import Sequence
from typing import Literal

from torch import nn

from besselnet.checks import LARGEST_SIDE, LARGEST_SIGMA, check_choice, check_count, check_number
from besselnet.functional import Algorithm, Response
from besselnet.models._blocks import Blocks, Cutoffs, check_channels, check_odd_kernel, widened
from besselnet.models._registry import register_model
from besselnet.models.template import LARGEST_WIDTH, Stage, TemplateNetwork
from besselnet.nn import FIELDS, BlurPool2d, Field, FieldOfView

__all__ = ["besselnet"]

# Channels of the convolutions of each stage, before the width, for images from this side on; further stages
# repeat the last. The first stage works on all pixels: at 64 pixels a second convolution there would cost
# more than all others together; at 28 it gained accuracy in trials.
_CHANNELS: dict[int, tuple[tuple[int, ...], ...]] = {
    0: ((16, 32, 32),),
    14: ((16, 32), (48, 48), (64, 64)),
    56: ((16,), (32, 32), (64, 64), (96, 96)),
    112: ((8,), (16, 16), (32, 32), (64, 64), (96, 96), (128, 128)),
}
# Few images need many small steps. recipes/real-images-ablation.toml measures what each setting is worth.
_TRAINING = {"optimizer": "adamw", "learning_rate": 0.01, "weight_decay": 0.05, "batch_size": 16}

# Far more copies than help.
_MOST_ROTATIONS = 32


def num_stages(image_size: int, kernel_size: int) -> int:
    """One stage, and one more for each halving that leaves maps as large as a kernel."""
    stages = 1
    while image_size // 2 >= kernel_size:
        stages += 1
        image_size //= 2
    return stages


def stage_channels(image_size: int) -> tuple[tuple[int, ...], ...]:
    """Channels of the convolutions of each stage, before the width, for images of this side."""
    return _CHANNELS[max(side for side in _CHANNELS if side <= image_size)]


def besselnet(
    *,
    in_channels: int,
    num_classes: int,
    image_size: int,
    width: float,
    symmetry: str = "SO(2)",
    field: Field | Literal["none"] = "disc",
    channels: Sequence[Sequence[int]] | None = None,
    kernel_size: int = 7,
    cutoff: Cutoffs = "strong",
    scales: Sequence[int] | None = None,
    response: Response = "signed",
    sampling: str = "cubic",
    low_pass: float = 0.8,
    activation: str = "relu",
    normalization: str = "batch",
    pool_blur: float = 0.66,
    dropout: float = 0.3,
    last_padding: str = "same",
    rotations: int = 1,
    layers_for: int | None = None,
    algorithm: Algorithm = "auto",
) -> TemplateNetwork:
    """Rotation-equivariant image classifier for any image size.

    Args:
        image_size: side of the images; determines the number of stages and their channels.
        width: multiplier for the number of channels.
        symmetry: "SO(2)" (rotations), "O(2)" (rotations and reflections) or "none" (plain convolutions).
        field: "disc" for images that fill their frame, "square" for objects on a uniform background (see
            `besselnet.nn.FieldOfView`), "none" for unchanged images.
        channels: channels of the convolutions of each stage, before `width`; further stages repeat the
            last. Default: chosen from `image_size`.
        kernel_size: side of all kernels except the first, which is 2 pixels larger; odd.
        cutoff: as in `BesselConv2d`; or a list, one for each stage, of which further stages repeat the last.
        scales, response, sampling, algorithm: as in `BesselConv2d`.
        low_pass: sigma in pixels of a Gaussian filter on the input, 0 for none. Details of a few pixels
            change when an image is rotated and resampled.
        activation: "relu", "gelu" or "softsign".
        normalization: "batch", "attentive" or "none".
        pool_blur: sigma in pixels of the Gaussian before each pooling, 0 for average pooling.
        dropout: dropout probability of the last channels (`nn.Dropout2d`).
        last_padding: "same" or "valid". With "valid", the last convolution is not padded and the feature
            maps shrink; at 28 pixels, to one pixel that sees the whole image.
        rotations: in eval mode, average the logits of this many copies of an image, rotated by multiples of
            90 degrees / `rotations`. Predictions change less with the angle, and take as many times as long.
        layers_for: take the stages and channels of the network for images of this side instead of
            `image_size`, so that its weights fit.
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
    check_choice("field", field, (*FIELDS, "none"))
    check_odd_kernel(kernel_size)
    check_count("image_size", image_size, kernel_size)
    shaped_for = image_size
    if layers_for is not None:
        shaped_for = check_count("layers_for", layers_for, kernel_size, LARGEST_SIDE)
    stages = num_stages(shaped_for, kernel_size)
    smallest = kernel_size * 2 ** (stages - 1)
    if image_size < smallest:
        raise ValueError(
            f"image_size={image_size}: must be at least {smallest} with layers_for={layers_for}"
        )
    plan = check_channels(stage_channels(shaped_for) if channels is None else channels)
    # As `BlurPool2d` would, in whose terms both are sigma.
    check_number("low_pass", low_pass, least=0, most=LARGEST_SIGMA)
    check_number("pool_blur", pool_blur, least=0, most=LARGEST_SIGMA)
    check_number("dropout", dropout, least=0, below=1)
    check_choice("last_padding", last_padding, ("same", "valid"))
    check_count("rotations", rotations, most=_MOST_ROTATIONS)

    layers: list[nn.Module] = [] if field == "none" else [FieldOfView(field)]
    if low_pass:
        layers.append(BlurPool2d(1, sigma=low_pass, padding_mode="zeros"))
    current, size = in_channels, kernel_size + 2
    ends = []
    for stage in range(stages):
        if stage:
            layers.append(BlurPool2d(sigma=pool_blur))
        wanted = plan[min(stage, len(plan) - 1)]
        for number, count in enumerate(wanted, start=1):
            last = stage == stages - 1 and number == len(wanted)
            following = widened(count, width)
            padding = 0 if last and last_padding == "valid" else size // 2
            layers += blocks.layers(current, following, size, padding, stage)
            current, size = following, kernel_size
        ends.append(Stage(len(layers) - 1, current, 2**stage))
    if dropout:
        # Whole maps: the mean over the pixels would even out what is left out pixel by pixel.
        layers.append(nn.Dropout2d(dropout))
    return TemplateNetwork(
        nn.Sequential(*layers), current, num_classes, smallest, stages=ends, rotations=rotations
    )


for _name, _width, _summary in (
    ("besselnet_small", 1.0, "start here: faster than ResNet-18 at every size"),
    ("besselnet_base", 1.5, "twice the parameters, for thousands of images"),
    ("besselnet_large", 2.0, "four times the parameters, for tens of thousands of images"),
):
    register_model(
        _name,
        symmetry="SO(2), optionally O(2)",
        exactness=(
            "quarter turns (and reflections with O(2)) exact up to rounding at every size; other angles "
            "limited by the sampling of kernels and images"
        ),
        sizes="at least 7; once built, at least the largest 7 * 2**n below the size it was built for",
        smallest_size=7,
        default_size=64,
        summary=_summary,
        defaults={"width": _width},
        training=_TRAINING,
    )(besselnet)
