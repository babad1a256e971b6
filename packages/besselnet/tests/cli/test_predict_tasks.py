"""`besselnet predict` with runs whose answer is not one class."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import besselnet.train
from besselnet.train import Classify, Multilabel, Regress, Run, RunConfig, Segment, predict_rows
from masks.networks import equivariant

CLASSES = ("background", "=cell", "border")


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / "new"
    folder.mkdir()
    chance = np.random.default_rng(0)
    for name, size in (("a", (40, 48)), ("b", (300, 300))):
        Image.fromarray(chance.integers(0, 256, size, np.uint8)).save(folder / f"{name}.png")
    (folder / "c.png").write_bytes(b"nonsense")
    return folder


@pytest.fixture
def trained(monkeypatch):
    """A function that makes the command load a run of a task."""

    def load(task, model):
        run = Run(Path("run"), RunConfig(), model.eval(), 1, 16, task.classes, task)
        monkeypatch.setattr(besselnet.train, "load_run", lambda folder, device: run)
        return run

    return load


def values_network(outputs):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16 * 16, outputs))


def table(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_masks_are_written_with_all_that_was_asked_for(call, trained, images, tmp_path):
    trained(Segment(CLASSES), equivariant())
    out = tmp_path / "out"
    options = ("--overlay", "--probabilities", "--instances", "components", "--tile", 256)
    code, output, error = call("predict", "run", images, "--out", out, *options)
    assert code == 0, error
    first, second, broken = table(output)
    assert "c.png" in broken["error"]
    # No name of a class is a formula, neither here nor in the measures.
    assert list(first)[2:5] == ["share_background", "share_=cell", "share_border"]
    with Image.open(second["mask"]) as mask:
        assert mask.size == (300, 300)
    written = {str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()}
    expected = {f"{kind}/{n}.png" for kind in ("masks", "overlays", "instances") for n in "ab"}
    expected |= {f"probabilities/{n}.{i}.png" for n in "ab" for i in range(3)}
    assert written == {*expected, "measures.csv"}
    measures = table((out / "measures.csv").read_text())
    assert len(measures) == int(first["objects"]) + int(second["objects"])
    assert {row["class"] for row in measures} <= {"'=cell", "border"}
    assert f"3 images, 1 with an error, written to {out}" in error


def test_masks_as_json(call, trained, images, tmp_path):
    trained(Segment(CLASSES), equivariant())
    _, output, _ = call("predict", "run", images / "a.png", "--out", tmp_path, "--json")
    row = json.loads(output)
    assert row["error"] is None
    assert sum(row[f"share_{name}"] for name in CLASSES) == pytest.approx(1)


def test_values_are_columns(call, trained, images):
    mean, deviation = torch.tensor([3.0, 0.0]), torch.tensor([10.0, 1.0])
    model = values_network(2)
    trained(Regress(("size", "=depth"), mean, deviation), model)
    code, output, error = call("predict", "run", images)
    assert code == 0, error
    rows = table(output)
    assert list(rows[0]) == ["image", "size", "'=depth", "error"]
    plainly = trained(Regress(("size", "=depth")), model)
    small = next(predict_rows(plainly, [images / "a.png"]))
    assert float(rows[0]["size"]) == pytest.approx(10 * small["size"] + 3)
    assert rows[2]["size"] == ""
    assert rows[2]["error"]


def test_labels_are_named_where_they_are_likely(call, trained, images):
    model = values_network(3)
    with torch.no_grad():
        model[1].bias.copy_(torch.tensor([50.0, -50.0, 50.0]))
    trained(Multilabel(("x", "y", "z")), model)
    _, output, _ = call("predict", "run", images)
    row = table(output)[0]
    assert list(row) == ["image", "labels", "x", "y", "z", "error"]
    assert row["labels"] == "x;z"
    assert float(row["y"]) < 1e-6


def test_a_value_may_have_the_name_of_a_column(call, trained, images):
    trained(Regress(("error", "image")), values_network(2))
    _, output, _ = call("predict", "run", images / "a.png")
    (row,) = table(output)
    assert list(row) == ["image", "error_", "image_", "error"]
    assert row["image"].endswith("a.png")
    assert float(row["error_"]) != float(row["image_"])


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        (Segment, [], "run predicts masks"),
        (Segment, ["--out", "o", "--instances", "magic"], "instances='magic': must be one of"),
        (Segment, ["--out", "o", "--tile", "20"], "tile=20: must be an integer >= 256"),
        (Regress, ["--out", "o"], "remove --out"),
        (Multilabel, ["--least-area", "3"], "remove --least-area"),
        (Classify, ["--overlay"], "remove --overlay"),
    ],
)
def test_a_mistake_is_one_line(call, trained, images, monkeypatch, task, options, message):
    monkeypatch.chdir(images)
    trained(task(CLASSES), equivariant())
    code, output, error = call("predict", "run", images / "a.png", *options)
    assert code == 2
    assert output == ""
    assert error.strip().splitlines() == [error.strip()]
    assert message in error
    assert not (images / "o").exists()
