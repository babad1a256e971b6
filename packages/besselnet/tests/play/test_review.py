"""What the page gets of a run: its network, and the images to look at."""

import json
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from besselnet.data import iter_images
from besselnet.play import run_files
from besselnet.train import load_run, train_run
from train.toy_run import make_images, quick_config

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("onnxscript", reason="onnxscript is not installed (extra: export)")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return make_images(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def run(source, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "toy"
    return train_run(quick_config(source), folder, quiet=True)


@pytest.fixture(scope="module")
def files(run):
    return run_files(run)


def images_of(files):
    about = json.loads(files["run.json"])
    shape = (-1, about["channels"], about["image_size"], about["image_size"])
    pixels = np.frombuffer(files["images.bin"], about["dtype"]).reshape(shape)
    return about, torch.from_numpy(pixels.copy()).float() / (
        255 if about["dtype"] == "uint8" else 1
    )


def probabilities(run, images):
    with torch.no_grad():
        return run.model(images).softmax(1)


def test_the_network_answers_as_the_run_does(run, files):
    about, images = images_of(files)
    session = onnxruntime.InferenceSession(files["model.onnx"])
    logits, *maps = session.run(None, {"images": images.numpy()})
    shares = torch.from_numpy(logits).softmax(1)
    assert torch.allclose(shares, probabilities(run, images), atol=1e-5)
    assert maps[0].shape == (len(images), 4, 10, 10)
    told = [image["probability"] for image in about["images"]]
    assert torch.allclose(torch.tensor(told), shares.amax(1), atol=1e-5)


def test_the_least_sure_come_first_and_the_wrong_are_wrong(run, source, files):
    about, images = images_of(files)
    test = run.load_images().test
    every = probabilities(run, test.images.float() / 255)
    wrong = int((every.argmax(1) != test.labels).sum())
    assert len(about["wrong"]) == wrong
    assert len(about["unsure"]) == len(test)
    shares = probabilities(run, images)
    best = shares.topk(2).values
    margins = (best[:, 0] - best[:, 1])[about["unsure"]]
    assert bool((margins.diff() >= -1e-6).all())
    labels = torch.tensor([image["label"] for image in about["images"]])
    assert bool((shares.argmax(1) != labels)[about["wrong"]].all())
    assert bool((shares.amax(1)[about["wrong"]].diff() <= 1e-6).all())


def test_files_of_the_run_are_found_by_their_pixels(source, files):
    about, images = images_of(files)
    for row, image in zip(about["images"], images):
        ((_, pixels),) = iter_images([source / row["file"]])
        assert torch.equal(pixels.float() / 255, image)
        assert row["file"].split("/")[1] == about["classes"][row["label"]]


def test_new_files_have_no_label(run, source, tmp_path):
    shutil.copy(source / "test" / "bars" / "0.png", tmp_path / "=1.png")
    (tmp_path / "deep").mkdir()
    shutil.copy(source / "test" / "blobs" / "1.png", tmp_path / "deep" / "b.png")
    (tmp_path / "broken.png").write_bytes(b"no image")
    about, images = images_of(run_files(run, [tmp_path]))
    assert {row["file"] for row in about["images"]} == {"=1.png", "deep/b.png"}
    assert {row["label"] for row in about["images"]} == {None}
    assert len(images) == 2
    assert about["wrong"] == []
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="no images"):
        run_files(run, [tmp_path / "empty"])


def test_files_are_named_from_the_folder_that_all_are_in(run, source):
    paths = [source / "test" / "bars" / "0.png", source / "test" / "blobs"]
    about, _ = images_of(run_files(run, paths))
    files = {row["file"] for row in about["images"]}
    assert "bars/0.png" in files
    assert all((source / "test" / file).is_file() for file in files)
    alone, _ = images_of(run_files(run, paths[:1]))
    assert [row["file"] for row in alone["images"]] == ["0.png"]


def test_deep_files_keep_their_values(run, tmp_path):
    values = np.linspace(0, 65535, 100).reshape(10, 10).astype(np.uint16)
    Image.fromarray(values).save(tmp_path / "deep.png")
    about, images = images_of(run_files(run, [tmp_path]))
    assert about["dtype"] == "float32"
    assert torch.allclose(images[0, 0], torch.from_numpy(values / 65535).float(), atol=1e-6)


def test_a_run_without_its_images_still_has_a_network(run, source, tmp_path):
    shutil.copytree(run.folder, tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["data"]["source"] = str(tmp_path / "gone")
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    about, images = images_of(run_files(load_run(tmp_path / "run")))
    assert (len(images), about["images"], about["unsure"]) == (0, [], [])
    assert "gone" in about["source"]
