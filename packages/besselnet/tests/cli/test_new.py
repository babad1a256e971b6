"""`besselnet new`: what it says of images, and that it is what `besselnet train` then does."""

import re
import shlex

import numpy as np
import pytest
from PIL import Image

from besselnet.train import preview_run
from train.toy_run import make_images

QUICK = ("--model", "toy", "--set", "train.epochs=2", "--set", "train.device=cpu")


@pytest.fixture
def images(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_images(tmp_path / "images")
    return "images"


def test_nothing_is_trained_and_what_is_announced_is_what_training_does(call, images, tmp_path):
    code, output, _ = call("new", images, *QUICK)
    assert code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"images", "images-contact-sheet.png"}
    assert re.search(r"bars +12 +6 +6\nblobs +12 +6 +6\n", output)
    announced = [line for line in output.splitlines() if line.startswith("training ")]
    reason = [line for line in output.splitlines() if line.startswith("24 images")]
    command = shlex.split(output.splitlines()[-1].partition("next: besselnet ")[2])
    code, trained, _ = call(*command)
    assert code == 0
    assert reason[0] in trained
    # The time is another measurement.
    assert announced[0].partition(":")[0] in trained
    assert (tmp_path / "runs" / "images" / "model").is_dir()


def test_the_trial_of_mirror_images_is_announced(images):
    chance = np.random.default_rng(0)
    for name in ("bars", "blobs"):
        for number in range(100):
            noise = chance.integers(0, 255, (10, 10), np.uint8)
            Image.fromarray(noise).save(f"images/train/{name}/more{number}.png")
    layers = {"data": {"source": images}, "model": {"name": "besselnet_small"}}
    small = ["model.options.channels=[[2]]", "data.image_size=9", "train.device=cpu"]
    *trial, training = preview_run(layers, settings=small).steps
    assert len(trial) == 1
    assert training.startswith("training ")
    decided = preview_run(layers, settings=[*small, "data.augment=['rotate']"])
    assert len(decided.steps) == 1


def test_masks_and_values_are_described(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for kind in ("images", "masks"):
        (tmp_path / "cells" / kind).mkdir(parents=True)
        for number in range(10):
            pixels = np.zeros((16, 16), np.uint8)
            pixels[:, :4] = 1
            Image.fromarray(pixels).save(tmp_path / "cells" / kind / f"{number}.png")
    small = "model.options.channels=[[3],[4],[4]]"
    code, output, _ = call("new", "cells", "--set", small, "-o", "sheet.png")
    assert code == 0
    assert re.search(r"1 +25\.0% +25\.0% +25\.0%", output)
    rows = [f"cells/images/{n}.png,{n}.5" for n in range(10)]
    (tmp_path / "sizes.csv").write_text("\n".join(["image,size", *rows]))
    code, output, _ = call("new", "sizes.csv", "--model", "toy")
    assert code == 0
    assert re.search(r"size +[\d.]+ to [\d.]+", output)
    assert (tmp_path / "sizes.csv-contact-sheet.png").exists()


def test_mistakes_are_one_line(call, images):
    for arguments in (("nowhere",), (images, "-o", "no/folder/x.png"), (images, "--model", "x")):
        code, output, error = call("new", *arguments)
        assert (code, output) == (2, "")
        assert error.count("\n") == 1
