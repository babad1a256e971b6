"""Every cell of the paper builds its network and images and trains, here on tiny images."""

import importlib.util

import pytest

from besselnet_lab.paper import PEERS
from besselnet_lab.study.cells import expand
from besselnet_lab.study.estimate import measure
from besselnet_lab.study.images import ROOT_VARIABLE, load_images
from besselnet_lab.study.recipe import read_recipe
from besselnet_lab.study.train_cell import train_cell
from places import LAB
from study.toys import write_images

PAPER = sorted((LAB / "recipes" / "paper").glob("*.toml"))
ESCNN = importlib.util.find_spec("escnn") is not None


def tiny_cells(path, folder):
    """The cells of the first seed, with a file of random images in place of each data set.

    Four images train in batches of two, for one epoch.
    """
    changes = ["seeds=[0]", "judge_images=4", "train.device=cpu"]
    changes += [f"regimes.{regime}.epochs=1" for regime in ("high", "inter", "low")]
    entries = read_recipe(path).data
    for name, entry in entries.items():
        file = f"{name}.npz"
        shape = {"size": entry.image_size, "channels": entry.channels, "classes": entry.classes}
        write_images(folder / file, count=60, **shape)
        changes += [
            f"data.{name}.source=npz",
            f"data.{name}.file={file}",
            f"data.{name}.options={{}}",
            f"data.{name}.images=60",
            f"data.{name}.train.batch_size=2",
            f"data.{name}.train_images={{high=4, inter=4, low=4}}",
        ]
    return expand(read_recipe(path, changes))


def test_every_method_of_the_paper_takes_steps(tmp_path):
    cells = tiny_cells(PAPER[-1], tmp_path)
    one_each = {cell.key.row: cell for cell in cells}
    assert len(one_each) == 15
    for cell in one_each.values():
        if ESCNN or cell.config.model.name not in PEERS:
            assert measure(cell, threads=1) > 0


@pytest.mark.parametrize("path", PAPER, ids=lambda path: path.stem)
def test_every_column_of_the_paper_has_its_images(path, tmp_path, monkeypatch):
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    cells = tiny_cells(path, tmp_path)
    for cell in {cell.key.column: cell for cell in cells}.values():
        splits = load_images(cell.images)
        assert (len(splits.train), len(splits.test)) == (4, 4)
        assert (splits.train.channels, len(splits.train.classes)) == (cell.channels, cell.classes)
        assert splits.train.image_size[0] == cell.images.image_size


@pytest.mark.slow
@pytest.mark.parametrize("path", PAPER, ids=lambda path: path.stem)
def test_every_cell_of_the_paper_trains(path, tmp_path, monkeypatch):
    if not ESCNN:
        pytest.skip("the peers need escnn: pip install 'besselnet-lab[peers]'")
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    cells = tiny_cells(path, tmp_path)
    for cell in cells:
        result = train_cell(cell, tmp_path / "runs" / cell.key.identity, "tiny")
        assert result["curve"]["step"] == [2]
        assert result["judged"]["images"] == 4
    assert len(cells) == 15 * len({cell.key.column for cell in cells})
