"""Run folders: what they hold, what they give back, what they refuse."""

import dataclasses
import getpass
import json
import platform
import resource
import shutil
from functools import partial
from pathlib import Path

import pytest
import torch
from PIL import Image

from besselnet.data import ImageSet, Splits, iter_images
from besselnet.models import _registry, load_network, model_info
from besselnet.train import (
    DataConfig,
    ModelConfig,
    RunConfig,
    TrainConfig,
    inspect_run,
    load_images,
    load_run,
    predict,
    train_run,
)
from hostile import refused
from train.toy_run import make_images
from train.toys import same, weights_of


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return make_images(tmp_path_factory.mktemp("images"))


def toy_config(images: Path, **train) -> RunConfig:
    settings = {"epochs": 2, "batch_size": 8, "learning_rate": 0.01, "device": "cpu", **train}
    return RunConfig(
        data=DataConfig(source=str(images), augment=("rotate", "reflect")),
        model=ModelConfig(name="toy", options={"width": 3}),
        train=TrainConfig(**settings),
    )


@pytest.fixture(scope="module")
def finished(images, tmp_path_factory):
    return train_run(toy_config(images), tmp_path_factory.mktemp("runs") / "run", quiet=True)


def test_a_run_folder_holds_everything(finished):
    names = {str(path.relative_to(finished.folder)) for path in finished.folder.rglob("*.*")}
    assert names == {
        *("config.json", "environment.json", "metrics.csv", "log.txt", "results.json"),
        *("curves.png", "confusion.png", "checkpoint.safetensors"),
        *("model/config.json", "model/model.safetensors", "model/trust.safetensors", ".lock"),
    }
    for name in ("curves.png", "confusion.png"):
        with Image.open(finished.folder / name) as picture:
            picture.verify()
    environment = json.loads((finished.folder / "environment.json").read_text())
    assert environment["seed"] == 0
    assert environment["versions"]["torch"] == torch.__version__
    assert finished.results()["test"]["images"] == 12


def test_the_environment_tells_neither_host_nor_user(finished):
    def texts(value):
        if isinstance(value, dict):
            return {text for item in value.values() for text in texts(item)}
        return {value} if isinstance(value, str) else set()

    found = texts(json.loads((finished.folder / "environment.json").read_text()))
    assert not found & {platform.node(), getpass.getuser(), str(Path.home()), str(Path.cwd())}


def test_a_loaded_run_is_the_trained_model_in_eval_mode(finished):
    loaded = load_run(finished.folder)
    assert not loaded.model.training
    assert same(weights_of(loaded.model), weights_of(finished.model))
    assert loaded.config == finished.config
    assert (loaded.classes, loaded.image_size, loaded.in_channels) == (("bars", "blobs"), 10, 1)
    assert not same(weights_of(loaded.untrained_model()), weights_of(loaded.model))


def test_the_same_configuration_gives_the_same_weights(images, finished, tmp_path):
    torch.manual_seed(99)
    again = train_run(toy_config(images), tmp_path / "run", quiet=True)
    assert same(weights_of(again.model), weights_of(finished.model))
    other = train_run(toy_config(images, seed=1), tmp_path / "other", quiet=True)
    assert not same(weights_of(other.model), weights_of(finished.model))


def test_a_run_is_not_overwritten_nor_resumed_with_other_settings(images, finished):
    with pytest.raises(ValueError, match="already holds a run"):
        train_run(toy_config(images), finished.folder, quiet=True)
    with pytest.raises(ValueError, match=r"changed settings: train.epochs: 2 -> 5$"):
        train_run(toy_config(images, epochs=5), finished.folder, resume=True, quiet=True)


def test_a_run_that_lost_its_end_gets_it_back(images, finished, tmp_path):
    run = train_run(toy_config(images), tmp_path / "run", quiet=True)
    for path in (run.folder / "model").iterdir():
        path.unlink()
    (run.folder / "results.json").unlink()
    with pytest.raises(ValueError, match=r"has not finished: continue with .*--resume"):
        load_run(run.folder)
    train_run(toy_config(images), run.folder, resume=True, quiet=True)
    assert same(weights_of(load_run(run.folder).model), weights_of(finished.model))


@pytest.mark.parametrize(("found", "wanted"), [(1, "use besselnet 0.1.0"), (3, "not the format 2")])
@pytest.mark.parametrize("name", ["config.json", "model/config.json"])
def test_a_run_of_another_format_is_refused_in_one_line(finished, tmp_path, name, found, wanted):
    shutil.copytree(finished.folder, tmp_path / "run")
    values = json.loads((tmp_path / "run" / name).read_text())
    (tmp_path / "run" / name).write_text(json.dumps({**values, "format": found, "new": {}}))
    with pytest.raises(ValueError, match=wanted) as refused:
        load_run(tmp_path / "run")
    assert len(str(refused.value).splitlines()) == 1


def test_a_run_holds_all_options_of_its_network(images, finished, tmp_path, monkeypatch):
    plain = RunConfig(finished.config.data, ModelConfig("toy"), finished.config.train)
    run = train_run(plain, tmp_path / "run", quiet=True)
    written = json.loads((run.folder / "config.json").read_text())
    assert written["model"]["options"] == {"width": 4}
    # Another version of besselnet, with another default.
    info = model_info("toy")
    changed = dataclasses.replace(info, build=partial(info.build, width=2), options={"width": 2})
    monkeypatch.setitem(_registry._MODELS, "toy", changed)
    loaded = load_run(run.folder)
    assert same(weights_of(loaded.model), weights_of(run.model))
    assert loaded.untrained_model()[0].out_channels == 4
    with pytest.raises(ValueError, match=r"changed settings: model.options.width: 4 -> 2$"):
        train_run(plain, run.folder, resume=True, quiet=True)


def test_given_images_are_used_and_nothing_is_loaded(images, finished, tmp_path, monkeypatch):
    config = toy_config(images)
    splits = load_images(config.data)
    monkeypatch.setattr("besselnet.train._images.load_data", None)
    nameless = dataclasses.replace(config, data=dataclasses.replace(config.data, source=""))
    run = train_run(nameless, tmp_path / "run", images=splits, quiet=True)
    assert same(weights_of(run.model), weights_of(finished.model))
    assert run.results() == finished.results()
    with pytest.raises(ValueError, match=r"data\.source=''"):
        train_run(nameless, tmp_path / "other", quiet=True)
    wide = ImageSet(torch.zeros(4, 1, 8, 9), torch.tensor([0, 1, 0, 1]), ("a", "b"))
    with pytest.raises(ValueError, match="images are 8 x 9 pixels and must be square"):
        train_run(nameless, tmp_path / "other", images=Splits(train=wide), quiet=True)


def test_the_folder_of_the_network_is_one_of_the_models(finished):
    network = load_network(finished.folder / "model")
    assert network.classes == finished.classes
    assert same(weights_of(network), weights_of(finished.model))


def test_a_mistake_leaves_no_folder_behind(images, tmp_path):
    wrong = RunConfig(
        data=DataConfig(source=str(images)), model=ModelConfig(name="toi"), train=TrainConfig()
    )
    with pytest.raises(ValueError, match="toi"):
        train_run(wrong, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_not_a_run_folder(tmp_path):
    with pytest.raises(ValueError, match=r"is not a run folder: config\.json is missing"):
        load_run(tmp_path)


@pytest.mark.parametrize(
    ("section", "key", "wrong"),
    [("train", "epochs", "many"), ("train", "epochz", 3), ("data", "seed", -1)],
)
def test_a_wrong_setting_is_named_with_its_file(finished, tmp_path, section, key, wrong):
    shutil.copytree(finished.folder, tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    config = json.loads(path.read_text())
    config[section][key] = wrong
    path.write_text(json.dumps(config))
    refused(lambda: load_run(tmp_path / "run"), str(path), key)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("{", "line 1"),
        ("[1]", "object"),
        ("[" * 100_000, "recursion"),
        ('{"test": 3}', "test"),
        ('{"test": {}}', "accuracy"),
        ('{"test": {"accuracy": "all", "loss": 1, "images": 3}}', "accuracy"),
        ('{"a.b": {"accuracy": 1, "loss": NaN, "images": 3}}', "loss"),
        ('{"test": {"accuracy": 1, "loss": 1, "images": null}}', "images"),
    ],
)
def test_results_that_are_none_are_named(finished, tmp_path, text, key):
    (tmp_path / "results.json").write_text(text)
    run = dataclasses.replace(finished, folder=tmp_path)
    refused(run.results, str(tmp_path / "results.json"), key)


def test_predictions_come_in_order_with_the_failures(finished, images, tmp_path):
    good = sorted((images / "test").rglob("*.png"))
    (tmp_path / "bad.png").write_bytes(b"not an image")
    paths = [good[0], tmp_path / "bad.png", *good[1:5]]
    answers = list(predict(finished, paths, batch_size=2))
    assert [answer.image for answer in answers] == [str(path) for path in paths]
    assert [answer.error is not None for answer in answers] == [False, True] + [False] * 4
    assert "bad.png" in answers[1].error
    assert answers[1].label is None
    one_by_one = [next(predict(finished, [path])) for path in good[:5]]
    for a, b in zip([answers[0], *answers[2:]], one_by_one, strict=True):
        assert a.label == b.label
        assert a.probability == pytest.approx(b.probability, rel=1e-5)
    with pytest.raises(ValueError, match="batch_size=0: must be an integer >= 1"):
        next(predict(finished, good, batch_size=0))


@pytest.mark.slow
def test_ten_thousand_images_stream_in_constant_memory(finished, images):
    files = sorted((images / "test").rglob("*.png"))
    large = Image.new("L", (1000, 1000))
    folder = images.parent / "large"
    folder.mkdir()
    large.save(folder / "large.png")
    # The large image, a megabyte when decoded, comes every tenth time: 1 GB in all.
    paths = [folder / "large.png" if i % 10 == 0 else files[i % len(files)] for i in range(10_000)]
    answers = predict(finished, paths)
    for _ in range(500):
        next(answers)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert sum(1 for _ in answers) == 9500
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 20_000, f"grew by {grown} kB"


def test_inspection_counts_and_draws(finished):
    found = inspect_run(finished)
    assert found["parameters"] == 3 * 9 + 3 + 300 * 2 + 2
    # A 3 x 3 convolution to 3 channels on 100 pixels, then 300 inputs for 2 classes.
    assert found["multiply_adds"] == 100 * 9 * 3 + 600
    assert len(found["equivariance_error"]) == len(found["angles"])
    assert found["equivariance_error"][0] == 0
    # A linear layer on pixels knows up from down.
    assert found["worst_equivariance_error"] > 0.1
    with Image.open(finished.folder / "filters.png") as picture:
        picture.verify()
    (finished.folder / "filters.png").unlink()


def test_any_size_trains_and_predictions_resize_as_the_training_did(tmp_path, capsys):
    for name, level in (("bright", 255), ("dark", 0)):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(20):
            picture = Image.new("L", (40, 20 + number), 255 - level)
            picture.paste(level, (12, 0, 28, 40))
            picture.save(tmp_path / "images" / name / f"{number}.png")
    config = toy_config(tmp_path / "images")
    runs = {}
    for resize in ("crop", "stretch"):
        options = {} if resize == "crop" else {"resize": resize}
        chosen = dataclasses.replace(config, data=DataConfig(config.data.source, options=options))
        run = train_run(chosen, tmp_path / resize)
        assert capsys.readouterr().out.count(load_images(chosen.data).provenance.fitted) == 1
        assert load_run(run.folder).config.data.options == {"resize": resize}
        # The median of 20 .. 39.
        assert run.image_size == 30
        runs[resize] = run
    for run in runs.values():
        assert run.load_images().train.image_size == (30, 30)
        paths = sorted((tmp_path / "images").rglob("*.png"))[:3]
        how = run.config.data.options
        for answer, (_, image) in zip(
            predict(run, paths), iter_images(paths, image_size=30, channels=1, **how), strict=True
        ):
            with torch.no_grad():
                logits = run.model(image[None] / 255)
            expected = (logits / run.trust.temperature).softmax(1).max()
            assert answer.probability == pytest.approx(float(expected), abs=1e-5)


def test_augmentation_border_and_balance_reach_the_batches(images, finished, tmp_path):
    data = finished.config.data
    for number, changes in enumerate(
        [{"border": "reflect"}, {"balance": True}, {"augment": ("scale", "erase", "contrast")}]
    ):
        config = dataclasses.replace(finished.config, data=dataclasses.replace(data, **changes))
        run = train_run(config, tmp_path / str(number), quiet=True)
        assert not same(weights_of(run.model), weights_of(finished.model))
