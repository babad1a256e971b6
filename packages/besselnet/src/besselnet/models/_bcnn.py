"""The paper's B-CNNs: its template with Bessel convolutions."""

import math

from torch import nn

from besselnet.functional import Algorithm, Response
from besselnet.models._registry import register_model
from besselnet.models.template import SIZES, TemplateNetwork, Width, template_network
from besselnet.nn import AttentiveNorm2d, BesselConv2d

__all__ = ["bcnn"]

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

    Args:
        symmetry: "SO(2)" or "O(2)".
        cutoff: "soft" or "strong".
        scales: size offsets of the kernels, or None for one scale; the strongest is kept for each map.
        in_channels, num_classes, image_size: as in `create_model`.
        width, padding_scheme: as in `template_network`.
        response, sampling, algorithm: as in `BesselConv2d`; the paper's are "power" and "point".
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
        return nn.Sequential(conv, AttentiveNorm2d(n_out, preset="bcnn"), nn.Softsign())

    return template_network(
        block,
        in_channels=in_channels,
        num_classes=num_classes,
        image_size=image_size,
        width=width,
        padding_scheme=padding_scheme,
    )


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
        sizes=SIZES,
        smallest_size=28,
        summary=(
            f"B-CNN of the paper: {symmetry}, {cutoff} cut-off"
            + (", three scales" if scales else "")
        ),
        fixed={"symmetry": symmetry, "cutoff": cutoff, "scales": scales},
        defaults={"width": _WIDTHS[cutoff]},
    )(bcnn)


_register("bcnn_so2", "SO(2)", "soft", None)
_register("bcnn_o2", "O(2)", "soft", None)
_register("bcnn_so2_plus", "SO(2)+", "soft", (-2, 0, 2))
_register("bcnn_o2_plus", "O(2)+", "soft", (-2, 0, 2))
_register("bcnn_so2_strong", "SO(2)", "strong", None)
