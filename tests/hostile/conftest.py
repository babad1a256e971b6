"""What the hostile tests share: servers of forks, and a small trained run."""

import sys

import pytest

from hostile.fork_server import ForkServer
from train.toy_run import make_images

QUICK = [
    *("--model", "toy", "--set", "train.epochs=1", "--set", "train.batch_size=8"),
    *("--set", "train.device=cpu"),
]

if sys.platform != "linux":
    collect_ignore_glob = ["test_*.py"]  # the limits of memory are those of Linux


@pytest.fixture(scope="session")
def server():
    with ForkServer("besselnet", "reader") as started:
        yield started


@pytest.fixture(scope="session")
def lab_server():
    """Apart, because the lab registers networks of its own, some of which take long to build."""
    with ForkServer("besselnet-lab") as started:
        yield started


@pytest.fixture(scope="session")
def images(tmp_path_factory):
    return make_images(tmp_path_factory.mktemp("hostile") / "images")


@pytest.fixture(scope="session")
def run(server, images):
    """A run folder beside `images`."""
    folder = images.parent / "run"
    done = server.run("besselnet", "train", images, "--out", folder, *QUICK, folder=images.parent)
    assert done.code == 0, done.error
    return folder
