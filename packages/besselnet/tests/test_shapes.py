"""Shapes that give nothing are refused in our own words; a batch of no images gives no results."""

import math
import traceback
from pathlib import Path

import pytest
import torch
from torch import nn

import besselnet
from besselnet.functional import bessel_conv2d, rotate_images
from besselnet.models import create_model, list_models, model_info
from besselnet.nn import AttentiveNorm2d, BesselConv2d, BlurPool2d, FourierBesselTransform

LIBRARY = Path(besselnet.__file__).parent
ALGORITHMS = ["auto", "direct", "factored"]


def refusal(call, *arguments, **options) -> str:
    """What the library, and not torch, says to a call."""
    with pytest.raises(ValueError, match="must") as raised:
        call(*arguments, **options)
    assert LIBRARY in Path(traceback.extract_tb(raised.tb)[-1].filename).parents
    return str(raised.value)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    ("options", "size", "named"),
    [
        ({"padding": 3}, (0, 0), "(1, 2, 0, 0)"),
        ({"padding": 3}, (0, 9), "(1, 2, 0, 9)"),
        ({"scales": (-4, 0)}, (2, 2), "(1, 2, 2, 2)"),
        ({"scales": (0, 6)}, (9, 4), "(1, 2, 9, 4)"),
        ({"padding": 3, "padding_mode": "reflect"}, (3, 9), "padding_mode='reflect'"),
        ({"padding": 3, "padding_mode": "circular"}, (9, 2), "padding_mode='circular'"),
        ({"padding": 3, "padding_mode": "replicate"}, (0, 9), "padding_mode='replicate'"),
        ({"padding": 1, "scales": (0, 6), "padding_mode": "reflect"}, (4, 9), "padding of 4"),
        ({"dilation": 3}, (12, 12), "dilation 3"),
    ],
)
def test_images_too_small_for_a_convolution(algorithm, options, size, named):
    layer = BesselConv2d(2, 3, 5, algorithm=algorithm, **options)
    assert named in refusal(layer, torch.rand(1, 2, *size))


@pytest.mark.parametrize(("mode", "least"), [("reflect", 4), ("circular", 3)])
def test_the_least_size_for_a_padding_is_enough(mode, least):
    layer = BesselConv2d(1, 1, 3, padding=3, padding_mode=mode)
    assert layer(torch.rand(1, 1, least, least)).shape == (1, 1, least + 4, least + 4)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"groups": 0}, "groups=0"),
        ({"groups": 2}, "groups=2"),
        ({"bias": torch.zeros(7)}, "bias has shape (7,)"),
        ({"tables": []}, "tables have shapes []"),
        ({"tables": [torch.zeros(3, 5, 5)]}, "tables have shapes [(3, 5, 5)]"),
        ({"weight": torch.zeros(0, 2, 6)}, "weight has shape (0, 2, 6)"),
        ({"weight": torch.zeros(3, 0, 6)}, "weight has shape (3, 0, 6)"),
        ({"stride": 10**30}, "stride=1000"),
    ],
)
def test_tensors_that_do_not_belong_together(change, named):
    layer = BesselConv2d(2, 3, 5)
    arguments = {"weight": layer.weight, "spec": layer.spec, **change}
    assert named in refusal(bessel_conv2d, torch.rand(1, 2, 9, 9), **arguments)


def test_input_of_another_dtype_than_the_weights():
    with pytest.raises(TypeError, match=r"input has dtype torch\.float64: must be torch\.float32"):
        BesselConv2d(2, 3, 5)(torch.rand(1, 2, 9, 9, dtype=torch.float64))


@pytest.mark.parametrize("scales", [None, (-2, 0, 2)])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_empty_batch_as_in_a_plain_convolution(algorithm, scales):
    plain = nn.Conv2d(2, 3, 5, padding=2)
    ours = BesselConv2d(2, 3, 5, padding=2, algorithm=algorithm, scales=scales)
    for layer in (plain, ours):
        images = torch.rand(0, 2, 9, 9, requires_grad=True)
        output = layer(images)
        output.sum().backward()
        assert output.shape == (0, 3, 9, 9)
        assert images.grad.shape == images.shape
        assert not layer.weight.grad.count_nonzero()


def test_an_empty_batch_elsewhere():
    assert BlurPool2d()(torch.rand(0, 2, 9, 9)).shape == (0, 2, 4, 4)
    assert rotate_images(torch.rand(0, 2, 9, 9), 30.0).shape == (0, 2, 9, 9)
    for preset in ("bcnn", "eccv2020"):
        norm = AttentiveNorm2d(2, preset=preset)
        assert norm(torch.rand(0, 2, 9, 9)).shape == (0, 2, 9, 9)
        assert all(value.isfinite().all() for value in norm.state_dict().values())
    transform = FourierBesselTransform(9)
    coefficients = transform(torch.rand(3, 0, 9, 9))
    assert coefficients.shape == (3, 0, len(transform.modes))
    assert transform.inverse(coefficients).shape == (3, 0, 9, 9)


@pytest.mark.parametrize("training", [True, False])
# Other tests register networks of their own.
@pytest.mark.parametrize("name", [name for name in list_models() if "toy" not in name])
def test_networks_take_an_empty_batch_and_refuse_wrong_images(name, training):
    network = create_model(name, in_channels=2, num_classes=3, image_size=28).train(training)
    pixels = (28, 28) if model_info(name).answers == "pixels" else ()
    assert network(torch.rand(0, 2, 28, 28)).shape == (0, 3, *pixels)
    for shape in ((2, 3, 28, 28), (2, 0, 28, 28), (2, 2, 0, 0), (2, 28, 28), (2, 2, 28, 0)):
        # But for the first number: some networks divide the batch.
        assert str(shape[1:])[1:] in refusal(network, torch.rand(shape))
    with pytest.raises(TypeError, match="uint8"):
        network(torch.zeros(2, 2, 28, 28, dtype=torch.uint8))


@pytest.mark.parametrize("name", ["besselnet_small", "cnn"])
def test_one_image_that_cannot_be_normalised(name):
    valid = {"last_padding": "valid"} if name.startswith("besselnet") else {}
    network = create_model(name, in_channels=1, num_classes=3, image_size=28, **valid)
    assert "at least 2 images in training" in refusal(network, torch.rand(1, 1, 28, 28))


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (BlurPool2d(), (1, 2, 0, 0)),
        (BlurPool2d(), (1, 0, 8, 8)),
        (BlurPool2d(4), (1, 2, 3, 8)),
        (BlurPool2d(padding_mode="reflect"), (1, 2, 2, 8)),
        (AttentiveNorm2d(2), (2, 2, 0, 0)),
        (AttentiveNorm2d(2), (1, 2, 1, 1)),
        (AttentiveNorm2d(2, preset="eccv2020"), (1, 2, 8, 8)),
        (FourierBesselTransform(8), (0, 0)),
    ],
    ids=str,
)
def test_images_too_small_for_other_layers(layer, shape):
    assert str(shape) in refusal(layer, torch.rand(shape))


@pytest.mark.parametrize("interpolation", ["cubic", "bilinear", "nearest"])
def test_rotations_of_nothing_or_by_no_angle(interpolation):
    for shape in ((1, 1, 0, 0), (1, 1, 0, 8)):
        assert str(shape) in refusal(rotate_images, torch.rand(shape), 30.0, interpolation)
    for angle in (math.nan, math.inf, torch.tensor([1.0, math.nan])):
        assert "angles=" in refusal(rotate_images, torch.rand(2, 1, 8, 8), angle, interpolation)
    transform = FourierBesselTransform(8)
    coefficients = transform(torch.rand(2, 8, 8))
    assert "angle=nan" in refusal(transform.rotate, coefficients, math.nan)
    assert "angle has shape (5,)" in refusal(transform.rotate, coefficients, torch.rand(5))


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (lambda: BesselConv2d(1, 1, 7, cutoff=50), "cutoff=50"),
        (lambda: BesselConv2d(1, 1, 100_001), "kernel_size=100001"),
        (lambda: BesselConv2d(1, 1, 7, scales=(0, 100_000)), "scales=(0, 100000)"),
        (lambda: BlurPool2d(sigma=1e9), "sigma=1000000000.0"),
        (lambda: BlurPool2d(10**6), "stride=1000000"),
        (lambda: BlurPool2d(kernel_size=10**6 + 1), "kernel_size=1000001"),
        (lambda: FourierBesselTransform(10**6), "image_size=1000000"),
        (lambda: AttentiveNorm2d(2, eps=math.nan), "eps=nan"),
        (lambda: AttentiveNorm2d(2, momentum=math.inf), "momentum=inf"),
        (lambda: create_model("cnn", num_classes=10**9), "num_classes=1000000000"),
        (lambda: create_model("cnn", num_classes=2, in_channels=10**30), "in_channels=1000"),
        (lambda: create_model("cnn", num_classes=2, image_size=10**9), "image_size=1000000000"),
        (lambda: create_model("cnn", num_classes=2, width=(10**5,) * 6), "width"),
        (lambda: create_model("besselnet_small", num_classes=2, width=1e300), "width=1e+300"),
        (lambda: create_model("besselnet_small", num_classes=2, channels=[[10**9]]), "in total"),
        (lambda: create_model("besselnet_small", num_classes=2, pool_blur=1e9), "pool_blur="),
        (lambda: create_model("besselnet_small", num_classes=2, dropout=math.nan), "dropout=nan"),
    ],
)
def test_absurd_sizes_are_refused_before_memory_is_asked_for(build, named):
    assert named in refusal(build)
