"""Layers in ordinary PyTorch are the layers of besselnet."""

import copy

import pytest
import torch
from torch import nn

from besselnet.export._layers import count_forms, to_ordinary
from besselnet.functional import cheaper_algorithm
from besselnet.nn import AttentiveNorm2d, BesselConv2d, BlurPool2d
from export.networks import LAYERS, NETWORKS, images, layer, network
from tolerances import TOLERANCES, assert_same

FLOAT32 = TOLERANCES[torch.float32]


@pytest.mark.parametrize("form", ["direct", "factored"])
@pytest.mark.parametrize("in_channels", [1, 4])
@pytest.mark.parametrize("name", LAYERS)
def test_both_forms_of_every_layer(name, in_channels, form):
    if LAYERS[name].get("groups", 1) > in_channels:
        pytest.skip("one channel makes no groups")
    original = layer(name, in_channels)
    ordinary = to_ordinary(original, form)
    assert count_forms(ordinary) == {form: 1}
    for size in (12, 15):
        x = images(3, in_channels, size)
        assert_same(ordinary(x), original(x), FLOAT32.rounding)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("padding_mode", ["replicate", "reflect", "zeros", "circular"])
def test_pooling_on_every_remainder_of_the_size(stride, ceil_mode, padding_mode):
    pool = BlurPool2d(stride, ceil_mode=ceil_mode, padding_mode=padding_mode)
    ordinary = to_ordinary(pool)
    for size in (11, 12, 13):
        x = images(2, 3, size)[..., :-1]
        assert torch.equal(ordinary(x), pool(x))


@pytest.mark.parametrize("preset", ["bcnn", "eccv2020"])
def test_attentive_normalisation(preset):
    norm = AttentiveNorm2d(4, preset=preset)
    norm(images(5, 4, 9))
    norm.eval()
    x = images(3, 4, 9, seed=1)
    assert_same(to_ordinary(norm)(x), norm(x), FLOAT32.rounding)


@pytest.mark.parametrize("preset", ["bcnn", "eccv2020"])
def test_attentive_normalisation_of_single_pixels(preset):
    norm = AttentiveNorm2d(4, preset=preset).eval()
    x = images(3, 4, 9)[..., :1, :1]
    assert norm(x).isfinite().all()
    assert_same(to_ordinary(norm)(x), norm(x), FLOAT32.rounding)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network(name):
    model = network(name)
    ordinary = to_ordinary(model)
    x = images(4)
    logits = model(x)
    # The comparison sees something: the logits of different images differ.
    assert (logits[0] - logits[1]).abs().max() > 1e-3 * logits.abs().max()
    assert_same(ordinary(x), logits, FLOAT32.equation)
    others = {type(m).__module__.split(".")[0] for m in ordinary.modules()}
    kept = {type(m) for m in ordinary.modules() if isinstance(m, BesselConv2d | BlurPool2d)}
    assert others <= {"torch", "besselnet"}
    assert not kept


def test_the_cheaper_form_is_that_of_the_cost_model():
    wide, narrow = BesselConv2d(16, 16, 7), BesselConv2d(2, 1, 3)
    for conv in (wide, narrow):
        expected = cheaper_algorithm(conv.spec, conv.in_channels, conv.out_channels, 1)
        assert count_forms(to_ordinary(conv)) == {expected: 1}
    assert count_forms(to_ordinary(nn.Sequential(wide, narrow.double()))) == {
        "factored": 1,
        "direct": 1,
    }


def test_the_original_is_left_alone():
    model = nn.Sequential(BesselConv2d(1, 2, 3), nn.BatchNorm2d(2)).double().train()
    before = copy.deepcopy(model.state_dict())
    chance = torch.get_rng_state()
    ordinary = to_ordinary(model)
    assert torch.equal(torch.get_rng_state(), chance)
    assert model.training
    assert model[0].weight.dtype == torch.float64
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert not ordinary.training
    assert {p.dtype for p in ordinary.parameters()} == {torch.float32}


def test_a_subclass_with_a_forward_of_its_own_is_not_replaced():
    class Doubled(BesselConv2d):
        def forward(self, input):
            return 2 * super().forward(input)

    class Renamed(BesselConv2d):
        pass

    assert isinstance(to_ordinary(Doubled(1, 2, 3)), Doubled)
    assert not isinstance(to_ordinary(Renamed(1, 2, 3)), BesselConv2d)


def test_an_unknown_form_is_refused():
    with pytest.raises(ValueError, match=r"form='fast': must be one of 'cheaper', 'direct'"):
        to_ordinary(nn.Identity(), "fast")
