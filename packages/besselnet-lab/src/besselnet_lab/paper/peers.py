"""The methods that the paper compares with, by their truthful names (see `rows`); escnn builds them.

Nothing here imports escnn: `besselnet_lab.paper.steerable` does, when such a model is created.
"""

import importlib
from collections.abc import Sequence
from typing import Any

from besselnet.checks import check_choice, check_count
from besselnet.models import register_model
from besselnet.models.pixels import SMALLEST_SIDE, PixelNetwork
from besselnet.models.template import TemplateNetwork, Width

__all__ = ["PEERS", "irreps", "regular", "regular_unet"]

# Names of the models that need escnn, in the order of registration.
PEERS: list[str] = []

_POOLINGS = ("authors", "template")
_NONLINEARITIES = ("norm", "gated")
# The published experiment code's widths; they give 115 067 and 115 690 parameters.
_REGULAR_WIDTHS = {4: 0.725, 8: 0.525}

# Fields of the convolutions of each level: as many parameters as `besselnet_unet` has.
_UNET_FIELDS = ((4,), (6,), (12, 12), (22, 22), (45, 45))

_SIZES = "at least 28 (mnist padding), 64 (malaria) or 90 (galaxy10)"
_SAMPLING = "up to the sampling of kernels and images"

# Numbers of fields of each kind in the six layers that give about 115 000 parameters for images of
# one channel in ten classes: round(width * channels of the template) for the width (in steps of
# 0.0025) that comes nearest; where that stays 1.5 % away, with one field more or fewer in layer 3.
# Keys: group, largest frequency, kernels, nonlinearity.
_FIELDS: dict[tuple[str, int, str, str], tuple[int, ...]] = {
    ("SO(2)", 1, "full", "norm"): (10, 21, 31, 31, 41, 51),
    ("SO(2)", 1, "full", "gated"): (9, 18, 27, 27, 37, 46),
    ("SO(2)", 3, "full", "norm"): (6, 12, 17, 18, 23, 29),
    ("SO(2)", 3, "full", "gated"): (5, 10, 15, 14, 19, 24),
    ("SO(2)", 1, "difference", "norm"): (11, 22, 34, 34, 45, 56),
    ("SO(2)", 1, "difference", "gated"): (10, 20, 29, 29, 39, 49),
    ("SO(2)", 2, "difference", "norm"): (8, 15, 23, 23, 31, 38),
    ("SO(2)", 2, "difference", "gated"): (6, 13, 19, 19, 25, 31),
    ("SO(2)", 3, "difference", "norm"): (6, 12, 19, 18, 25, 31),
    ("SO(2)", 3, "difference", "gated"): (5, 10, 15, 15, 20, 24),
    ("SO(2)", 1, "sum", "norm"): (12, 23, 35, 35, 47, 58),
    ("SO(2)", 1, "sum", "gated"): (10, 20, 30, 30, 40, 51),
    ("SO(2)", 2, "sum", "norm"): (9, 18, 27, 27, 35, 44),
    ("SO(2)", 2, "sum", "gated"): (7, 14, 21, 21, 27, 34),
    ("SO(2)", 3, "sum", "norm"): (8, 17, 25, 25, 34, 43),
    ("SO(2)", 3, "sum", "gated"): (6, 12, 18, 18, 24, 31),
    ("O(2)", 1, "full", "norm"): (10, 21, 31, 31, 41, 51),
    ("O(2)", 1, "full", "gated"): (9, 18, 26, 26, 35, 44),
    ("O(2)", 3, "full", "norm"): (7, 14, 20, 20, 27, 34),
    ("O(2)", 3, "full", "gated"): (6, 11, 17, 16, 22, 27),
    ("O(2)", 1, "difference", "norm"): (11, 22, 32, 32, 43, 54),
    ("O(2)", 1, "difference", "gated"): (9, 18, 27, 27, 36, 46),
    ("O(2)", 3, "difference", "norm"): (7, 14, 21, 21, 27, 34),
    ("O(2)", 3, "difference", "gated"): (6, 11, 17, 17, 22, 28),
    ("O(2)", 1, "sum", "norm"): (11, 22, 33, 33, 43, 54),
    ("O(2)", 1, "sum", "gated"): (9, 18, 27, 27, 37, 46),
    ("O(2)", 3, "sum", "norm"): (8, 17, 25, 25, 33, 42),
    ("O(2)", 3, "sum", "gated"): (6, 12, 19, 19, 25, 31),
}


def _steerable(module: str = "steerable") -> Any:
    """A module with networks; `ValueError` with what to install if escnn is missing."""
    try:
        return importlib.import_module(f"besselnet_lab.paper.{module}")
    except ImportError as error:
        raise ValueError(
            f"E(2)-CNNs and Harmonic Networks need escnn ({error}); install it with: "
            "pip install 'besselnet-lab[peers]'"
        ) from error


def regular(
    *,
    turns: int,
    in_channels: int,
    num_classes: int,
    image_size: int,
    width: Width | None = None,
    padding_scheme: str | None = None,
    pooling: str = "authors",
) -> TemplateNetwork:
    """E(2)-CNN with regular fields of a finite group of turns, see `steerable.regular_network`."""
    check_choice("pooling", pooling, _POOLINGS)
    network: TemplateNetwork = _steerable().regular_network(
        turns,
        in_channels=in_channels,
        num_classes=num_classes,
        image_size=image_size,
        width=_REGULAR_WIDTHS[turns] if width is None else width,
        padding_scheme=padding_scheme,
        pooling=pooling,
    )
    return network


def irreps(
    *,
    group: str,
    max_frequency: int,
    allowed_kernels: tuple[str, ...],
    in_channels: int,
    num_classes: int,
    image_size: int,
    width: Width | None = None,
    padding_scheme: str | None = None,
    pooling: str = "authors",
    nonlinearity: str = "norm",
    kernels: str = "difference",
) -> TemplateNetwork:
    """Network of irreducible fields of SO(2) or O(2), see `steerable.irreps_network`."""
    check_choice("pooling", pooling, _POOLINGS)
    check_choice("nonlinearity", nonlinearity, _NONLINEARITIES)
    check_choice("kernels", kernels, allowed_kernels)
    if width is None:
        width = _FIELDS[group, max_frequency, kernels, nonlinearity]
    network: TemplateNetwork = _steerable().irreps_network(
        max_frequency,
        mirror=group == "O(2)",
        in_channels=in_channels,
        num_classes=num_classes,
        image_size=image_size,
        width=width,
        padding_scheme=padding_scheme,
        pooling=pooling,
        nonlinearity=nonlinearity,
        kernels=kernels,
    )
    return network


def regular_unet(
    *,
    turns: int,
    in_channels: int,
    num_classes: int,
    image_size: int,
    channels: Sequence[Sequence[int]] = _UNET_FIELDS,
    kernel_size: int = 5,
) -> PixelNetwork:
    """U-Net with regular fields of a finite group of turns, see `steerable_unet.regular_unet_network`."""
    check_count("kernel_size", kernel_size, 3)
    network: PixelNetwork = _steerable("steerable_unet").regular_unet_network(
        turns,
        in_channels=in_channels,
        num_classes=num_classes,
        fields=channels,
        kernel_size=kernel_size,
    )
    return network


def _register_regular(name: str, turns: int) -> None:
    PEERS.append(name)
    angles = "no other angle" if turns == 4 else f"eighth turns {_SAMPLING}; no other angle"
    register_model(
        name,
        symmetry=f"C{turns}",
        exactness=(
            "quarter turns exact to rounding with pooling='template', and with pooling='authors' "
            f"where both pooled maps have odd sides (not 28, 64, 128); {angles}"
        ),
        sizes=_SIZES + "; built for that one size",
        smallest_size=28,
        summary=f"E(2)-CNN with regular fields of {turns} turns, BatchNorm and ReLU",
        fixed={"turns": turns},
    )(regular)


def _register_irreps(name: str, group: str, max_frequency: int, family: str) -> None:
    PEERS.append(name)
    fixed: dict[str, Any] = {"group": group, "max_frequency": max_frequency}
    if family == "Harmonic Network":
        fixed["allowed_kernels"] = ("difference", "sum")
    else:
        fixed |= {"allowed_kernels": ("full",), "kernels": "full"}
    register_model(
        name,
        symmetry=group,
        exactness=(
            "quarter turns exact to rounding with pooling='template', and with pooling='authors' "
            "where both pooled maps have even sides (28, 64; not 128), save where pixels tie in a "
            f"max pooling; other angles {_SAMPLING}"
        ),
        sizes=_SIZES,
        smallest_size=28,
        summary=f"{family} with fields of {group} up to frequency {max_frequency}",
        fixed=fixed,
    )(irreps)


_register_regular("e2cnn_c4", 4)
_register_regular("e2cnn_c8", 8)

for _group, _prefix in (("SO(2)", "so2"), ("O(2)", "o2")):
    for _frequency in (1, 3):
        _register_irreps(f"e2cnn_{_prefix}_irreps{_frequency}", _group, _frequency, "E(2)-CNN")
        _register_irreps(f"hnet_{_prefix}_{_frequency}", _group, _frequency, "Harmonic Network")
_register_irreps("hnet_so2_2", "SO(2)", 2, "Harmonic Network")

PEERS.append("e2cnn_c8_unet")
register_model(
    "e2cnn_c8_unet",
    symmetry="C8",
    exactness=(
        "quarter turns turn the masks, exact to rounding at every size; "
        f"eighth turns {_SAMPLING}; no other angle"
    ),
    sizes=f"at least {SMALLEST_SIDE}",
    smallest_size=SMALLEST_SIDE,
    default_size=256,
    summary="U-Net with regular fields of 8 turns, BatchNorm and ReLU, in the shape of besselnet_unet",
    fixed={"turns": 8},
    answers="pixels",
)(regular_unet)
