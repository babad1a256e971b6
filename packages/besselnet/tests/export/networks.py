"""Layers and networks that the tests of the export share."""

import itertools

import torch
from torch import Tensor, nn

from besselnet.models import create_model
from besselnet.nn import AttentiveNorm2d, BesselConv2d, BlurPool2d
from models.probes import smooth_images

# Every value of every option, each at least once.
LAYERS = {
    "SO(2)": {},
    "O(2)": {"symmetry": "O(2)"},
    "strided": {"stride": 2, "response": "signed"},
    "scales": {"scales": (-2, 0, 2)},
    "grouped": {"groups": 2, "response": "power"},
    "soft": {"cutoff": "soft"},
    "O(2) signed": {"symmetry": "O(2)", "response": "signed", "groups": 2},
    "scales by pixel": {"scales": (-2, 0, 2), "scale_pool": "pixel", "padding": 0},
    "scales by image": {"scales": (-2, 0), "scale_pool": "image", "stride": 2, "bias": False},
    "dilated": {"dilation": (2, 1), "padding": (4, 2)},
    "same": {"padding": "same", "kernel_size": 4},
    "reflect": {"padding_mode": "reflect"},
    "replicate": {"padding_mode": "replicate", "scales": (0, 2)},
    "circular": {"padding_mode": "circular", "stride": (1, 2)},
    "one pixel": {"kernel_size": 1, "padding": 0, "response": "signed"},
    "point": {"sampling": "point", "response": "power", "symmetry": "O(2)", "cutoff": "soft"},
    "cubic": {"sampling": "cubic", "cutoff": 0.7},
}
# Small enough to be exported in seconds; the names are all our models that escnn does not build.
WIDTHS = (4, 4, 6, 6, 8, 8)
NETWORKS = {
    "besselnet_small": {"width": 0.25},
    "besselnet_base": {"width": 0.25, "symmetry": "O(2)", "rotations": 2},
    "besselnet_gated": {"width": 0.25, "branches": ("O(2)+", "plain")},
    "bcnn_so2": {"width": WIDTHS},
    "bcnn_o2": {"width": WIDTHS},
    "bcnn_so2_plus": {"width": WIDTHS},
    "bcnn_o2_plus": {"width": WIDTHS},
    "bcnn_so2_strong": {"width": WIDTHS},
    "cnn": {"width": WIDTHS},
    "resnet18": {},
}


def layer(name: str, in_channels: int = 4) -> BesselConv2d:
    """A layer with weights that the tests can tell apart from their start."""
    settings = {"kernel_size": 5, "padding": 2, **LAYERS[name]}
    torch.manual_seed(0)
    made = BesselConv2d(in_channels, 6, **settings)
    if made.bias is not None:
        nn.init.normal_(made.bias)
    return made.eval()


class LayerZoo(nn.Module):
    """Layers side by side, their mean responses as logits: one export for all of them."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.layers = nn.ModuleList([layer(name) for name in names])
        pools = itertools.product((2, 3), ("replicate", "reflect", "zeros"), (False, True))
        self.pools = nn.ModuleList(
            [BlurPool2d(s, padding_mode=mode, ceil_mode=ceil) for s, mode, ceil in pools]
        )
        self.norms = nn.ModuleList([AttentiveNorm2d(4, preset=p) for p in ("bcnn", "eccv2020")])

    def forward(self, x: Tensor) -> Tensor:
        maps = [part(x) for part in (*self.layers, *self.pools, *self.norms)]
        return torch.cat([m.mean((2, 3)) for m in maps] + [m[:, :, 0, 0] for m in maps], 1)


def network(name: str, in_channels: int = 1, image_size: int = 28) -> nn.Module:
    """A network of `NETWORKS`, see `with_statistics`."""
    torch.manual_seed(0)
    model = create_model(
        name, in_channels=in_channels, num_classes=3, image_size=image_size, **NETWORKS[name]
    )
    return with_statistics(model, in_channels, image_size)


def with_statistics(model: nn.Module, in_channels: int, image_size: int) -> nn.Module:
    """The network with statistics of its own: with those of the start all logits would be nearly alike.

    They are those of smooth images and of noise, the two kinds that an export compares: noise that
    exceeds all statistics would amplify rounding by more than what is tested.
    """
    norms = {
        m: m.momentum for m in model.modules() if isinstance(getattr(m, "momentum", None), float)
    }
    for norm in norms:
        norm.momentum = 1.0
    branches = getattr(model, "branches", [model])
    noise = torch.rand(32, in_channels, image_size, image_size)
    seen = torch.cat([images(32, in_channels, image_size), noise])
    with torch.no_grad():
        for branch in branches:
            branch.train()(seen)
    for norm, momentum in norms.items():
        norm.momentum = momentum
    return model.eval()


def images(count: int, channels: int = 1, size: int = 28, seed: int = 0) -> Tensor:
    """Random, and different from each other by more than noise."""
    return smooth_images(count, channels, size, seed)
