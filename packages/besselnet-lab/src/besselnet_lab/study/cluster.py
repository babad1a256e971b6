"""Run cells on many machines: tasks of an existing Ray cluster.

Where the folder of results is on a file system that the machines share, a task works in it as a local
worker does, and a task that is lost goes on from its checkpoint on another machine. Elsewhere a task
works in a temporary folder and hands its result back; a lost one starts again. Either way a result is
written once.
"""

import secrets
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from besselnet.atomic import write_atomically
from besselnet.cluster import connected
from besselnet.train import Interrupted, StopRequest
from besselnet_lab.study.cells import Cell
from besselnet_lab.study.images import ROOT_VARIABLE
from besselnet_lab.study.store import Busy, Store
from besselnet_lab.study.tally import Summary, Tally
from besselnet_lab.study.train_cell import describe_failure, fill_cell, train_cell
from besselnet_lab.study.worker import Outcome, as_job, cell_of

__all__ = ["run_cluster"]

# How often Ray starts a task again whose machine or process was lost.
_LOSSES = 5
_POLL = 0.5
# Tasks that wait at the cluster for each that it can run: enough to leave no place empty.
_AHEAD = 2
_SECONDS_TO_STOP = 120.0


@dataclass
class _Submitted:
    cell: Cell
    started: float


def run_cluster(
    cells: Sequence[Cell],
    store: Store,
    *,
    study: str,
    address: str,
    cpus: int = 1,
    gpus: float = 0.0,
    retries: int = 1,
    data_root: Path | None = None,
    stream: TextIO | None = None,
) -> Summary:
    """Fill the cells that have no result yet.

    Args:
        study: name of the study, kept in the results.
        address: of the cluster, as `ray.init` takes it: "auto", "HOST:6379", "ray://HOST:10001".
        cpus, gpus: resources of a cell; it computes with `cpus` threads.
        retries: how often a cell that fails is tried again in this call.
        data_root: folder with the published files of the data sets, on every machine.

    Raises:
        Interrupted: after Ctrl-C or SIGTERM.
    """
    variables = {} if data_root is None else {ROOT_VARIABLE: str(data_root)}
    with connected(address, "besselnet-lab[cluster]", runtime_env={"env_vars": variables}) as ray:
        store.prepare()
        token = store.work / f"shared-{secrets.token_hex(8)}"
        write_atomically(token, "")
        try:
            task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=_LOSSES)(_fill)
            with (
                StopRequest() as stop,
                Tally(store, cells, retries=retries, stream=stream) as tally,
            ):
                running: dict[Any, _Submitted] = {}
                try:
                    while True:
                        if stop.signal_number:
                            raise Interrupted("stopped; run again to continue", stop.signal_number)
                        while (
                            len(running) < _places(ray, cpus) and (cell := tally.next()) is not None
                        ):
                            job = as_job(cell, study, store.folder.resolve())
                            running[task.remote(job, token.name, cpus)] = _Submitted(
                                cell, time.monotonic()
                            )
                        if not running:
                            break
                        ready, _ = ray.wait(list(running), timeout=_POLL)
                        for reference in ready:
                            _take(ray, reference, running.pop(reference), tally, study, store)
                finally:
                    _cancel(ray, list(running))
            return tally.summary
        finally:
            token.unlink(missing_ok=True)


def _places(ray: Any, cpus: int) -> int:
    """How many tasks to have at the cluster, which may grow and shrink."""
    return _AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)) // cpus)


def _fill(job: dict[str, Any], token: str, threads: int) -> dict[str, Any]:
    """The task: runs on any machine of the cluster. Returns the outcome, and the result or failure."""
    import torch

    torch.set_num_threads(threads)
    cell, store = cell_of(job), Store(Path(job["results"]))
    try:
        if (store.work / token).exists():
            result = fill_cell(store, cell, job["study"])
        else:
            with tempfile.TemporaryDirectory() as folder:
                result = train_cell(cell, Path(folder) / "run", job["study"])
    except Busy:
        return {"outcome": Outcome.BUSY.value}
    except Exception as error:
        failure = describe_failure(cell, job["study"], error)
        return {"outcome": Outcome.FAILED.value, "failure": failure}
    return {"outcome": Outcome.DONE.value, "result": result}


def _take(
    ray: Any, reference: Any, submitted: _Submitted, tally: Tally, study: str, store: Store
) -> None:
    """Write what a task hands back, unless it stands there already."""
    cell = submitted.cell
    try:
        reply = ray.get(reference)
    except ray.exceptions.RayError as error:
        reply = {
            "outcome": Outcome.FAILED.value,
            "failure": describe_failure(cell, study, str(error)),
        }
    if reply["outcome"] == Outcome.DONE.value:
        try:
            with store.lock(cell.key):
                if store.result(cell.key) is None:
                    store.write_result(cell.key, reply["result"])
        except Busy:
            # Another runner is at it, and writes the same.
            tally.busy(cell)
            return
        tally.done(cell, reply["result"]["accuracy"], time.monotonic() - submitted.started)
    elif reply["outcome"] == Outcome.BUSY.value:
        tally.busy(cell)
    else:
        store.write_failure(cell.key, reply["failure"])
        tally.failed(cell, reply["failure"]["error"])


def _cancel(ray: Any, references: list[Any]) -> None:
    """Ask the tasks to stop: where they share the folder, they save their state."""
    for reference in references:
        ray.cancel(reference)
    if references:
        ray.wait(references, num_returns=len(references), timeout=_SECONDS_TO_STOP)
