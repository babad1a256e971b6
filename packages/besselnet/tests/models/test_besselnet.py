"""Our own network: exact quarter turns at every size, and every option does what it says."""

import pytest
import torch
from torch import nn

from besselnet.functional import rotate_alike
from besselnet.models import create_model
from besselnet.nn import AttentiveNorm2d, BesselConv2d, BlurPool2d
from besselnet.testing import plane_waves
from models.probes import smooth_images, train_steps, turn_error


def build(size=28, **options):
    torch.manual_seed(0)
    settings = {"in_channels": 1, "num_classes": 4, "image_size": size, "width": 0.5} | options
    return create_model("besselnet_small", **settings)


@pytest.mark.parametrize("size", [7, 13, 28, 29, 45, 64])
@pytest.mark.parametrize("last_padding", ["valid", "same"])
def test_quarter_turns_are_exact_before_and_after_training(size, last_padding):
    model = build(size, last_padding=last_padding, dropout=0.0, rotations=2).double()
    images = smooth_images(2, 1, size).double()
    assert turn_error(model, images) < 1e-11
    train_steps(model, images, steps=2)
    assert turn_error(model, images) < 1e-11


def test_it_takes_every_size_it_declares():
    model = build(64).eval()
    for size in (56, 57, 80):
        assert model(torch.rand(1, 1, size, size)).shape == (1, 4)
    with pytest.raises(ValueError, match="at least 56"):
        model(torch.rand(1, 1, 55, 55))


def test_the_last_maps_at_28_pixels_see_the_whole_image():
    maps = build(28, last_padding="valid").eval().forward_features(torch.rand(1, 1, 28, 28))
    assert maps.shape[-2:] == (1, 1)


def modules(model, kind):
    return [module for module in model.modules() if isinstance(module, kind)]


def test_options_reach_the_layers():
    model = build(
        cutoff="soft",
        response="power",
        sampling="point",
        activation="softsign",
        normalization="attentive",
        pool_blur=0.0,
        low_pass=0.0,
        channels=[[4, 4, 4]],
        dropout=0.5,
        symmetry="O(2)",
    )
    convolutions = modules(model, BesselConv2d)
    assert len(convolutions) == 9
    assert {c.response for c in convolutions} == {"power"}
    assert {(c.spec.sampling, c.spec.symmetry, c.spec.share) for c in convolutions} == {
        ("point", "O(2)", 1.0)
    }
    assert len(modules(model, AttentiveNorm2d)) == len(modules(model, nn.Softsign)) == 9
    assert [pool.sigma for pool in modules(model, BlurPool2d)] == [0.0, 0.0]
    assert [drop.p for drop in modules(model, nn.Dropout2d)] == [0.5]


def test_scales_reach_the_layers():
    assert {c.spec.scales for c in modules(build(scales=(-2, 0, 2)), BesselConv2d)} == {(-2, 0, 2)}


def test_each_stage_may_have_a_cut_off_of_its_own():
    model = build(cutoff=["soft", 0.7], channels=[[4], [4, 4], [4]])
    assert [c.spec.share for c in modules(model, BesselConv2d)] == [1.0, 0.7, 0.7, 0.7]


def with_rotations(rotations, images, **options):
    """A trained network, and the same one with as many rotated copies of each image."""
    single = build(dropout=0.0, **options)
    train_steps(single, images, steps=5)
    averaged = build(dropout=0.0, rotations=rotations, **options)
    averaged.load_state_dict(single.state_dict())
    return single.eval(), averaged.eval()


@pytest.mark.parametrize("rotations", [2, 3])
def test_rotations_are_averaged_in_eval_mode_alone(rotations):
    images = smooth_images(4, 1, 28)
    single, averaged = with_rotations(rotations, images)
    with torch.no_grad():
        copies = [rotate_alike(images, 90 * n / rotations) for n in range(rotations)]
        expected = torch.stack([single(copy) for copy in copies]).mean(0)
        torch.testing.assert_close(averaged(images), expected)
        assert (averaged(images) - single(images)).abs().max() > 1e-3
        torch.testing.assert_close(averaged.train()(images), single.train()(images))


def test_rotations_bring_the_angles_between_closer_together():
    """At 45 degrees the two copies change places, up to interpolation: at most half the change is left."""
    images = plane_waves(4, channels=1, size=28, min_wavelength=12.0).turned(0).float()
    # Sampled at points and without low-pass, it is the least equivariant at these angles.
    least = {"sampling": "point", "cutoff": "soft", "low_pass": 0.0, "pool_blur": 0.0}

    def change(model):
        with torch.no_grad():
            answers = model(images)
            return (model(rotate_alike(images, 45)) - answers).norm() / answers.std(0).norm()

    single, averaged = with_rotations(2, images, **least)
    assert change(averaged) < change(single) / 2


def test_without_symmetry_it_is_a_plain_network_of_the_same_shape():
    plain, ours = build(symmetry="none", normalization="none"), build(normalization="none")
    assert not modules(plain, BesselConv2d)
    assert [(c.kernel_size, c.padding, c.out_channels) for c in modules(plain, nn.Conv2d)] == [
        (c.kernel_size, c.padding, c.out_channels) for c in modules(ours, BesselConv2d)
    ]
    assert turn_error(plain, smooth_images(2, 1, 28)) > 1e-3


def test_without_normalisation_there_is_a_bias():
    assert all(c.bias is not None for c in modules(build(normalization="none"), BesselConv2d))
    assert all(c.bias is None for c in modules(build(), BesselConv2d))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"width": 0}, "width=0"),
        ({"symmetry": "C4"}, "symmetry='C4'"),
        ({"kernel_size": 4}, "kernel_size=4"),
        ({"activation": "swish"}, "activation='swish'"),
        ({"normalization": "layer"}, "normalization='layer'"),
        ({"channels": [[16], []]}, "channels="),
        ({"field": "ring"}, "field='ring'"),
        ({"dropout": 1.0}, "dropout=1.0"),
        ({"last_padding": "full"}, "last_padding='full'"),
        ({"rotations": 0}, "rotations=0"),
        ({"cutoff": "hard"}, "cutoff='hard'"),
        ({"cutoff": ["soft", 0]}, "cutoff=0"),
        ({"cutoff": []}, "cutoff="),
        ({"image_size": 10, "kernel_size": 11}, "image_size=10"),
    ],
)
def test_mistakes_are_named(options, named):
    with pytest.raises(ValueError, match=named):
        build(**options)
