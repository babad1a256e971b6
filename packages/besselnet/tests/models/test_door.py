"""What every model of the registry can do: features, stages, other heads, other channels, an outline."""

import re
import time

import pytest
import torch
from torch import nn

from besselnet.hub import save_pretrained
from besselnet.models import (
    FeatureMaps,
    count_parameters,
    create_model,
    list_models,
    model_info,
    outline_model,
)
from besselnet.models import _create as packaged
from models.probes import smooth_images, train_steps, turn_error
from places import DOCS

MODELS = [
    "besselnet_small",
    "besselnet_base",
    "besselnet_large",
    "besselnet_gated",
    *("bcnn_so2", "bcnn_o2", "bcnn_so2_plus", "bcnn_o2_plus", "bcnn_so2_strong"),
    "cnn",
    "resnet18",
]
ONE_NETWORK = [name for name in MODELS if name != "besselnet_gated"]
INVARIANT = [name for name in ONE_NETWORK if name not in ("cnn", "resnet18")]
SIZE = 28


def build(name, **settings):
    torch.manual_seed(0)
    narrow = {} if name == "resnet18" else {"width": 0.3}
    return create_model(name, **{"in_channels": 1, "image_size": SIZE, **narrow, **settings})


def images(count=2, channels=1):
    return smooth_images(count, channels, SIZE)


def test_these_are_the_models_of_the_library():
    assert set(MODELS) <= set(list_models())


@pytest.mark.parametrize("name", MODELS)
def test_the_size_of_images_and_their_channels_may_be_left_open(name):
    info = model_info(name)
    narrow = {} if name == "resnet18" else {"width": 0.1}
    model = create_model(name, num_classes=4, **narrow)
    assert model.recipe.image_size == info.default_size >= info.smallest_size
    assert model.recipe.in_channels == 3
    with pytest.raises(ValueError, match="num_classes=None: must be given"):
        create_model(name)


@pytest.mark.parametrize("name", ONE_NETWORK)
def test_without_classes_a_model_gives_its_pooled_features(name):
    model = build(name, num_classes=0).eval()
    x = images()
    features = model(x)
    assert features.shape == (2, model.num_features)
    torch.testing.assert_close(features, model.forward_features(x).mean((-2, -1)))
    assert isinstance(model.get_classifier(), nn.Identity)


@pytest.mark.parametrize("name", INVARIANT)
def test_features_do_not_change_under_quarter_turns(name):
    model, x = build(name, num_classes=0).double(), images().double()
    train_steps(model, x, steps=1)
    assert turn_error(model, x) < 1e-11


@pytest.mark.parametrize("name", MODELS)
def test_reset_classifier_gives_a_fresh_last_layer_on_the_same_features(name):
    model = build(name, num_classes=3).double().eval()
    maps = model.forward_features(images().double())
    model.reset_classifier(7)
    assert model.get_classifier().out_features == model.recipe.num_classes == 7
    assert model.get_classifier().in_features == model.num_features == maps.shape[1]
    assert model(images().double()).shape == (2, 7)
    assert torch.equal(model.forward_features(images().double()), maps)
    with pytest.raises(ValueError, match="num_classes=-1: must be an integer >= "):
        model.reset_classifier(-1)
    if name != "besselnet_gated":
        model.reset_classifier(0)
        assert model(images().double()).shape == (2, model.num_features)


@pytest.mark.parametrize("name", ONE_NETWORK)
def test_features_only_gives_the_maps_of_every_stage(name):
    x = smooth_images(2, 1, 64)
    same = {"last_padding": "same"} if name.startswith("besselnet") else {}
    model = build(name, features_only=True, image_size=64, **same).eval()
    maps = model(x)
    assert [info["num_chs"] for info in model.feature_info] == [m.shape[1] for m in maps]
    reductions = [info["reduction"] for info in model.feature_info]
    first = 2 if name == "resnet18" else 1
    assert reductions == [first * 2**n for n in range(len(maps))]
    assert len(maps) == {"resnet18": 5}.get(name, 4 if same else 3)
    if same or name == "resnet18":
        assert [m.shape[-1] for m in maps] == [64 // r for r in reductions]
    named = dict(model.named_modules())
    assert all(info["module"] in named for info in model.feature_info)
    # As in the whole network, whose weights have the same names.
    whole = build(name, num_classes=2, image_size=64, **same).eval()
    missing = whole.load_state_dict(model.state_dict(), strict=False)
    assert not missing.unexpected_keys
    torch.testing.assert_close(whole.forward_features(x), maps[-1])
    with pytest.raises(ValueError, match="must be"):
        model(x[0, 0])


@pytest.mark.parametrize("name", INVARIANT)
def test_the_maps_of_every_stage_rotate_with_the_image(name):
    model = build(name, features_only=True).double().eval()
    x = images().double()
    with torch.no_grad():
        upright, rotated = model(x), model(x.rot90(1, (-2, -1)))
    for before, after in zip(upright, rotated):
        torch.testing.assert_close(after, before.rot90(1, (-2, -1)), rtol=1e-9, atol=1e-9)


def test_a_gated_network_says_where_its_features_are():
    with pytest.raises(ValueError, match=r"num_classes=0: .*model.pruned\(\)"):
        build("besselnet_gated", num_classes=0)
    with pytest.raises(ValueError, match=r"a GatedNetwork does not define stages.*pruned\(\)"):
        build("besselnet_gated", features_only=True)
    model = build("besselnet_gated", num_classes=2)
    with pytest.raises(ValueError, match="num_classes=0"):
        model.reset_classifier(0)
    assert len(FeatureMaps(model.pruned())(images())) == 3


@pytest.mark.parametrize("name", MODELS)
def test_an_outline_has_the_parameters_of_the_model_and_leaves_no_trace(name):
    state = torch.get_rng_state()
    outline = outline_model(name, in_channels=1, num_classes=5, image_size=SIZE)
    assert torch.equal(torch.get_rng_state(), state)
    model = create_model(name, in_channels=1, num_classes=5, image_size=SIZE).eval()
    assert count_parameters(outline) == count_parameters(model)
    # What was made without values must not come back from a cache.
    assert torch.isfinite(model(images())).all()
    assert outline.recipe == model.recipe


def test_outlines_of_all_models_take_little_time():
    outline_model("besselnet_small", num_classes=10)
    start = time.process_time()
    for name in MODELS:
        outline_model(name, in_channels=1, num_classes=10, image_size=SIZE)
    assert time.process_time() - start < 2


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """Weights of every model for images of three channels, in three classes."""
    monkeypatch.setattr(packaged, "PACKAGED", tmp_path)

    def ship(name):
        model = build(name, in_channels=3, num_classes=3).eval()
        save_pretrained(model, tmp_path / name / "colours", classes=("a", "b", "c"))
        return model

    return ship


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 7])
@pytest.mark.parametrize(
    "name", ["besselnet_small", "besselnet_gated", "bcnn_o2", "cnn", "resnet18"]
)
def test_other_channels_adapt_the_first_layer(shipped, name, channels):
    """A grey image, repeated over the channels, gives the same answer."""
    trained = shipped(name)
    model = create_model(name, pretrained="colours", in_channels=channels).eval()
    assert model.recipe.in_channels == channels
    assert model.classes == ("a", "b", "c")
    grey = images()
    answers = model(grey.expand(-1, channels, -1, -1))
    torch.testing.assert_close(answers, trained(grey.expand(-1, 3, -1, -1)), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", INVARIANT)
def test_adapted_channels_keep_quarter_turns_exact(shipped, name):
    shipped(name)
    model = create_model(name, pretrained="colours", in_channels=5, num_classes=4).double()
    x = images(channels=5).double()
    train_steps(model, x, steps=1)
    assert turn_error(model, x) < 1e-11


@pytest.mark.parametrize("name", MODELS)
def test_other_classes_give_a_fresh_last_layer(shipped, name):
    trained = shipped(name)
    x = images(channels=3)
    same = create_model(name, pretrained="colours")
    assert same.training
    assert same.classes == ("a", "b", "c")
    torch.testing.assert_close(same.eval()(x), trained(x))
    other = create_model(name, pretrained=True, num_classes=5, **same.recipe.options).eval()
    assert other(x).shape == (2, 5)
    assert other.classes is None
    torch.testing.assert_close(other.forward_features(x), trained.forward_features(x))


def test_pretrained_features(shipped):
    trained = shipped("besselnet_small")
    x = images(channels=3)
    pooled = create_model("besselnet_small", pretrained="colours", num_classes=0).eval()(x)
    torch.testing.assert_close(pooled, trained.forward_features(x).mean((-2, -1)))
    maps = create_model("besselnet_small", pretrained="colours", features_only=True).eval()(x)
    torch.testing.assert_close(maps[-1], trained.forward_features(x))
    with pytest.raises(ValueError, match="in_channels=0: must be an integer >= 1"):
        create_model("besselnet_small", pretrained="colours", in_channels=0)
    with pytest.raises(ValueError, match="has no option 'widht'"):
        create_model("besselnet_small", pretrained="colours", widht=2)


def test_the_page_on_models_tells_the_truth(tmp_path, monkeypatch):
    page = (DOCS / "models.md").read_text()
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        exec(block, names)
    assert names["model"].recipe.num_classes == 7
    begin, end = page.index("# Start here: `besselnet_small`"), page.index("# All models")
    told = re.findall(r"`(\w+)`", page[begin:end])
    assert set(model_info("besselnet_small").options) <= set(told)
    listed = re.findall(r"`(\w+)`", page[end : page.index("```", end)])
    assert [name for name in listed if name in MODELS] == MODELS
    counts = re.findall(
        r"^\| `(\w+)` \| [\d.]+ \| ([\d ]+) \| ([\d ]+) \| ([\d ]+) \|", page, re.MULTILINE
    )
    assert [name for name, *_ in counts] == MODELS[:3]
    for name, *told in counts:
        found = [outline_model(name, num_classes=10, image_size=size) for size in (28, 64, 224)]
        assert [count_parameters(model) for model in found] == [
            int(number.replace(" ", "")) for number in told
        ]
    assert count_parameters(names["former"]) == 107_751
