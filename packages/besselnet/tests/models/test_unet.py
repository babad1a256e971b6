"""U-Nets: masks that turn with the image at every size, options, features, folders."""

import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from besselnet import convert
from besselnet.models import (
    FeatureMaps,
    count_parameters,
    create_model,
    describe_model,
    load_network,
    model_info,
    outline_model,
    save_network,
)
from besselnet.nn import BesselConv2d, BlurPool2d
from models.probes import smooth_images
from places import DOCS

NAMES = ["besselnet_unet", "besselnet_unet_base", "unet"]
SIZES = [(16, 16), (17, 17), (33, 33), (48, 48), (32, 47), (47, 32), (31, 21), (16, 64)]


def build(name="besselnet_unet", **options):
    torch.manual_seed(0)
    narrow = {"width": 2 if name == "unet" else 0.25}
    settings = {"in_channels": 1, "num_classes": 3, "image_size": 32, **narrow, **options}
    return create_model(name, **settings)


def images(height=32, width=32, channels=1):
    """Two different ones."""
    side = max(height, width)
    return smooth_images(2, channels, side)[..., :height, :width]


def train(model, steps=2):
    """Steps on invented masks; the statistics are those of the last one."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 1.0
    x = images().to(next(model.parameters()))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model.train()(x), (x[:, 0] > 0.5).long()).backward()
        optimizer.step()
    return model.eval()


def turn_error(model, image, mirror=False):
    """Largest change of the logits, moved back, against their spread over the pixels."""
    with torch.no_grad():
        logits = model(image)
        if mirror:
            back = [model(image.flip(-1)).flip(-1)]
        else:
            back = [model(image.rot90(n, (2, 3))).rot90(-n, (2, 3)) for n in (1, 2, 3)]
    return float(max((other - logits).abs().max() for other in back) / logits.std())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [(16, 16), (17, 30), (40, 33)])
def test_every_pixel_gets_logits(name, size):
    model = build(name).eval()
    assert model(images(*size)).shape == (2, 3, *size)
    assert model.forward_features(images(*size)).shape == (2, model.num_features, *size)


@pytest.mark.parametrize("symmetry", ["SO(2)", "O(2)"])
def test_quarter_turns_are_exact_at_every_size_trained(symmetry):
    model = train(build(symmetry=symmetry).double())
    for size in SIZES:
        assert turn_error(model, images(*size)[:1].double()) < 1e-11, size


def test_mirror_images_are_exact_with_o2_alone():
    image = images(33, 20)[:1].double()
    assert turn_error(train(build(symmetry="O(2)").double()), image, mirror=True) < 1e-11
    # Smooth blobs alone have hardly a hand: noise has.
    noise = torch.rand(1, 1, 33, 20, generator=torch.Generator().manual_seed(0)).double()
    assert turn_error(train(build().double()), noise, mirror=True) > 1e-4


def test_quarter_turns_leave_masks_identical_in_float32():
    model = train(build(), steps=5)
    for size in SIZES:
        with torch.no_grad():
            logits, other = (model(images(*size).rot90(n, (2, 3))) for n in (0, 1))
        first, second = logits.topk(2, 1).values.unbind(1)
        # Rounding decides where two classes tie.
        clear = (first - second > 1e-4 * logits.std()).rot90(1, (1, 2))
        assert clear.float().mean() > 0.99
        same = logits.argmax(1).rot90(1, (1, 2)) == other.argmax(1)
        assert same[clear].all(), size


def test_tiles_on_the_same_grid_see_what_the_image_shows():
    model = build(channels=[[3], [4], [4]], width=1.0).double().eval()
    image = torch.rand(1, 1, 131, 118, generator=torch.Generator().manual_seed(0)).double()
    with torch.no_grad():
        whole = model(image)[..., 16:115, 16:118]
        # 131 and 99, 118 and 102 have the same remainders, divided by 16.
        tile, other = (model(image[..., 16 : 16 + n, 16:118]) for n in (99, 98))
    inner = (..., slice(40, -40), slice(40, -40))
    assert (tile[inner] - whole[inner]).abs().max() < 1e-11
    assert (other[inner] - whole[..., :98, :][inner]).abs().max() > 1e-6


def test_a_plain_unet_fails_the_same_check():
    assert turn_error(train(build("unet")), images()[:1]) > 1e-2


def test_it_learns():
    x = images()
    target = (x[:, 0] > 0.5).long()
    model = build(width=0.5)
    losses = [F.cross_entropy(model.train()(x), target).item()]
    losses.append(F.cross_entropy(train(model, steps=30)(x), target).item())
    assert losses[1] < losses[0] / 2


def test_the_plain_one_converted_is_exact():
    own = train(convert(build("unet", width=3), image_size=32, repair="all"))
    assert turn_error(own.double(), images()[:1].double()) < 1e-11


def test_both_have_as_many_parameters():
    ours, plain = (
        count_parameters(outline_model(name, num_classes=2)) for name in ("besselnet_unet", "unet")
    )
    assert 300_000 < ours < 500_000
    assert ours == pytest.approx(plain, rel=0.05)


def test_the_page_on_models_has_their_parameters():
    page = (DOCS / "models.md").read_text()
    for name in NAMES:
        (told,) = re.findall(rf"^\| `{name}` \| [\d.]+ \| ([\d ]+) \|", page, re.MULTILINE)
        assert int(told.replace(" ", "")) == count_parameters(outline_model(name, num_classes=2))


@pytest.mark.parametrize("name", NAMES)
def test_smaller_images_and_other_shapes_are_refused(name):
    with pytest.raises(ValueError, match="at least 16"):
        build(name)(torch.rand(2, 1, 15, 40))
    with pytest.raises(ValueError, match=r"must be \(N, 1, H, W\)"):
        build(name)(torch.rand(2, 3, 32, 32))
    with pytest.raises(ValueError, match="image_size=15"):
        build(name, image_size=15)


def test_one_image_of_the_smallest_size_is_told_why_it_cannot_be_trained_on():
    with pytest.raises(ValueError, match="at least 2 images in training"):
        build().train()(torch.rand(1, 1, 16, 16))


@pytest.mark.parametrize("name", NAMES)
def test_last_layer_may_be_left_out_and_exchanged(name):
    model = build(name, num_classes=0).eval()
    assert isinstance(model.get_classifier(), nn.Identity)
    x = images()
    assert torch.equal(model(x), model.forward_features(x))
    model.reset_classifier(5)
    assert model(x).shape == (2, 5, 32, 32)
    assert model.recipe.num_classes == model.get_classifier().out_channels == 5


@pytest.mark.parametrize("name", NAMES)
def test_features_of_every_level(name):
    model = build(name, features_only=True).eval()
    assert isinstance(model, FeatureMaps)
    maps = model(images(33, 32))
    assert [tuple(m.shape[2:]) for m in maps] == [(33, 32), (17, 16), (9, 8), (5, 4), (3, 2)]
    assert [info["num_chs"] for info in model.feature_info] == [m.shape[1] for m in maps]
    assert [info["reduction"] for info in model.feature_info] == [1, 2, 4, 8, 16]


@pytest.mark.parametrize("name", NAMES)
def test_folders(name, tmp_path):
    model = train(build(name), steps=1)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 0.1
    save_network(model, tmp_path, classes=("a", "b", "c"))
    again = load_network(tmp_path)
    assert again.recipe == model.recipe
    assert again.classes == ("a", "b", "c")
    assert torch.equal(again(images()), model(images()))


def test_the_description_rotates_masks_back():
    ours = describe_model("besselnet_unet", image_size=33, width=0.25)
    assert ours.answers == model_info("besselnet_unet").answers == "pixels"
    assert ours.quarter_turn_error < 1e-4
    assert describe_model("unet", image_size=33, width=2).quarter_turn_error > 0.01


def test_options_reach_the_layers():
    model = build(
        kernel_size=7,
        cutoff="soft",
        sampling="bilinear",
        response="amplitude",
        channels=[[4], [8, 8, 8]],
        low_pass=0,
        pool_blur=0.0,
        dropout=0.5,
        normalization="none",
    )
    convolutions = [m for m in model.modules() if isinstance(m, BesselConv2d)]
    assert [c.kernel_size[0] for c in convolutions] == 5 * [7]
    assert {(c.cutoff, c.sampling, c.response) for c in convolutions} == {
        ("soft", "bilinear", "amplitude")
    }
    levels = build(cutoff=["soft", 0.7], channels=[[4], [8], [8, 8]])
    convolutions_by_level = [m for m in levels.modules() if isinstance(m, BesselConv2d)]
    # Down, and up again.
    assert [c.cutoff for c in convolutions_by_level] == ["soft", 0.7, 0.7, 0.7, 0.7, "soft"]
    assert all(c.bias is not None for c in convolutions)
    assert [m.sigma for m in model.modules() if isinstance(m, BlurPool2d)] == [0.0]
    assert [m.p for m in model.modules() if isinstance(m, nn.Dropout2d)] == [0.5]


@pytest.mark.parametrize(
    ("name", "options", "named"),
    [
        ("besselnet_unet", {"width": 0}, "width=0"),
        ("besselnet_unet", {"symmetry": "C4"}, "symmetry='C4'"),
        ("besselnet_unet", {"kernel_size": 6}, "kernel_size=6"),
        ("besselnet_unet", {"channels": [[8]]}, "2 to 5 levels"),
        ("besselnet_unet", {"channels": 6 * [[8]]}, "2 to 5 levels"),
        ("besselnet_unet", {"dropout": 1.0}, "dropout=1.0"),
        ("unet", {"width": 1.5}, "width=1.5"),
    ],
)
def test_mistakes_are_named(name, options, named):
    with pytest.raises(ValueError, match=named):
        build(name, **options)
