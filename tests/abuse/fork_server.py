"""Command lines in forked processes, which start at once, are watched, and can be killed.

`ForkServer` starts this file as a program of its own. It imports everything once, then forks a process for
each command line: importing torch takes longer than most commands. Requests and replies are lines of JSON.

A process that computes for more than `SECONDS` or takes more than `PATIENCE` is ended: a busy machine is
not a hang. More than `MEMORY` beyond what was loaded is refused to it.
It reaches no network and starts no program but git and uname; what it tried is in `Ended.forbidden`.
"""

import contextlib
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
SECONDS = 10
PATIENCE = 30
MEMORY = 10**9

# The programs whose command lines are run: where they are (it may be a function that makes one), and what
# their commands import when they are called.
PROGRAMS = {
    "besselnet": (
        ("besselnet.cli", "program"),
        *("lightning_fabric", "torchmetrics.classification", "matplotlib.backends.backend_agg"),
        *("onnxruntime", "onnxscript", "torch.onnx", "torch.export", "h5py", "PIL.Image", "pooch"),
        *("besselnet.demo", "besselnet.export", "abuse.networks", "train.toy_run"),
        *(f"besselnet.cli._{name}" for name in ("train", "predict", "export", "data", "models")),
    ),
    "besselnet-lab": (
        ("besselnet_lab.cli", "program"),
        *(f"besselnet_lab.cli.{name}" for name in ("study", "bench", "figure")),
        "study.forks",
    ),
    "reader": (("abuse.readers", "program"), "h5py"),
}
# Events of `sys.audit` that change files: moments to be killed at.
_CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link")
_NETWORK = ("socket.connect", "socket.getaddrinfo", "socket.sendto")
_PROCESSES = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn")
_HARMLESS = ("git", "uname")


@dataclass(frozen=True)
class Ended:
    """How a command line ended.

    Attributes:
        code: its exit code, or minus the number of the signal that ended it.
        killed: how many processes were killed, on request.
        changes: how often it changed files; 0 if a signal ended it.
        forbidden: attempts to reach the network, to start programs or to unpickle objects.
        orphans: workers of a study that were still alive `PATIENCE` after it had ended.
    """

    code: int
    output: str
    error: str
    seconds: float
    killed: int
    changes: int
    forbidden: list[str]
    orphans: int


@dataclass(frozen=True)
class Kill:
    """SIGKILL after so many seconds, or just before the change of files number `change`.

    `whom`, with `seconds` only: the process itself, the "workers" that it has forked, or "all" of them.
    """

    seconds: float | None = None
    change: int | None = None
    whom: str = "itself"


class ForkServer:
    """Context: runs command lines of some of `PROGRAMS` in forks of one process that has loaded them."""

    def __init__(self, *programs: str) -> None:
        self.programs = programs

    def __enter__(self) -> "ForkServer":
        sources = [TESTS, *ROOT.glob("packages/*/tests"), *ROOT.glob("packages/*/src")]
        path = [*map(str, sources), os.environ.get("PYTHONPATH", "")]
        self._process = subprocess.Popen(
            [sys.executable, __file__, *self.programs],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # One thread: the threads of OpenMP do not survive a fork.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1"},
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def run(self, *command: object, folder: Path, kill: Kill | None = None) -> Ended:
        """Run a command line, program first, in `folder`."""
        return self.race([command], folder=folder, kill=kill)[0]

    def race(
        self, commands: Sequence[Sequence[object]], *, folder: Path, kill: Kill | None = None
    ) -> list[Ended]:
        """Run command lines at the same time; a kill is for the first."""
        assert self._process.stdin
        assert self._process.stdout
        request = {
            "commands": [[str(word) for word in command] for command in commands],
            "folder": str(folder),
            "kill": None if kill is None else asdict(kill),
        }
        print(json.dumps(request), file=self._process.stdin, flush=True)
        reply = self._process.stdout.readline()
        assert reply, "the fork server has ended"
        return [Ended(**ended) for ended in json.loads(reply)]


class _Watch:
    """What `sys.audit` tells of a process: counts changes of files, refuses and notes what is forbidden."""

    def __init__(self, last_change: int | None) -> None:
        # Forked workers are not counted with it.
        self.process = os.getpid()
        self.changes, self.last_change = 0, last_change
        self.forbidden: list[str] = []

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _CHANGES or (event == "open" and _writes(*arguments)):
            self.changes += 1
            if self.changes == self.last_change and os.getpid() == self.process:
                os.kill(self.process, signal.SIGKILL)
        elif event == "pickle.find_class":
            self.forbidden.append(f"{event} {arguments}")
        elif event in _NETWORK:
            self._refuse(event, str(arguments[-1]))
        elif event in _PROCESSES and Path(os.fsdecode(arguments[0])).name not in _HARMLESS:
            self._refuse(event, str(arguments[0]))

    def _refuse(self, event: str, what: str) -> None:
        self.forbidden.append(f"{event} {what}")
        raise OSError(f"{event} of {what} is forbidden here")


def _writes(path: Any, mode: Any, flags: int) -> bool:
    return path != os.devnull and bool(flags & (os.O_WRONLY | os.O_RDWR))


def _start(command: list[str], place: Path, folder: str, change: int | None) -> int:
    """Fork a process that runs `command` and leaves its texts in `place`; its number."""
    # Before the fork: the process may be killed before it has come this far.
    streams = [(place / name).open("wb") for name in ("output", "error")]
    child = os.fork()
    if child:
        for stream in streams:
            stream.close()
        return child
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, stream in enumerate(streams, 1):
            os.dup2(stream.fileno(), number)
        os.chdir(folder)
        os.environ["BESSELNET_DATA"] = str(Path(folder, "cache"))
        sys.argv = command
        signal.alarm(PATIENCE)
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
        loaded = Path("/proc/self/statm").read_text().split()[5]
        most = int(loaded) * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        watch = _Watch(change)
        sys.addaudithook(watch)
        module, attribute = PROGRAMS[command[0]][0]
        program = getattr(importlib.import_module(module), attribute)
        code = (program() if callable(program) else program).run(command[1:])
        sys.stdout.flush()
        signal.alarm(0)
        counts = {"changes": watch.changes, "forbidden": watch.forbidden}
        (place / "counts").write_text(json.dumps(counts))
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stderr.flush()
        os._exit(code)


def _serve(request: dict[str, Any], place: Path, workers: Path) -> list[dict[str, Any]]:
    kill = request["kill"] or {}
    began = time.monotonic()
    workers.write_text("")
    children = []
    for number, command in enumerate(request["commands"]):
        (place / str(number)).mkdir(exist_ok=True)
        (place / str(number) / "counts").unlink(missing_ok=True)
        change = None if number else kill.get("change")
        children.append(_start(command, place / str(number), request["folder"], change))
    killed = 0
    if kill.get("seconds") is not None:
        time.sleep(kill["seconds"])
        whom = kill["whom"]
        forked = [int(line) for line in workers.read_text().split()]
        for pid in forked * (whom != "itself") + children[:1] * (whom != "workers"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed += pid not in children
    replies = []
    for number, child in enumerate(children):
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        texts = place / str(number)
        counts = {"changes": 0, "forbidden": []}
        with contextlib.suppress(FileNotFoundError):
            counts = json.loads((texts / "counts").read_text())
        ended = Ended(
            code,
            *((texts / name).read_text(errors="replace") for name in ("output", "error")),
            time.monotonic() - began,
            killed + (code == -signal.SIGKILL),
            **counts,
            orphans=0,
        )
        replies.append(ended)
    orphans = _outliving(workers)
    return [asdict(replace(ended, orphans=orphans)) for ended in replies]


def _outliving(workers: Path) -> int:
    """How many workers are alive, once all have had the time to end."""
    deadline = time.monotonic() + PATIENCE
    pids = [int(line) for line in workers.read_text().split()]
    while (alive := [pid for pid in pids if _is_alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.01)
    return len(alive)


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"  # ended, and not yet waited for by whoever inherited it


def main(programs: Sequence[str]) -> None:
    """Answer requests until there are no more."""
    for name in programs:
        (module, _), *more = PROGRAMS[name]
        for needed in (module, *more):
            importlib.import_module(needed)
    with tempfile.TemporaryDirectory() as place:
        workers = Path(place, "workers")
        if "besselnet-lab" in programs:
            importlib.import_module("study.forks").fork_all_workers(workers)
        for line in sys.stdin:
            print(json.dumps(_serve(json.loads(line), Path(place), workers)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
