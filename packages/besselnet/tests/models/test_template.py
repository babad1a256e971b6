"""The paper's Table of architectures."""

import pytest
import torch
from torch import nn

from besselnet.models import create_model
from besselnet.models.template import (
    CHANNELS,
    KERNEL_SIZES,
    PADDINGS,
    choose_padding,
    pooled_sides,
    scaled_channels,
    smallest_side,
)
from besselnet.nn import BesselConv2d, BlurPool2d
from models.probes import KINDS, arguments


@pytest.mark.parametrize("kind", KINDS)
def test_image_size_chooses_the_padding_scheme(kind):
    assert choose_padding(KINDS[kind][2]) == PADDINGS[kind]


def test_padding_scheme_can_be_chosen_and_must_fit():
    assert choose_padding(128, "mnist") == PADDINGS["mnist"]
    assert choose_padding(32) == PADDINGS["mnist"]
    with pytest.raises(
        ValueError, match=r"image_size=64: must be at least 90 for padding_scheme='galaxy10'"
    ):
        choose_padding(64, "galaxy10")


@pytest.mark.parametrize(("kind", "least"), [("mnist", 28), ("malaria", 64), ("galaxy10", 90)])
def test_smallest_side_is_the_least_that_works(kind, least):
    padding = PADDINGS[kind]
    assert smallest_side(padding) == least
    model = create_model("cnn", in_channels=1, num_classes=2, image_size=least, padding_scheme=kind)
    assert model.eval().forward_features(torch.rand(1, 1, least, least)).shape[-2:] == (1, 1)
    with pytest.raises(ValueError, match=f"at least {least}"):
        model(torch.rand(1, 1, least - 1, least))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["cnn", "bcnn_so2_strong"])
def test_feature_maps_have_the_sides_of_the_table(name, kind):
    channels, _, size = KINDS[kind]
    model = create_model(name, **arguments(kind), width=(1, 1, 1, 1, 1, 3)).eval()
    last = pooled_sides(size, PADDINGS[kind])[-1]
    assert model.forward_features(torch.rand(1, channels, size, size)).shape == (1, 3, last, last)


def test_pooled_sides_of_the_papers_images():
    assert pooled_sides(28, PADDINGS["mnist"]) == [28, 14, 1]
    assert pooled_sides(64, PADDINGS["malaria"]) == [64, 26, 1]
    assert pooled_sides(128, PADDINGS["galaxy10"]) == [114, 45, 10]


def test_width_rounds_down_as_in_the_experiments():
    assert scaled_channels(1) == CHANNELS
    assert scaled_channels(1.7) == (13, 27, 40, 40, 54, 68)
    assert scaled_channels(0.725) == (5, 11, 17, 17, 23, 29)
    assert scaled_channels([1, 2, 3, 4, 5, 6]) == (1, 2, 3, 4, 5, 6)


@pytest.mark.parametrize(("name", "conv"), [("cnn", nn.Conv2d), ("bcnn_o2_plus", BesselConv2d)])
def test_the_six_convolutions_are_those_of_the_table(name, conv):
    model = create_model(name, **arguments("mnist"), width=1)
    layers = [m for m in model.modules() if isinstance(m, conv)]
    assert [layer.kernel_size for layer in layers] == [(k, k) for k in KERNEL_SIZES]
    assert tuple(layer.out_channels for layer in layers) == CHANNELS
    assert [layer.padding for layer in layers] == [(p, p) for p in PADDINGS["mnist"]]


def test_bcnns_are_what_the_text_says():
    """Attentive Normalization, softsign, 2 x 2 averages, the strongest scale of each feature map."""
    model = create_model("bcnn_so2_plus", **arguments("mnist"))
    kinds = [type(m).__name__ for m in model.modules()]
    assert kinds.count("AttentiveNorm2d") == kinds.count("Softsign") == 6
    assert [m.sigma for m in model.modules() if isinstance(m, BlurPool2d)] == [0.0, 0.0]
    layers = [m for m in model.modules() if isinstance(m, BesselConv2d)]
    assert {(m.scale_pool, m.response, m.sampling, m.bias) for m in layers} == {
        ("map", "power", "point", None)
    }


def test_bcnns_start_with_the_authors_small_weights():
    """Variance 2 / (C_in k^2): what lets 300 steps of Adam be enough for 120 images."""
    torch.manual_seed(0)
    model = create_model("bcnn_so2", **arguments("mnist"))
    for layer in (m for m in model.modules() if isinstance(m, BesselConv2d)):
        variance = 2 / (layer.in_channels * layer.kernel_size[0] ** 2)
        spread = layer.weight.square().mean().item() / variance
        assert abs(spread - 1) < 5 * (2 / layer.weight.numel()) ** 0.5


def test_templates_pool_as_average_pooling_on_even_sides():
    model = create_model("cnn", **arguments("mnist"))
    pools = [m for m in model.features if not isinstance(m, nn.Sequential)]
    x = torch.rand(2, 3, 14, 28)
    assert len(pools) == 2
    for pool in pools:
        torch.testing.assert_close(pool(x), nn.AvgPool2d(2)(x))
