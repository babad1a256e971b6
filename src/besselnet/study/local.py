"""Run cells on this machine: a process for each, a few at a time, threads divided among them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import torch

from besselnet.engine import Interrupted
from besselnet.engine.interrupt import StopRequest
from besselnet.engine.progress import ProgressLog, in_words
from besselnet.study.cells import Cell
from besselnet.study.images import ROOT_VARIABLE
from besselnet.study.store import Store
from besselnet.study.train_cell import describe_failure
from besselnet.study.worker import Outcome, as_job

__all__ = ["Summary", "cores", "run_local", "unfinished"]

_POLL_SECONDS = 0.1
# A stopping worker finishes its step and saves its state.
_SECONDS_TO_STOP = 120.0


@dataclass
class Summary:
    """What became of the cells of one call."""

    done_before: int = 0
    done: int = 0
    failed: list[Cell] = field(default_factory=list)
    elsewhere: int = 0

    def in_words(self) -> str:
        parts = [f"{self.done} cells done now, {self.done_before} before"]
        if self.elsewhere:
            parts.append(f"{self.elsewhere} in the hands of another runner")
        if self.failed:
            parts.append(f"{len(self.failed)} failed")
        return ", ".join(parts)


@dataclass
class _Worker:
    cell: Cell
    process: "subprocess.Popen[bytes]"
    slot: int
    log: Path
    started: float


def cores() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def unfinished(store: Store, cells: Sequence[Cell]) -> list[Cell]:
    """The cells without a result; every result there is must have the settings of its cell."""
    for cell in cells:
        store.check_settings(cell)
    return [cell for cell in cells if not store.result_path(cell.key).exists()]


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
        Interrupted: after Ctrl-C or SIGTERM, when every process has saved its state.
    """
    store.prepare()
    waiting = deque(unfinished(store, cells))
    summary = Summary(done_before=len(cells) - len(waiting))
    for cell in cells:
        if store.run_folder(cell.key).exists() and store.result_path(cell.key).exists():
            store.clean(cell.key)  # what a kill between writing and cleaning left over
    launch = _Launcher(store, study, threads or max(1, cores() // jobs), nice, data_root)
    running: list[_Worker] = []
    tries: dict[str, int] = {}
    elsewhere: list[Cell] = []
    with (
        StopRequest() as stop,
        ProgressLog(len(cells), unit="cells", done=summary.done_before, stream=stream) as progress,
    ):
        try:
            while waiting or running:
                if stop.signal_number:
                    raise Interrupted("stopped; run again to go on", stop.signal_number)
                while waiting and len(running) < jobs:
                    slot = next(i for i in range(jobs) if i not in {w.slot for w in running})
                    running.append(launch(waiting.popleft(), slot))
                for worker in [w for w in running if w.process.poll() is not None]:
                    running.remove(worker)
                    cell, took = worker.cell, time.monotonic() - worker.started
                    outcome = _outcome(worker, store, study)
                    if outcome == Outcome.DONE:
                        summary.done += 1
                        progress.line(_done_line(store, cell, took))
                        progress.advance(text=f"{len(running) + 1} at work")
                    elif outcome == Outcome.BUSY:
                        elsewhere.append(cell)
                    elif outcome == Outcome.FAILED:
                        tries[cell.key.identity] = tries.get(cell.key.identity, 0) + 1
                        failure = store.failure(cell.key) or {}
                        progress.line(f"failed  {cell.key}: {failure.get('error')}")
                        if tries[cell.key.identity] <= retries:
                            waiting.append(cell)
                        else:
                            summary.failed.append(cell)
                            progress.advance()
                time.sleep(_POLL_SECONDS)
        finally:
            _stop_all(running)
    summary.elsewhere = sum(not store.result_path(cell.key).exists() for cell in elsewhere)
    return summary


class _Launcher:
    """Starts workers, all with the same settings."""

    def __init__(
        self, store: Store, study: str, threads: int, nice: int, data_root: Path | None
    ) -> None:
        self.store, self.study, self.threads, self.nice = store, study, threads, nice
        self.environment = {
            **os.environ,
            "OMP_NUM_THREADS": str(threads),
            "MKL_NUM_THREADS": str(threads),
        }
        if data_root is not None:
            self.environment[ROOT_VARIABLE] = str(data_root.resolve())
        self.gpus = torch.cuda.device_count()

    def __call__(self, cell: Cell, slot: int) -> _Worker:
        environment = dict(self.environment)
        if self.gpus:
            environment.setdefault("CUDA_VISIBLE_DEVICES", str(slot % self.gpus))
        log = self.store.log_path(cell.key)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "besselnet.study.worker"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                # Ctrl-C reaches this process alone, which then asks its workers to stop.
                start_new_session=True,
            )
        job = as_job(cell, self.study, self.store.folder, self.threads, self.nice)
        if process.stdin is not None:
            try:
                process.stdin.write(json.dumps(job).encode() + b"\n")
                process.stdin.flush()
            except BrokenPipeError:
                pass  # it has died already; its exit code tells
        return _Worker(cell, process, slot, log, time.monotonic())


def _outcome(worker: _Worker, store: Store, study: str) -> Outcome:
    """How a worker ended; a crash becomes a recorded failure."""
    if worker.process.stdin is not None:
        worker.process.stdin.close()
    code = worker.process.returncode
    if code in set(Outcome) and code != Outcome.INTERRUPTED:
        return Outcome(code)
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    said = worker.log.read_text(errors="replace") if worker.log.exists() else ""
    text = f"{said}\nthe process ended with {how}"
    store.write_failure(worker.cell.key, describe_failure(worker.cell, study, text))
    return Outcome.FAILED


def _stop_all(workers: Sequence[_Worker]) -> None:
    """Ask the workers to save and stop; end those that do not."""
    for worker in workers:
        if worker.process.stdin is not None:
            worker.process.stdin.close()
    deadline = time.monotonic() + _SECONDS_TO_STOP
    for worker in workers:
        try:
            worker.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()


def _done_line(store: Store, cell: Cell, took: float) -> str:
    result = store.result(cell.key) or {}
    return f"done    {cell.key}: {100 * result['accuracy']:.2f}%  {in_words(took)}"
