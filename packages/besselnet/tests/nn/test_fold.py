"""``fold_batch_norm``: the same answers with one layer less."""

import pytest
import torch
from torch import nn

from besselnet.nn import BesselConv2d, fold_batch_norm
from tolerances import FLOAT64, assert_same


def network(conv, negative=False):
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(5)
    with torch.no_grad():
        norm.weight.uniform_(0.5, 2)
        norm.bias.normal_()
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.1, 3)
        if negative:
            norm.weight[2] *= -1
    return nn.Sequential(conv, norm, nn.ReLU()).double().eval()


def images():
    return torch.randn(
        2, 3, 12, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )


def has_norm(model):
    return any(isinstance(module, nn.BatchNorm2d) for module in model.modules())


@pytest.mark.parametrize("response", ["signed", "amplitude", "power"])
@pytest.mark.parametrize("bias", [False, True])
def test_bessel_layers_keep_their_answers(response, bias):
    model = network(BesselConv2d(3, 5, 5, bias=bias, response=response))
    folded = fold_batch_norm(model)
    assert not has_norm(folded)
    assert_same(folded(images()), model(images()), FLOAT64.rounding)


@pytest.mark.parametrize("pool", ["map", "pixel"])
def test_scales_chosen_channel_by_channel(pool):
    model = network(BesselConv2d(3, 5, 5, padding=2, scales=(-2, 0, 2), scale_pool=pool))
    folded = fold_batch_norm(model)
    assert not has_norm(folded)
    assert_same(folded(images()), model(images()), FLOAT64.rounding)


@pytest.mark.parametrize(
    ("conv", "negative"),
    [
        (BesselConv2d(3, 5, 5), True),
        (BesselConv2d(3, 5, 5, scales=(0, 2), padding=3, scale_pool="image"), False),
    ],
)
def test_what_cannot_be_folded_stays(conv, negative):
    model = network(conv, negative)
    folded = fold_batch_norm(model)
    assert has_norm(folded)
    assert_same(folded(images()), model(images()), FLOAT64.rounding)


def test_plain_convolutions_take_any_sign():
    model = network(nn.Conv2d(3, 5, 5), negative=True)
    folded = fold_batch_norm(model)
    assert not has_norm(folded)
    assert_same(folded(images()), model(images()), FLOAT64.rounding)


def test_the_network_itself_is_left_as_it_was():
    model = network(BesselConv2d(3, 5, 5)).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    fold_batch_norm(model)
    assert model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
