"""What these tests share: servers of forks, and a small trained run."""

import sys

import pytest

from abuse.fork_server import ForkServer
from abuse.networks import QUICK, SMALL
from study.toys import write_study
from train.toy_run import make_images

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
    return make_images(tmp_path_factory.mktemp("abuse") / "images")


@pytest.fixture(scope="session")
def run(server, images):
    """A run folder beside `images`."""
    return train(server, images, "run", QUICK)


@pytest.fixture(scope="session")
def servers(server, lab_server):
    """The server of each program."""
    return {"besselnet": server, "reader": server, "besselnet-lab": lab_server}


@pytest.fixture(scope="session")
def ready(server, lab_server, images):
    """A run of a network of the library, with an ONNX file; beside it a finished study."""
    folder = train(server, images, "ready", SMALL)
    exported = server.run("besselnet", "export", folder, folder=images.parent)
    assert exported.code == 0, exported.error
    study = images.parent / "study"
    where = ("--results", study / "results", "--data-root", study, "--threads", "1")
    recipe = write_study(study)
    done = lab_server.run("besselnet-lab", "study", "run", recipe, *where, folder=study)
    assert done.code == 0, done.error
    return folder


def train(server, images, name, options):
    folder = images.parent / name
    done = server.run("besselnet", "train", images, "--out", folder, *options, folder=images.parent)
    assert done.code == 0, done.error
    return folder
