"""Class and file names of every kind: trained, drawn, tested, answered, exported."""

import csv
import io
import json
import os
import sys
import warnings

import numpy as np
import pytest
import torch
from PIL import Image

from besselnet.cli import main
from besselnet.data import ImageSet
from besselnet.drawing import (
    attempt,
    contact_sheet,
    draw_confusion,
    draw_feature_maps,
    draw_rotated,
    new_figure,
    plain_text,
    png_bytes,
    svg_bytes,
    write_figure,
)
from besselnet.hub import from_pretrained
from besselnet.models import load_network
from besselnet.train import RotatedEvaluation, load_run, train_run
from nasty_names import NASTY
from train.toy_run import quick_config

CLASSES = tuple(sorted(NASTY))


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Four images of a grey of its own in each class."""
    folder = tmp_path_factory.mktemp("images")
    for number, name in enumerate(CLASSES):
        for part, count in (("train", 4), ("val", 1)):
            place = folder / part / name
            place.mkdir(parents=True)
            for i in range(count):
                pixels = np.full((10, 10), 15 * number + i, np.uint8)
                Image.fromarray(pixels).save(place / f"{i}{name[:50]}.png".replace("/", ""))
    return folder


def run(*arguments):
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    return end.value.code


@pytest.fixture(scope="module")
def trained(images, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / CLASSES[0]
    settings = ("train.epochs=1", "train.batch_size=8", "train.device=cpu")
    options = [word for setting in settings for word in ("--set", setting)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run("train", images, "--out", folder, "--model", "toy", *options) == 0
    return folder


def test_a_run_keeps_the_names_and_draws_them(trained):
    loaded = load_run(trained)
    assert loaded.classes == CLASSES
    assert tuple(loaded.results()["val"]["classes"]) == CLASSES
    for name in ("curves.png", "confusion.png"):
        with Image.open(trained / name) as picture:
            picture.verify()


def test_answers_name_the_classes(trained, images, tmp_path, capsys):
    assert run("evaluate", trained, "--json") == 0
    assert tuple(json.loads(capsys.readouterr().out)["classes"]) == CLASSES
    assert run("predict", trained, images / "val", "--csv", tmp_path / "a.csv") == 0
    with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(CLASSES)
    assert not any(row["error"] for row in rows)


def test_a_terminal_without_the_letters_gets_every_row(trained, images, monkeypatch):
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", terminal)
    assert run("predict", trained, images / "val") == 0
    assert run("evaluate", trained) == 0
    terminal.seek(0)
    assert r"caf\udce9" in terminal.read()


@pytest.mark.parametrize("to", ["plain", "folder", "torch-export"])
def test_exports_hold_the_names(trained, tmp_path, to):
    place = tmp_path / {"plain": "a.py", "folder": "a", "torch-export": "a.pt2"}[to]
    assert run("export", trained, "--to", to, "--out", place) == 0
    if to == "folder":
        assert from_pretrained(place).classes == CLASSES
        assert "caf\ufffd" in (place / "README.md").read_text(encoding="utf-8")
    elif to == "plain":
        names: dict = {"__file__": str(place), "__name__": "plain"}
        exec(compile(place.read_bytes(), "plain.py", "exec"), names)
        assert tuple(names["CLASSES"]) == CLASSES


def test_an_onnx_file_holds_the_names(trained, images, tmp_path):
    pytest.importorskip("onnxscript", reason="onnxscript is not installed (extra: export)")
    from besselnet.export import OnnxClassifier

    assert run("export", trained, "--out", tmp_path / "a.onnx") == 0
    classifier = OnnxClassifier(tmp_path / "a.onnx")
    assert classifier.classes == CLASSES
    assert all(answer.error is None for answer in classifier.predict([images / "val"]))


@pytest.mark.parametrize("name", NASTY, ids=ascii)
def test_every_picture_takes_every_name(tmp_path, name):
    draw_confusion(tmp_path / "a.png", torch.eye(2, dtype=torch.int64), [name, "b"])
    curve = RotatedEvaluation((0.0, 180.0), (1.0, 0.5), (1.0, 0.5), (0.0, 0.1), "black")
    draw_rotated(tmp_path / "b.png", {name: curve})
    layers = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU())
    image = torch.rand(1, 9, 9)
    write_figure(tmp_path / "c.png", draw_feature_maps({name: layers}, image, 30, image, [0]))
    few = ImageSet(torch.zeros(2, 1, 8, 8), torch.tensor([0, 1]), (name, "b"))
    contact_sheet(few, tmp_path / "d.png", title=name)
    figure = new_figure(2)
    figure.suptitle(plain_text(name))
    for letters in (True, False):
        svg_bytes(figure, letters=letters).decode()
    png_bytes(figure)


def test_a_dollar_is_drawn_as_a_dollar():
    def text_of(figure):
        svg = svg_bytes(figure, letters=True).decode()
        return svg[svg.rindex("<text") :].split(">")[1].split("<")[0]

    for name in ("$100_$200", r"\$a$"):
        figure = new_figure(2)
        figure.suptitle(plain_text(name))
        assert text_of(figure) == name


def test_a_thousand_classes_fit_into_memory(tmp_path):
    many = [str(number) for number in range(1000)]
    draw_confusion(tmp_path / "a.png", torch.eye(1000, dtype=torch.int64), many)
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.width < 10_000


def test_a_picture_that_fails_is_a_line(tmp_path, caplog):
    def fail(path, *arguments):
        raise RuntimeError("no\nink")

    assert not attempt(fail, tmp_path / "a.png", 1, 2)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "a.png" in line
    assert "no ink" in line
    assert "\n" not in line
    assert attempt(lambda path: None, tmp_path / "a.png")


@pytest.mark.parametrize("broken", ["draw_confusion", "draw_curves", "draw_rotated"])
def test_pictures_that_fail_do_not_end_a_command(images, tmp_path, monkeypatch, caplog, broken):
    def fail(*arguments):
        raise RuntimeError("no ink")

    monkeypatch.setattr(f"besselnet.drawing.{broken}", fail)
    folder = tmp_path / "run"
    settings = ("train.epochs=1", "train.batch_size=8", "train.device=cpu")
    options = [word for setting in settings for word in ("--set", setting)]
    assert run("train", images, "--out", folder, "--model", "toy", *options) == 0
    assert run("evaluate", folder, "--rotated", "--angles", "2") == 0
    assert [record.getMessage().count("no ink") for record in caplog.records] == [1]
    assert load_run(folder).results()


def test_the_network_is_there_when_the_testing_fails(images, tmp_path, monkeypatch):
    def fail(*arguments, **options):
        raise MemoryError

    monkeypatch.setattr("besselnet.train._run.evaluate", fail)
    with pytest.raises(MemoryError):
        train_run(quick_config(images), tmp_path / "run", quiet=True)
    assert load_network(tmp_path / "run" / "model").classes == CLASSES
    monkeypatch.undo()
    again = train_run(quick_config(images), tmp_path / "run", resume=True, quiet=True)
    assert again.results()["val"]["images"] == len(CLASSES)
    assert os.fsdecode(b"caf\xe9 \xff\xfe") in again.results()["val"]["classes"]
