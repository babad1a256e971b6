"""The contact sheet and `besselnet data`."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from besselnet.cli import program
from besselnet.cli._data import app
from besselnet.data import ImageSet, list_data
from besselnet.drawing import contact_sheet


@pytest.fixture
def colours():
    """Three classes: red, green and blue images."""
    images = torch.zeros(30, 3, 10, 14, dtype=torch.uint8)
    labels = torch.arange(30) % 3
    images[torch.arange(30), labels] = 255
    return ImageSet(images, labels, ("red", "green", "a class with a very long name indeed"))


def test_each_class_has_its_row(colours, tmp_path):
    contact_sheet(colours, tmp_path / "sheet.png", per_class=4, title="colours")
    with Image.open(tmp_path / "sheet.png") as sheet:
        pixels = np.asarray(sheet).astype(int)
    tiles = pixels[:, 160:]
    pure = [(tiles == np.eye(3, dtype=int)[c] * 255).all(-1) for c in range(3)]
    rows = [np.flatnonzero(mask.any(1)) for mask in pure]
    assert rows[0].max() < rows[1].min() <= rows[1].max() < rows[2].min()
    # Four tiles of equal area in each row, none of another class.
    assert pure[0].sum() == pure[1].sum() == pure[2].sum() > 4 * 2000
    names = pixels[:, :150]
    assert (names.reshape(len(names), -1).min(1) < 100).sum() > 20, "names are written"


def test_sheets_of_floats_and_of_other_channels(tmp_path):
    images = torch.rand(6, 5, 9, 9)
    contact_sheet(ImageSet(images, torch.arange(6) % 2, ("a", "b")), tmp_path / "sheet.png")
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.size == (160 + 8 * 76 + 4, 4 + 2 * 76)


def test_a_failing_sheet_leaves_no_file(colours, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr(Image.Image, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        contact_sheet(colours, tmp_path / "sheet.png")
    assert list(tmp_path.iterdir()) == []


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_list_names_every_set(tmp_path, monkeypatch):
    monkeypatch.setenv("BESSELNET_DATA", str(tmp_path))
    listed = run("list")
    assert listed.exit_code == 0
    assert "besselnet[demo]" in "".join(listed.output.split())
    answer = json.loads(run("list", "--json").output)
    assert [row["name"] for row in answer["data"]] == list_data()
    assert answer["cache"] == str(tmp_path)


def test_show_draws_a_users_file(colours, tmp_path):
    path = tmp_path / "own.npz"
    np.savez(path, x=colours.images.numpy(), y=colours.labels.numpy())
    shown = run("show", path, "-o", tmp_path / "sheet.png", "--part", "test")
    assert shown.exit_code == 0, shown.output
    assert "test: 3 images, 16x16, 3 channels, 3 classes" in shown.output
    assert (tmp_path / "sheet.png").exists()


def test_mistakes_are_usage_errors(tmp_path, capsys):
    path = tmp_path / "own.npz"
    np.savez(path, x_train=np.zeros((4, 2, 2)), y_train=np.arange(4) % 2)
    for arguments in (
        ("show", path, "-o", tmp_path / "nowhere" / "sheet.png"),
        ("show", path, "-o", tmp_path / "a.png", "--part", "test"),
        ("show", "mnits", "-o", tmp_path / "sheet.png"),
        ("fetch", "npz"),
    ):
        assert program().run(["data", *map(str, arguments)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("besselnet: "), line
    assert [entry.name for entry in tmp_path.iterdir()] == ["own.npz"]
