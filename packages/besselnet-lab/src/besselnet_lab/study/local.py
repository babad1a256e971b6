"""Run cells on this machine: a few worker processes, with the threads divided among them."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import torch

from besselnet.train import Interrupted, StopRequest
from besselnet_lab.study.cells import Cell
from besselnet_lab.study.images import ROOT_VARIABLE, check_root
from besselnet_lab.study.store import Store
from besselnet_lab.study.tally import Summary, Tally
from besselnet_lab.study.train_cell import describe_failure
from besselnet_lab.study.worker import Outcome, as_job

__all__ = ["cores", "run_local"]

# Seconds between looks at whether to stop.
_POLL = 0.2
# A stopping worker finishes its step and saves its state.
_SECONDS_TO_STOP = 120.0


def cores() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_local(
    cells: Sequence[Cell],
    store: Store,
    *,
    study: str,
    jobs: int = 1,
    threads: int | None = None,
    nice: int = 0,
    retries: int = 1,
    data_root: Path | None = None,
    stream: TextIO | None = None,
) -> Summary:
    """Fill the cells that have no result yet.

    Args:
        study: name of the study, kept in the results.
        jobs: processes at a time.
        threads: of each process; the processors divided by `jobs` unless given.
        nice: lower the priority of the processes by this.
        retries: how often a cell that fails is tried again in this call.
        data_root: folder with the published files of the data sets.

    Raises:
        ValueError: if a result has other settings than its cell, or there is no such `data_root`.
        Interrupted: after Ctrl-C or SIGTERM, when every process has saved its state.
    """
    waiting = (cell for cell in cells if not store.result_path(cell.key).exists())
    files = (cell.images.file for cell in waiting)
    check_root(data_root, (file for file in files if file is not None))
    replies: queue.Queue[tuple[_Worker, str]] = queue.Queue()
    threads = threads or max(1, cores() // jobs)
    crew = [_Worker(slot, threads, nice, data_root, replies) for slot in range(jobs)]
    with StopRequest() as stop, Tally(store, cells, retries=retries, stream=stream) as tally:
        try:
            while True:
                if stop.signal_number:
                    raise Interrupted("stopped; run again to continue", stop.signal_number)
                for worker in crew:
                    if worker.cell is None and (cell := tally.next()) is not None:
                        worker.give(cell, study, store)
                if all(worker.cell is None for worker in crew):
                    break
                with contextlib.suppress(queue.Empty):
                    worker, reply = replies.get(timeout=_POLL)
                    _take(worker, reply, tally, study, store)
        finally:
            _stop_all(crew)
    return tally.summary


def _take(worker: "_Worker", reply: str, tally: Tally, study: str, store: Store) -> None:
    """Note what a worker says about its cell; "" means that its process has died."""
    cell, worker.cell = worker.cell, None
    how = worker.buried() if reply == "" else ""
    if cell is None:
        return  # it died with nothing to do
    if reply == "":
        _record_crash(cell, how, study, store)
    if reply == Outcome.DONE.value:
        result = store.result(cell.key) or {}
        tally.done(cell, result["accuracy"], time.monotonic() - worker.started)
    elif reply == Outcome.BUSY.value:
        tally.busy(cell)
    else:
        failure = store.failure(cell.key) or {}
        tally.failed(cell, failure["error"])


class _Worker:
    """A place at the work: a process that fills cells, and another one if it dies.

    Replies (`Outcome` values, or "" for a process that died over a cell) go to `replies`.
    """

    def __init__(
        self,
        slot: int,
        threads: int,
        nice: int,
        data_root: Path | None,
        replies: "queue.Queue[tuple[_Worker, str]]",
    ) -> None:
        self.arguments = [str(threads), str(nice)]
        self.environment = {
            **os.environ,
            "OMP_NUM_THREADS": str(threads),
            "MKL_NUM_THREADS": str(threads),
        }
        if data_root is not None:
            self.environment[ROOT_VARIABLE] = str(data_root.resolve())
        if torch.cuda.device_count():
            self.environment.setdefault(
                "CUDA_VISIBLE_DEVICES", str(slot % torch.cuda.device_count())
            )
        self.replies = replies
        self.process: subprocess.Popen[str] | None = None
        self.cell: Cell | None = None
        self.started = 0.0

    def give(self, cell: Cell, study: str, store: Store) -> None:
        """Let the process fill the cell."""
        self.cell, self.started = cell, time.monotonic()
        if self.process is None:
            self.process = self._open()
            threading.Thread(target=self._read, args=(self.process,), daemon=True).start()
        assert self.process.stdin is not None
        job = json.dumps(as_job(cell, study, store.folder), allow_nan=False)
        # If it has died already, its reader will say so.
        with contextlib.suppress(BrokenPipeError):
            print(job, file=self.process.stdin, flush=True)

    def _open(self) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "besselnet_lab.study.worker", *self.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=self.environment,
            # Ctrl-C reaches this process alone, which then asks its workers to stop.
            start_new_session=True,
        )

    def _read(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                self.replies.put((self, line.strip()))
        self.replies.put((self, ""))

    def buried(self) -> str:
        """How the process ended, which will be replaced."""
        assert self.process is not None
        code = self.process.wait()
        self.close()
        self.process = None
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def close(self) -> None:
        """Tell the process that there is no more to do: at work, it saves its state and stops."""
        if self.process is not None and self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()


def _record_crash(cell: Cell, how: str, study: str, store: Store) -> None:
    """Make a failure of the cell out of the death of its process."""
    log = store.log_path(cell.key)
    said = log.read_text(errors="replace") if log.exists() else ""
    text = f"{said}\nthe process ended with {how}"
    store.write_failure(cell.key, describe_failure(cell, study, text))


def _stop_all(workers: Sequence[_Worker]) -> None:
    """Let the workers save and stop; end those that do not."""
    for worker in workers:
        worker.close()
    deadline = time.monotonic() + _SECONDS_TO_STOP
    for process in [worker.process for worker in workers if worker.process is not None]:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
