"""A study on a Ray cluster: the results of the local runner, though a worker dies in the middle."""

import io
import os
import signal
import socket
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from besselnet.cluster import check_address
from besselnet_lab.study import images
from besselnet_lab.study.cells import expand
from besselnet_lab.study.cluster import _fill, run_cluster
from besselnet_lab.study.images import ROOT_VARIABLE
from besselnet_lab.study.local import run_local
from besselnet_lab.study.recipe import read_recipe
from besselnet_lab.study.store import Store
from besselnet_lab.study.worker import Outcome, as_job
from study.toys import RECIPE, comparable, write_study


def test_without_ray_the_user_is_told_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"besselnet-lab\[cluster\]"):
        run_cluster([], Store(tmp_path), study="tiny", address="auto")


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_where_nothing_answers_is_refused_at_once(tmp_path, scheme):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'besselnet-lab[cluster]'")
    with socket.socket() as taken:
        # Bound, and not listening: connections are refused.
        taken.bind(("127.0.0.1", 0))
        address = f"{scheme}127.0.0.1:{taken.getsockname()[1]}"
        started = time.monotonic()
        with pytest.raises(ValueError, match=f"no Ray cluster at '{address}': .*refused"):
            run_cluster([], Store(tmp_path), study="tiny", address=address)
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("answer", [b"HTTP/1.0 400 Bad request\r\n\r\n", b"", None])
def test_an_address_where_something_else_answers_is_refused(tmp_path, monkeypatch, answer):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'besselnet-lab[cluster]'")
    monkeypatch.setattr("besselnet.cluster._SECONDS_TO_ANSWER", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as open_connections:

        def serve():
            connection = open_connections.enter_context(server.accept()[0])
            if answer is not None:
                connection.sendall(answer)
                connection.shutdown(socket.SHUT_WR)

        threading.Thread(target=serve, daemon=True).start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        reason = "timed out" if answer is None else "another service"
        with pytest.raises(ValueError, match=f"no Ray cluster at '{address}': {reason}"):
            run_cluster([], Store(tmp_path), study="tiny", address=address)


def test_a_cluster_with_tls_is_not_greeted_in_plain_text(monkeypatch):
    monkeypatch.setenv("RAY_USE_TLS", "1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        check_address(f"127.0.0.1:{server.getsockname()[1]}")
        with server.accept()[0] as connection:
            assert connection.recv(1) == b""


def test_a_task_without_a_shared_folder_hands_its_result_back(tmp_path, monkeypatch):
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    cell = expand(read_recipe(write_study(tmp_path)))[0]
    reply = _fill(as_job(cell, "tiny", tmp_path / "elsewhere"), "shared-with-none", threads=1)
    assert reply["outcome"] == Outcome.DONE.value
    assert reply["result"]["curve"]["epoch"] == [1, 2]
    assert not (tmp_path / "elsewhere").exists()
    (tmp_path / "tiny.npz").unlink()
    images._load_whole.cache_clear()
    reply = _fill(as_job(cell, "tiny", tmp_path / "elsewhere"), "shared-with-none", threads=1)
    assert reply["outcome"] == Outcome.FAILED.value
    assert "tiny.npz" in reply["failure"]["error"]


@pytest.fixture
def address(monkeypatch):
    """A cluster of two workers on this machine."""
    # Ray gives its workers the lowest priority but one; on a busy machine they would never begin.
    monkeypatch.setenv("RAY_worker_niceness", "0")
    ray = pytest.importorskip(
        "ray", reason="Ray is not installed: pip install 'besselnet-lab[cluster]'"
    )
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    for _ in range(2):
        cluster.add_node(num_cpus=1)
    yield cluster.address
    ray.shutdown()
    cluster.shutdown()


def kill_a_worker(store, killed):
    """Once a training has begun, kill the process that does it."""
    runs = store.work / "runs"
    while not list(runs.glob("*/*/metrics.csv")):
        time.sleep(0.05)
    for process in Path("/proc").glob("[0-9]*"):
        try:
            title = (process / "cmdline").read_bytes().replace(b"\0", b" ")
        except OSError:
            continue
        if title.startswith(b"ray::_fill"):
            os.kill(int(process.name), signal.SIGKILL)
            killed.append(int(process.name))
            return


# Ray leaves sockets and files to its own processes.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").exists(), reason="finds the worker to kill in /proc")
def test_a_cluster_gives_the_results_of_the_local_runner(tmp_path, address):
    recipe = RECIPE.replace("seeds = [0, 1]", "seeds = [0, 1, 2]").replace(
        "epochs = 2", "epochs = 60"
    )
    cells = expand(read_recipe(write_study(tmp_path, recipe)))
    assert len(cells) == 6
    here, there = Store(tmp_path / "here"), Store(tmp_path / "there")
    settings = {"study": "tiny", "data_root": tmp_path, "stream": io.StringIO()}
    assert run_local(cells, here, threads=1, **settings).done == 6
    there.prepare()
    killed: list[int] = []
    killer = threading.Thread(target=kill_a_worker, args=(there, killed), daemon=True)
    killer.start()
    summary = run_cluster(cells, there, address=address, **settings)
    killer.join(timeout=10)
    assert killed
    assert (summary.done, summary.failed) == (6, [])
    found = [[comparable(result) for result in store.results()] for store in (here, there)]
    assert found[0] == found[1]
    log = (there.work / "log.txt").read_text().splitlines()
    assert sum(line.split()[1] == "finished" for line in log) == 6
    assert not list(there.work.glob("shared-*"))
