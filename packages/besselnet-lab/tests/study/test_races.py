"""Two runners on one study: every cell once, and the results of a runner alone."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from besselnet_lab.study import images
from besselnet_lab.study.cells import expand
from besselnet_lab.study.recipe import read_recipe
from besselnet_lab.study.store import Busy, Store
from besselnet_lab.study.train_cell import fill_cell, train_cell
from besselnet_lab.study.worker import Outcome, _do, as_job
from study.toys import write_study

DRIVER = Path(__file__).with_name("race_driver.py")


def race(folder, races):
    done = subprocess.run(
        [sys.executable, DRIVER, folder, str(races), "0"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert done.stdout.count("good") == races


def test_two_races_train_each_cell_once(tmp_path):
    race(tmp_path, 2)


@pytest.mark.slow
def test_fifty_races_train_each_cell_once(tmp_path):
    race(tmp_path, 50)


@pytest.fixture
def cell(tmp_path, monkeypatch):
    monkeypatch.setenv(images.ROOT_VARIABLE, str(tmp_path))
    images._load_whole.cache_clear()
    return expand(read_recipe(write_study(tmp_path)))[0]


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "results")
    store.prepare()
    return store


HOLDER = """
import sys
from pathlib import Path
from besselnet.locking import hold
with hold(Path(sys.argv[1]), "cell"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_worker_leaves_the_log_of_a_cell_to_its_holder(cell, store):
    log = store.log_path(cell.key)
    log.parent.mkdir(parents=True)
    log.write_text("of the holder")
    program = [sys.executable, "-c", HOLDER, store.lock_path(cell.key)]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "held\n"
        assert _do(as_job(cell, "tiny", store.folder)) is Outcome.BUSY
        with pytest.raises(Busy, match="narrow"):
            fill_cell(store, cell, "tiny")
        other.kill()
    assert log.read_text() == "of the holder"
    assert not store.is_running(cell.key)


def test_an_unfinished_cell_of_other_images_is_not_continued(cell, store, tmp_path):
    train_cell(cell, store.run_folder(cell.key), "tiny")
    images._load_whole.cache_clear()
    with np.load(tmp_path / "tiny.npz") as stored:
        arrays = {**stored, "x": stored["x"] ^ 1}
    np.savez(tmp_path / "tiny.npz", **arrays)
    with pytest.raises(ValueError, match=r"images have changed: pixels of 18 images;"):
        fill_cell(store, cell, "tiny")
    assert store.result(cell.key) is None


def test_a_picture_that_fails_does_not_fail_the_cell(cell, store, monkeypatch):
    def fail(*arguments):
        raise RuntimeError("no ink")

    monkeypatch.setattr("besselnet.drawing.draw_confusion", fail)
    result = fill_cell(store, cell, "tiny")
    assert json.loads(store.result_path(cell.key).read_text())["accuracy"] == result["accuracy"]
