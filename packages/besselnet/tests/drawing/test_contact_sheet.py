"""The contact sheet and `besselnet data`."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from besselnet.cli import program
from besselnet.cli._data import app
from besselnet.data import IGNORED, ImageSet, list_data
from besselnet.drawing import contact_sheet
from besselnet.masks import class_colour


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


def pixels_of(path):
    with Image.open(path) as sheet:
        return np.asarray(sheet).astype(int)


def test_masks_are_beside_their_images_in_the_colours_of_the_legend(tmp_path):
    images = torch.full((5, 1, 20, 20), 200, dtype=torch.uint8)
    masks = torch.zeros(5, 20, 20, dtype=torch.uint8)
    masks[:, :10], masks[:, 10:, 10:] = 1, IGNORED
    contact_sheet(ImageSet(images, masks, ("ground", "cell")), tmp_path / "sheet.png", per_class=3)
    pixels = pixels_of(tmp_path / "sheet.png")
    cell = (pixels == class_colour(1)).all(-1)
    # Half of three tiles, and the square before the name of the class.
    assert cell[:, 160:].sum() == 3 * 144 * 72
    assert 0 < cell[:, :160].sum() < 400
    dark = (pixels[:, 160:] < 60).all(-1)
    assert dark.sum() == 3 * 72 * 72
    assert (pixels[:, 160:] == 200).all(-1).sum() >= 3 * 144 * 144


def test_values_rise_along_a_row(tmp_path):
    images = torch.arange(50, 250, 10).to(torch.uint8)[:, None, None, None].expand(-1, 1, 8, 8)
    values = torch.stack([torch.arange(20.0), -torch.arange(20.0)], 1)
    imageset = ImageSet(images, values, ("rising", "falling"))
    contact_sheet(imageset, tmp_path / "sheet.png", per_class=4)
    pixels = pixels_of(tmp_path / "sheet.png")
    first, second = pixels[40, 196::76, 0][:4], pixels[132, 196::76, 0][:4]
    assert list(first) == list(second[::-1]) == sorted(first)
    assert (first[0], first[-1]) == (50, 240)


def test_several_labels_have_a_row_each_and_captions(tmp_path):
    images = torch.full((6, 3, 8, 8), 255, dtype=torch.uint8)
    labels = torch.tensor([[True, False], [True, True]]).repeat(3, 1)
    imageset = ImageSet(images, labels, ("red\0", "a long name that is cut"))
    contact_sheet(imageset, tmp_path / "sheet.png", per_class=8)
    pixels = pixels_of(tmp_path / "sheet.png")
    assert len(pixels) == 4 + 2 * (76 + 16)
    captions = pixels[77:92, 160:]
    written = [bool((captions[:, 76 * i : 76 * i + 72] < 200).any()) for i in range(8)]
    assert written == [True] * 6 + [False] * 2


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.arange(20 * 64).reshape(20, 8, 8) % 3, "masks of 3 classes"),
        (np.linspace(0, 1, 40).reshape(20, 2), "2 values each"),
        (np.arange(60).reshape(20, 3) % 2 == 0, "any of 3 classes"),
    ],
)
def test_show_draws_labels_of_every_kind(tmp_path, labels, words):
    path = tmp_path / "own.npz"
    np.savez(path, x=np.zeros((20, 8, 8), np.uint8), y=labels)
    shown = run("show", path, "-o", tmp_path / "sheet.png")
    assert shown.exit_code == 0, shown.output
    assert words in shown.output
    assert (tmp_path / "sheet.png").exists()


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
