"""Readings of the paper that its text leaves open, or that its later code has otherwise.

Variants of models of the library, for `recipes/replication.toml` and `recipes/ablation.toml`. With its
defaults each is the library's model.
"""

import math
from collections.abc import Callable

import torch
from torch import nn

from besselnet.checks import check_choice
from besselnet.models import create_model, model_info, register_model
from besselnet.models.template import (
    TemplateNetwork,
    Width,
    average_pool,
    choose_padding,
    scaled_channels,
    smallest_side,
    stack_template,
)
from besselnet.nn import AttentiveNorm2d, BesselConv2d, BlurPool2d
from besselnet_lab.paper import digits  # noqa: F401 - registers what is varied here
from besselnet_lab.paper.mode_norms import apply_mode_norms

__all__ = ["PREFIX", "varied_model"]

PREFIX = "replication_"
VARIANTS = ("paper", "authors-code")
POOLINGS = ("average", "blur")
# As in the library: the strong cut-off leaves a third of the weights per pair of channels.
_WIDTHS = {"soft": 1.0, "strong": 1.7}
# Without normalisation the start decides whether a signal survives six squarings. These shares of
# the power that BesselConv2d starts with, which is meant for softsign, keep the spread of
# handwritten digits through all layers with tanh: for the soft cut-off, the strong one, and the
# soft one with three scales, of which the strongest is kept.
_TANH_POWER = {("soft", False): 1 / 4, ("strong", False): 1 / 2, ("soft", True): 1 / 8}
# The published experiments ran the vanilla CNN at this width, which is 120 212 parameters.
_CNN_WIDTHS: dict[str, Width] = {"paper": (7, 14, 21, 21, 27, 34), "authors-code": 0.9}


def varied_model(name: str) -> str:
    """The model of the library that `name` is a variant of; any other name stays as it is."""
    return name.removeprefix(PREFIX)


def bcnn(
    *,
    symmetry: str,
    cutoff: str,
    scales: tuple[int, ...] | None,
    in_channels: int,
    num_classes: int,
    image_size: int,
    variant: str = "paper",
    width: Width | None = None,
    padding_scheme: str | None = None,
    attention: str = "bcnn",
    mode_norms: str = "unit",
    pooling: str | None = None,
) -> nn.Module:
    """A B-CNN of the paper with what its text leaves open as options.

    Args:
        symmetry: "SO(2)" or "O(2)".
        cutoff: "soft" or "strong".
        scales: size offsets of the kernels, or None for one scale.
        in_channels: channels of the images.
        num_classes: length of the logits.
        image_size: side of the images in pixels.
        variant: "paper" is what the text says: Attentive Normalization, softsign, 2 x 2 average
            pooling, the strongest scale for each feature map. "authors-code" is what the authors'
            later experiment code does: tanh, no normalisation, a Gaussian blur (sigma 0.66, 5 x 5)
            before pooling, the strongest scale for the image.
        width: factor on the channels, or the six numbers of channels.
        padding_scheme: "mnist", "malaria" or "galaxy10"; by default the one for `image_size`.
        attention: preset of `AttentiveNorm2d`.
        mode_norms: as in `apply_mode_norms`.
        pooling: "average" or "blur"; by default what the variant has.
    """
    check_choice("variant", variant, VARIANTS)
    paper = variant == "paper"
    if pooling is None:
        pooling = "average" if paper else "blur"
    check_choice("pooling", pooling, POOLINGS)
    channels = scaled_channels(_WIDTHS[cutoff] if width is None else width)
    padding = choose_padding(image_size, padding_scheme)

    def block(n_in: int, n_out: int, kernel_size: int, pad: int) -> nn.Module:
        conv = BesselConv2d(
            n_in,
            n_out,
            kernel_size,
            padding=pad,
            # Normalisation takes a constant out again.
            bias=not paper,
            symmetry=symmetry,
            cutoff=cutoff,
            scales=scales,
            scale_pool="map" if paper else "image",
            response="power",
            sampling="point",
        )
        if paper:
            # The authors' start, see `besselnet.models`.
            nn.init.normal_(conv.weight, 0.0, math.sqrt(2 / n_in) / kernel_size)
            norm = AttentiveNorm2d(n_out, preset=attention)  # type: ignore[arg-type]
            return nn.Sequential(conv, norm, nn.Softsign())
        with torch.no_grad():
            conv.weight.mul_(math.sqrt(_TANH_POWER[cutoff, scales is not None]))
        return nn.Sequential(conv, nn.Tanh())

    def pool(_: int) -> nn.Module:
        if pooling == "average":
            return average_pool()
        return BlurPool2d(2, sigma=0.66, padding_mode="zeros")

    features = stack_template(in_channels, channels, padding, block, pool)
    network = TemplateNetwork(features, channels[-1], num_classes, smallest_side(padding))
    return apply_mode_norms(network, mode_norms)


def cnn(
    *,
    in_channels: int,
    num_classes: int,
    image_size: int,
    variant: str = "paper",
    width: Width | None = None,
    padding_scheme: str | None = None,
) -> nn.Module:
    """Vanilla CNN with the width of the text, or ("authors-code") of the published experiment code."""
    check_choice("variant", variant, tuple(_CNN_WIDTHS))
    return create_model(
        "cnn",
        in_channels=in_channels,
        num_classes=num_classes,
        image_size=image_size,
        width=_CNN_WIDTHS[variant] if width is None else width,
        padding_scheme=padding_scheme,
    )


def besselnet_digits(
    *, in_channels: int, num_classes: int, image_size: int, mode_norms: str = "unit"
) -> nn.Module:
    """`besselnet_digits` with the norms of the modes as the paper's published code has them."""
    network = create_model(
        "besselnet_digits",
        in_channels=in_channels,
        num_classes=num_classes,
        image_size=image_size,
    )
    return apply_mode_norms(network, mode_norms)


def _register() -> None:
    bcnns: dict[str, tuple[str, str, tuple[int, ...] | None]] = {
        "bcnn_so2": ("SO(2)", "soft", None),
        "bcnn_o2": ("O(2)", "soft", None),
        "bcnn_so2_plus": ("SO(2)", "soft", (-2, 0, 2)),
        "bcnn_o2_plus": ("O(2)", "soft", (-2, 0, 2)),
        "bcnn_so2_strong": ("SO(2)", "strong", None),
    }
    builders: dict[str, Callable[..., nn.Module]] = {
        **dict.fromkeys(bcnns, bcnn),
        "cnn": cnn,
        "besselnet_digits": besselnet_digits,
    }
    for name, build in builders.items():
        info = model_info(name)
        fixed = dict(zip(("symmetry", "cutoff", "scales"), bcnns.get(name, ())))
        register_model(
            PREFIX + name,
            symmetry=info.symmetry,
            exactness=info.exactness,
            sizes=info.sizes,
            smallest_size=info.smallest_size,
            default_size=info.default_size,
            summary=f"{name} in other readings of the paper",
            fixed=fixed,
            training=info.training,
        )(build)


_register()
