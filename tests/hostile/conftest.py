"""What the hostile tests share: servers of forks, and a small trained run."""

import sys

import pytest

from hostile.fork_server import ForkServer
from study.toys import write_study
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


@pytest.fixture(scope="session")
def servers(server, lab_server):
    """The server of each program."""
    return {"besselnet": server, "reader": server, "besselnet-lab": lab_server}


@pytest.fixture(scope="session")
def ready(server, lab_server, run):
    """`run` with an ONNX file, and a finished study beside it."""
    done = server.run("besselnet", "export", run, folder=run.parent)
    assert done.code == 0, done.error
    study = run.parent / "study"
    recipe = write_study(study)
    where = ("--results", study / "results", "--data-root", study, "--threads", "1")
    done = lab_server.run("besselnet-lab", "study", "run", recipe, *where, folder=study)
    assert done.code == 0, done.error
    return run
