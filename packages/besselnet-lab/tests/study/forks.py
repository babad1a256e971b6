"""Workers that are forked instead of started anew: importing torch takes longer than a tiny cell."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

# What a training imports when it begins, imported before the forks.
import lightning_fabric  # noqa: F401
import matplotlib.backends.backend_agg  # noqa: F401

from besselnet_lab.study import local, worker


class Forked:
    """What `local` uses of a `subprocess.Popen`."""

    def __init__(self, environment: dict[str, str], arguments: list[str]) -> None:
        jobs, jobs_end = os.pipe()
        replies, replies_end = os.pipe()
        sys.stdout.flush()
        with warnings.catch_warnings():
            # Threads of the parent do nothing that the child needs.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            os.dup2(jobs, 0)
            os.dup2(replies_end, 1)
            # The pipes of other workers too: held open here, they would hide the end of the parent.
            os.closerange(3, 1024)
            os.environ.update(environment)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            try:
                worker.main(*map(int, arguments))
            finally:
                os._exit(0)
        os.close(jobs)
        os.close(replies_end)
        self.stdin, self.stdout = os.fdopen(jobs_end, "w"), os.fdopen(replies)

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            with contextlib.suppress(ChildProcessError):
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if not pid:
                    if deadline is not None and time.monotonic() > deadline:
                        raise subprocess.TimeoutExpired("worker", timeout)
                    time.sleep(0.01)
                    continue
                self.code = os.waitstatus_to_exitcode(status)
            return self.code

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


def fork_worker(place: "local._Worker") -> Forked:
    """In place of the method that opens a worker process."""
    return Forked(place.environment, place.arguments)


def fork_all_workers(numbers: Path) -> None:
    """From now on, fork every worker of this process and note its number in the file `numbers`."""

    def noted(place: "local._Worker") -> Forked:
        process = fork_worker(place)
        with numbers.open("a") as file:
            file.write(f"{process.pid}\n")
        return process

    local._Worker._open = noted
