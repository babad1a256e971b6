"""From a folder of images and masks to masks of new images, by the command line alone."""

import csv
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from besselnet.cli import main
from besselnet.hub import from_pretrained
from besselnet.models import read_network_config
from besselnet.train import load_run

SETTINGS = (
    *("train.epochs=2", "train.device=cpu", "data.patch=32", "data.options.masks=instances"),
    "model.options.channels=[[3],[4],[4]]",
)
# Neither torch nor what needs it can be imported.
WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from besselnet.cli import main
main()
"""


def cells(count, size, seed):
    """(image, instances) with bright discs on noise, some of which touch."""
    chance = np.random.default_rng(seed)
    y, x = np.mgrid[:size, :size]
    for _ in range(count):
        found = np.zeros((size, size), np.uint16)
        for number in range(1, size // 8):
            row, column = chance.uniform(0, size, 2)
            found[np.hypot(y - row, x - column) < chance.uniform(3, 7)] = number
        noise = chance.integers(0, 80, found.shape)
        yield (noise + 150 * (found > 0)).astype(np.uint8), found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("cells")
    for number, (image, mask) in enumerate(cells(12, 40, seed=0)):
        for kind, pixels in (("images", image), ("masks", mask)):
            (place / "data" / kind).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(place / "data" / kind / f"{number:02}.png")
    (place / "new").mkdir()
    for name, size in (("small", 37), ("large", 300)):
        Image.fromarray(next(cells(1, size, seed=1))[0]).save(place / "new" / f"{name}.png")
    return place


@pytest.fixture(scope="module")
def run(folder):
    settings = [word for one in SETTINGS for word in ("--set", one)]
    with pytest.raises(SystemExit) as end:
        main(["train", str(folder / "data"), "--out", str(folder / "run"), *settings])
    assert not end.value.code
    return folder / "run"


def test_evaluate_scores_pixels_boundaries_and_objects(call, run):
    code, output, error = call("evaluate", run, "--rotated", "--angles", 4, "--json")
    assert code == 0, error
    report = json.loads(output)
    stored = load_run(run).results()["test"]
    for key in ("iou", "dice", "boundary_f1", "objects", "classes"):
        assert report[key] == stored[key]
    assert report["objects"]["true"] > 0
    trained = report["rotated"]["trained"]
    # Quarter turns of the network are exact.
    assert trained["agreement"] > 0.999
    assert trained["dice"] == pytest.approx([trained["upright_dice"]] * 4, abs=1e-3)
    _, output, _ = call("evaluate", run, "--rotated", "--angles", 4)
    for words in ("boundary F1", "panoptic quality", "mean Dice rotated", "agreement with upright"):
        assert words in output
    assert {"overlays.png", "rotated.png", "confusion.png"} <= {p.name for p in run.iterdir()}


def test_folders_and_plain_files_give_the_logits_of_the_run(call, run):
    model = load_run(run).model
    images = torch.rand(2, 1, 33, 47)
    with torch.no_grad():
        expected = model(images)
        for to in ("plain", "folder"):
            code, _, error = call("export", run, "--to", to)
            assert code == 0, error
        torch.testing.assert_close(from_pretrained(run / "pretrained")(images), expected)
    about = read_network_config(run / "pretrained")["about"]
    assert about["task"] == "segment"
    program = "import model, torch; print(model.load('model.pt')(torch.ones(1, 1, 33, 47)).sum())"
    done = subprocess.run([sys.executable, "-c", program], cwd=run, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_prediction_without_torch_writes_the_masks_of_the_run(call, run, folder):
    for package in ("onnx", "onnxruntime", "onnxscript"):
        pytest.importorskip(package, reason=f"{package} is not installed (extra: export)")
    code, _, error = call("export", run)
    assert code == 0, error
    options = ("--tile", "256", "--instances", "components", "--overlay")
    given = (folder / "new", *options, "--csv")
    code, _, error = call("predict", run, *given, folder / "a.csv", "--out", folder / "a")
    assert code == 0, error
    arguments = ("predict", run / "model.onnx", *given, folder / "b.csv", "--out", folder / "b")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    names = [{p.relative_to(folder / f) for p in (folder / f).rglob("*.png")} for f in "ab"]
    assert names[0] == names[1]
    assert len(names[0]) == 6
    for name in names[0]:
        if name.parts[0] == "masks":
            one, other = (np.asarray(Image.open(folder / f / name)) for f in "ab")
            # Rounding decides where two classes are as likely.
            assert (one != other).mean() < 1e-3
    rows = [list(csv.DictReader((folder / f"{f}.csv").read_text().splitlines())) for f in "ab"]
    for one, other in zip(*rows):
        assert one.keys() == other.keys()
        assert not other["error"]
    code, _, error = call("predict", run / "model.onnx", folder / "new")
    assert code == 2
    assert "model.onnx predicts masks" in error
