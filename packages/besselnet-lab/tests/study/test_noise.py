"""What noise becomes from layer to layer."""

import importlib.util

import pytest
import torch
from torch import nn

from besselnet.models import create_model
from besselnet.models.template import TemplateNetwork
from besselnet.nn import BlurPool2d
from besselnet_lab import paper  # noqa: F401  (its networks by name)
from besselnet_lab.study.noise import noise_changes

ESCNN = importlib.util.find_spec("escnn") is not None
WHITE, *BANDS = ("white, cut to [0, 1]", "above 8 pixels", "4 to 8 pixels", "below 4 pixels")


def network(*layers):
    return TemplateNetwork(nn.Sequential(*layers), 1, 2, 1)


def pictures(count=6, size=24):
    return torch.rand(count, 1, size, size, generator=torch.Generator().manual_seed(1))


def test_the_change_of_the_image_is_that_of_the_noise():
    images = pictures()
    found = noise_changes(network(nn.Identity()), images, sigma=0.1)
    power = images.square().mean().sqrt().item()
    for band in BANDS:
        image, same, *_ = found["changes"][band]
        assert image == pytest.approx(0.1 / power, rel=1e-3)
        assert same == image
    # Cut at 0 and 1, less is left.
    assert 0 < found["changes"][WHITE][0] < 0.1 / power
    assert found["layers"] == ["image", "1 Identity", "mean", "logits"]


def test_a_blur_damps_short_waves_and_a_factor_changes_nothing():
    class Twice(nn.Module):
        def forward(self, x):
            return x.mul_(2)

    blur = BlurPool2d(1, sigma=2.0)
    found = noise_changes(network(blur, nn.Sequential(nn.Identity(), Twice())), pictures())
    assert [layer.split()[-1] for layer in found["layers"][1:4]] == [
        "BlurPool2d",
        "Identity",
        "Twice",
    ]
    shares = {}
    for band in BANDS:
        image, blurred, same, doubled, *_ = found["changes"][band]
        assert blurred == same == pytest.approx(doubled, rel=1e-5)
        shares[band] = blurred / image
    long, middle, short = shares.values()
    assert long > middle > 2 * short


def test_a_layer_that_gives_zeros_has_no_change():
    class Positive(nn.Module):
        def forward(self, x):
            return (x - 1).relu()

    found = noise_changes(network(Positive()), pictures())
    assert found["changes"]["above 8 pixels"][1] == 0


def test_it_is_the_same_for_the_same_seed_and_leaves_no_trace():
    model, images = (
        create_model("cnn", in_channels=1, num_classes=3, image_size=28),
        pictures(size=28),
    )
    first = noise_changes(model, images)
    assert noise_changes(model, images) == first
    assert noise_changes(model, images, seed=1) != first
    assert model.training
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("name", ["resnet18", "bcnn_so2_strong", "besselnet_small", "e2cnn_c8"])
def test_networks_of_every_kind_are_seen_from_the_image_to_the_logits(name):
    if name.startswith("e2cnn") and not ESCNN:
        pytest.skip("the peers need escnn: pip install 'besselnet-lab[peers]'")
    model = create_model(name, in_channels=1, num_classes=3, image_size=28)
    found = noise_changes(model, pictures(2, size=28))
    assert len(found["layers"]) > 8
    assert all(len(changes) == len(found["layers"]) for changes in found["changes"].values())
    assert all(min(changes[:4]) > 0 for changes in found["changes"].values())


def test_what_does_not_tell_its_layers_is_refused():
    with pytest.raises(ValueError, match="Flatten"):
        noise_changes(nn.Flatten(), pictures())
