"""The paper's B-CNNs: its template with Bessel convolutions."""

import math

import torch
from torch import nn

from besselnet.functional import Algorithm, Response
from besselnet.functional._basis import check_choice
from besselnet.models._registry import PaperRow, register_model
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
from besselnet.nn._norm import Preset

__all__ = ["bcnn"]

# The strong cut-off leaves a third of the weights per pair of channels; the paper's experiments
# make up for it with more channels.
_WIDTHS = {"soft": 1.0, "strong": 1.7}
_VARIANTS = ("paper", "authors-code")
_POOLINGS = ("average", "blur")
# Without normalisation the start decides whether a signal survives six squarings. These shares of
# the power that BesselConv2d starts with, which is meant for softsign, keep the spread of
# handwritten digits through all layers with tanh: for the soft cut-off, the strong one, and the
# soft one with three scales, of which the strongest is kept.
_TANH_POWER = {("soft", False): 1 / 4, ("strong", False): 1 / 2, ("soft", True): 1 / 8}


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
    attention: Preset = "bcnn",
    response: Response = "power",
    sampling: str = "point",
    mode_norms: str = "unit",
    pooling: str | None = None,
    algorithm: Algorithm = "auto",
) -> TemplateNetwork:
    """The paper's template with Bessel convolutions.

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
        response: as in `BesselConv2d`; the paper's is "power".
        sampling: as in `BesselConv2d`; the paper's is "point".
        mode_norms: as in `BesselConv2d`.
        pooling: "average" or "blur"; by default what the variant has.
        algorithm: as in `BesselConv2d`.
    """
    check_choice("variant", variant, _VARIANTS)
    paper = variant == "paper"
    if pooling is None:
        pooling = "average" if paper else "blur"
    check_choice("pooling", pooling, _POOLINGS)
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
            response=response,
            sampling=sampling,
            mode_norms=mode_norms,
            algorithm=algorithm,
        )
        if paper:
            # The authors' start. Adam moves all weights by the same amount: small ones learn faster, and
            # 300 steps must do on 120 images.
            nn.init.normal_(conv.weight, 0.0, math.sqrt(2 / n_in) / kernel_size)
            return nn.Sequential(conv, AttentiveNorm2d(n_out, preset=attention), nn.Softsign())
        if response == "power":
            with torch.no_grad():
                conv.weight.mul_(math.sqrt(_TANH_POWER[cutoff, scales is not None]))
        return nn.Sequential(conv, nn.Tanh())

    def pool(_: int) -> nn.Module:
        if pooling == "average":
            return average_pool()
        return BlurPool2d(2, sigma=0.66, padding_mode="zeros")

    features = stack_template(in_channels, channels, padding, block, pool)
    return TemplateNetwork(features, channels[-1], num_classes, smallest_side(padding))


def _register(name: str, group: str, cutoff: str, scales: tuple[int, ...] | None) -> None:
    symmetry = group.removesuffix("+")
    mirror = " and mirror images" if symmetry == "O(2)" else ""
    register_model(
        name,
        symmetry=group,
        exactness=(
            f"quarter turns{mirror} exact to rounding at every size; other angles up to the "
            "sampling of kernels and images"
        ),
        sizes="at least 28 (mnist padding), 64 (malaria) or 90 (galaxy10)",
        smallest_size=28,
        summary=(
            f"B-CNN of the paper: {symmetry}, {cutoff} cut-off"
            + (", three scales" if scales else "")
        ),
        paper_row=PaperRow("B-CNN k_max" if cutoff == "soft" else "B-CNN k_max/2", group),
        fixed={"symmetry": symmetry, "cutoff": cutoff, "scales": scales},
    )(bcnn)


_register("bcnn_so2", "SO(2)", "soft", None)
_register("bcnn_o2", "O(2)", "soft", None)
_register("bcnn_so2_plus", "SO(2)+", "soft", (-2, 0, 2))
_register("bcnn_o2_plus", "O(2)+", "soft", (-2, 0, 2))
_register("bcnn_so2_strong", "SO(2)", "strong", None)
