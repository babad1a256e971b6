"""Prediction on a Ray cluster: the files of the local run, though a worker dies, or sees no file."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from besselnet.robust import fit_trust
from besselnet.train import Classify, Run, RunConfig, Segment, predict_shards
from besselnet.train import _shards as shards

# Ray leaves sockets and files to its own processes.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
HOW = {"rows_per_file": 40, "batch_size": 4}


class Slow(nn.Module):
    """Long enough for being killed meanwhile; defined here, so it travels by value."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(64, 3)

    def forward(self, images):
        time.sleep(0.02)
        return self.layer(images.flatten(1))


def classifier():
    """A run that knows when its answers are sure."""
    classes, model = ("a", "b", "c"), Slow().eval()
    batch = torch.rand(90, 1, 8, 8), torch.arange(90) % 3
    trust = fit_trust(model, [batch], [batch])
    return Run(Path("run"), RunConfig(), model, 1, 8, classes, Classify(classes), trust)


def segmenter():
    classes = ("background", "cell")
    torch.manual_seed(0)
    model = nn.Conv2d(1, 2, 3, padding=1).eval()
    return Run(Path("run"), RunConfig(), model, 1, 8, classes, Segment(classes))


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    for number in range(200):
        pixels = np.random.default_rng(number).integers(0, 256, (8, 8), np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:03d}.png")
    (folder / "077.png").write_bytes(b"nonsense")
    return folder


@pytest.fixture(scope="module")
def address():
    """A cluster of two workers on this machine."""
    ray = pytest.importorskip(
        "ray", reason="Ray is not installed: pip install 'besselnet[cluster]'"
    )
    from ray import cloudpickle
    from ray.cluster_utils import Cluster

    # The workers cannot import this file.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with pytest.MonkeyPatch.context() as patch:
        # Ray gives its workers the lowest priority but one; on a busy machine they would never begin.
        patch.setenv("RAY_worker_niceness", "0")
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
        for _ in range(2):
            cluster.add_node(num_cpus=1)
        yield cluster.address
        ray.shutdown()
        cluster.shutdown()


def contents(folder):
    paths = sorted(path for path in folder.rglob("*") if path.suffix in (".csv", ".png"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def kill_a_worker(folder, killed):
    """Once there are rows, kill a process that makes some."""
    while not list(folder.glob("rows-*")):
        time.sleep(0.02)
    for process in Path("/proc").glob("[0-9]*"):
        try:
            title = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if title.startswith(b"ray::_Worker"):
            os.kill(int(process.name), signal.SIGKILL)
            killed.append(int(process.name))
            return


@pytest.mark.skipif(not Path("/proc").exists(), reason="finds the worker to kill in /proc")
def test_a_worker_that_is_killed_loses_and_repeats_nothing(tmp_path, images, address, monkeypatch):
    # Paths are relative to where the command is called.
    monkeypatch.chdir(images.parent)
    here, there = tmp_path / "here", tmp_path / "there"
    predict_shards(classifier(), [images.name], here, workers=0, **HOW)
    killed: list[int] = []
    killer = threading.Thread(target=kill_a_worker, args=(there, killed), daemon=True)
    killer.start()
    report = predict_shards(classifier(), [images.name], there, cluster=address, **HOW)
    killer.join(timeout=10)
    assert killed
    assert (report.images, report.failures) == (200, 1)
    found = contents(there)
    assert len(found) == 5
    assert all(
        rows.startswith(b"image,class,probability,sure,set,error\n") for rows in found.values()
    )
    assert found == contents(here)


def test_images_reach_workers_that_share_no_disk(tmp_path, images, address, monkeypatch):
    here, there = tmp_path / "here", tmp_path / "there"
    predict_shards(classifier(), [images], here, workers=0, **HOW)
    # A worker that misses one file is sent all.
    monkeypatch.setattr(shards, "evidence_of", lambda sources: [("/no/such/file", 1, 1)])
    predict_shards(classifier(), [images], there, cluster=address, **HOW)
    assert contents(there) == contents(here)


def test_masks_come_back_from_workers(tmp_path, images, address):
    some = sorted(images.glob("0[0-2]*.png"))
    here, there = tmp_path / "here", tmp_path / "there"
    how = {"rows_per_file": 20, "instances": "components"}
    predict_shards(segmenter(), some, here, workers=0, **how)
    predict_shards(segmenter(), some, there, cluster=address, **how)
    found = contents(there)
    assert len([name for name in found if name.startswith("masks/")]) == 30
    text = found["rows-00000-000000.csv"].decode().replace(str(there), str(here))
    assert text == (here / "rows-00000-000000.csv").read_text()
    pictures = {name: content for name, content in contents(here).items() if "rows" not in name}
    assert pictures.items() <= found.items()


def test_without_ray_the_user_is_told_what_to_install(tmp_path, images, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"besselnet\[cluster\]"):
        predict_shards(classifier(), [images], tmp_path / "out", cluster="auto", **HOW)
