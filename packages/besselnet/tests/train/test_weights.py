"""Training that starts from a trained network: which weights are kept, and what is refused."""

import pytest
import torch

from besselnet.models import adapt_network, create_model, load_network, save_network
from besselnet.train import build_model, make_config, recommend_config, train_run
from train.toy_run import make_images

WIDE = {"width": 0.5, "dropout": 0.1}


@pytest.fixture
def trained(tmp_path):
    """A folder of a network for grey images of 28 pixels in 3 classes."""
    torch.manual_seed(5)
    model = create_model("besselnet_small", in_channels=1, num_classes=3, image_size=28, **WIDE)
    save_network(model, tmp_path / "trained", classes=("a", "b", "c"))
    return tmp_path / "trained"


def test_a_training_starts_from_the_weights_of_the_folder(trained):
    config = make_config(settings=[f"model.weights={trained}"])
    start = build_model(config, 1, 3, 28)
    assert start.training
    for name, tensor in load_network(trained).state_dict().items():
        torch.testing.assert_close(start.state_dict()[name], tensor, rtol=0, atol=0)


def test_other_classes_and_channels_keep_the_other_layers(trained):
    config = make_config(settings=[f"model.weights={trained}", "train.seed=3"])
    start, again = (build_model(config, 3, 5, 28).eval() for _ in range(2))
    x = torch.rand(2, 1, 28, 28)
    torch.testing.assert_close(
        start.forward_features(x.expand(-1, 3, -1, -1)),
        load_network(trained).forward_features(x),
        rtol=1e-3,
        atol=1e-4,
    )
    fresh = start.get_classifier().weight
    assert fresh.shape[0] == 5
    torch.testing.assert_close(fresh, again.get_classifier().weight, rtol=0, atol=0)


def test_the_network_of_the_folder_sets_name_and_options(trained):
    config = make_config(settings=[f"model.weights={trained}"])
    assert config.model.name == "besselnet_small"
    assert config.model.options == load_network(trained).recipe.options
    for setting, said in {
        "model.name=cnn": "model.name='cnn': must be unset, because the network in",
        "model.options.width=2.0": "model.options.width=2.0: must be unset",
        "model.options.widht=2.0": "model.options.widht=2.0: must be unset",
    }.items():
        with pytest.raises(ValueError, match=said):
            make_config(settings=[f"model.weights={trained}", setting])
    with pytest.raises(ValueError, match="has no trained network"):
        make_config(settings=[f"model.weights={trained.parent}"])


def test_nothing_else_is_recommended_for_it(trained, tmp_path):
    images = make_images(tmp_path / "images", size=28)
    config, _, _ = recommend_config(
        {"data": {"source": str(images)}, "model": {"weights": str(trained)}}
    )
    assert config.model.options == load_network(trained).recipe.options


@pytest.mark.parametrize(("size", "kept"), [(30, None), (64, 28), (225, 28)])
def test_other_sizes_keep_the_layers(trained, size, kept):
    model = load_network(trained)
    adapted = adapt_network(model, image_size=size).eval()
    assert adapted.recipe.image_size == size
    assert adapted.recipe.options["layers_for"] == kept
    # The network takes images of other sizes as it is.
    images = torch.rand(1, 1, size, size)
    torch.testing.assert_close(adapted(images), model(images), rtol=0, atol=0)
    again = adapt_network(adapted, image_size=28).eval()
    torch.testing.assert_close(again.state_dict(), model.state_dict(), rtol=0, atol=0)


def test_sizes_below_what_the_layers_need_are_refused(trained):
    with pytest.raises(ValueError, match="image_size=20: must be at least 28 with layers_for=28"):
        adapt_network(load_network(trained), image_size=20)
    config = make_config(settings=[f"model.weights={trained}"])
    with pytest.raises(ValueError, match=r"model.weights=.*image_size=20"):
        build_model(config, 1, 3, 20)


def test_networks_without_the_option_keep_their_size():
    model = create_model("besselnet_gated", in_channels=1, num_classes=3, image_size=28)
    with pytest.raises(ValueError, match=r"image_size=64: .* was trained on images of 28 pixels"):
        adapt_network(model, image_size=64)


def test_a_run_starts_from_another_and_resumes(trained, tmp_path):
    images = make_images(tmp_path / "images", size=28)
    settings = ["train.epochs=1", "train.device=cpu", "train.batch_size=8"]
    base = {"data": {"source": str(images)}}
    first = train_run(
        make_config(base, settings=[*settings, f"model.weights={trained}"]), tmp_path / "a"
    )
    second = make_config(base, settings=[*settings, f"model.weights={tmp_path / 'a'}"])
    run = train_run(second, tmp_path / "b")
    assert run.model.recipe.options == first.model.recipe.options
    torch.testing.assert_close(
        run.untrained_model().state_dict(), first.model.state_dict(), rtol=0, atol=0
    )
    again = train_run(second, tmp_path / "b", resume=True)
    torch.testing.assert_close(again.model.state_dict(), run.model.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("size", [28, 60])
def test_a_name_stands_for_weights_that_come_along(size):
    config = make_config(settings=["model.weights=besselnet_small/digits"])
    start = build_model(config, 2, 4, size).eval()
    packaged = create_model("besselnet_small", pretrained="digits").eval()
    x = torch.rand(1, 1, size, size)
    # A grey image, repeated over the channels, whatever their number.
    torch.testing.assert_close(
        start.forward_features(x.expand(-1, 2, -1, -1)),
        packaged.forward_features(x),
        rtol=1e-3,
        atol=1e-4,
    )
    # As `--resume` reads it: the weights are older than some options.
    assert make_config(config) == config
    with pytest.raises(
        ValueError, match=r"must be a folder .* one of: .*besselnet_small/mnist-rot"
    ):
        make_config(settings=["model.weights=besselnet_small/mnist-rto"])
