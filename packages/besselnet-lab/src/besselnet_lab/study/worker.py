"""A worker process: fills the cells that its parent names, one after the other.

Jobs come on standard input, a line of JSON each, and an `Outcome` goes back as a line for each. The
parent keeps the pipe open while it lives: at its end, however it came about, the worker saves its state
and stops. What a training prints goes to the log of its cell.
"""

import json
import os
import queue
import signal
import sys
import threading
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Any

from besselnet.train import RunConfig, from_dict, to_dict
from besselnet_lab.study.cells import Cell, CellKey
from besselnet_lab.study.images import CellImages
from besselnet_lab.study.robustness import RobustPlan
from besselnet_lab.study.store import Busy, Store
from besselnet_lab.study.train_cell import describe_failure, environment, fill_cell

__all__ = ["Outcome", "as_job", "cell_of", "main"]


class Outcome(Enum):
    """What a worker says about a cell."""

    DONE = "done"
    BUSY = "busy"
    FAILED = "failed"


def as_job(cell: Cell, study: str, results: Path) -> dict[str, Any]:
    """JSON values that tell a worker all about its cell."""
    return {
        "cell": {**asdict(cell), "config": to_dict(cell.config)},
        "study": study,
        "results": str(results),
    }


def cell_of(job: dict[str, Any]) -> Cell:
    """The cell in a job."""
    values = dict(job["cell"])
    values["key"] = CellKey(**values["key"])
    values["images"] = from_dict(CellImages, values["images"])
    values["config"] = from_dict(RunConfig, values["config"])
    if values["robust"] is not None:
        values["robust"] = from_dict(RobustPlan, values["robust"])
    return Cell(**values)


def main(threads: int, nice: int) -> None:
    """Fill cells until the parent ends."""
    import torch

    torch.set_num_threads(threads)
    if nice:
        os.nice(nice)
    environment()
    replies = os.fdopen(os.dup(1), "w")
    jobs: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read_jobs, args=(jobs,), daemon=True).start()
    while True:
        outcome = _do(json.loads(jobs.get()))
        print(outcome.value, file=replies, flush=True)


def _do(job: dict[str, Any]) -> Outcome:
    store, cell = Store(Path(job["results"])), cell_of(job)
    try:
        # Log and failure belong to who runs the cell, too.
        with store.lock(cell.key):
            _print_to(store.log_path(cell.key))
            try:
                fill_cell(store, cell, job["study"])
            except Exception as error:
                store.write_failure(cell.key, describe_failure(cell, job["study"], error))
                return Outcome.FAILED
    except Busy:
        return Outcome.BUSY
    except KeyboardInterrupt:
        sys.exit()
    return Outcome.DONE


def _print_to(path: Path) -> None:
    """Let everything that is printed, by C code too, go to the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


def _read_jobs(jobs: "queue.Queue[str]") -> None:
    with os.fdopen(os.dup(0)) as lines:
        for line in lines:
            jobs.put(line)
    # The training loop takes this as a request; where there is none, it ends the process.
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:3]))
