"""A worker process: fills one cell, told by its parent on standard input.

The first line is the job as JSON. The parent keeps the pipe open while it lives: at its end, however
it came about, the worker saves its state and stops.
"""

import json
import os
import signal
import sys
import threading
from dataclasses import asdict
from enum import IntEnum
from pathlib import Path
from typing import Any

from besselnet.engine import RunConfig, from_dict, to_dict
from besselnet.study.cells import Cell, CellKey
from besselnet.study.store import Busy, Store
from besselnet.study.train_cell import describe_failure, fill_cell

__all__ = ["Outcome", "as_job", "cell_of", "main"]


class Outcome(IntEnum):
    """Exit codes of a worker; anything else is a crash."""

    DONE = 0
    BUSY = 3
    FAILED = 4
    INTERRUPTED = 5


def as_job(cell: Cell, study: str, results: Path, threads: int, nice: int) -> dict[str, Any]:
    """JSON values that tell a worker all about its cell."""
    return {
        "cell": {**asdict(cell), "config": to_dict(cell.config)},
        "study": study,
        "results": str(results),
        "threads": threads,
        "nice": nice,
    }


def cell_of(job: dict[str, Any]) -> Cell:
    """The cell in a job."""
    values = dict(job["cell"])
    values["key"] = CellKey(**values["key"])
    values["config"] = from_dict(RunConfig, values["config"])
    return Cell(**values)


def main() -> int:
    """Fill the cell that standard input names."""
    import torch

    job = json.loads(sys.stdin.readline())
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    os.nice(job["nice"])
    torch.set_num_threads(job["threads"])
    store, cell = Store(Path(job["results"])), cell_of(job)
    try:
        fill_cell(store, cell, job["study"])
    except Busy:
        return Outcome.BUSY
    except KeyboardInterrupt:
        return Outcome.INTERRUPTED
    except Exception as error:
        store.write_failure(cell.key, describe_failure(cell, job["study"], error))
        return Outcome.FAILED
    return Outcome.DONE


def _stop_with_parent() -> None:
    # The file descriptor, not sys.stdin: a buffered reader must not be in use when Python ends.
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
