"""Kill the runner of a study and its workers at random, and compare the results with undisturbed ones.

Run as a program: `kill_driver.py FOLDER KILLS SEED fork|spawn`. "fork" makes workers by forking this
process, which is quick; "spawn" starts them as users do. Prints a line for each kill, and exits with 1
if a result is lost, written twice or different.
"""

import contextlib
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from besselnet_lab.study import local
from besselnet_lab.study.cells import expand
from besselnet_lab.study.recipe import read_recipe
from besselnet_lab.study.store import Store
from study.forks import fork_worker
from study.toys import RECIPE, write_study

JOBS = 2
# What may differ between two runs of a cell.
PASSING = ("seconds", "finished", "environment")


def start(folder: Path, results: Path) -> int:
    """Start a runner and return its number."""
    runner = os.fork()
    if runner:
        return runner
    code = 1
    try:
        cells = expand(read_recipe(folder / "tiny.toml"))
        summary = local.run_local(
            cells,
            Store(results),
            study="tiny",
            jobs=JOBS,
            threads=1,
            retries=1000,
            data_root=folder,
            stream=sys.stderr,
        )
        code = 0 if not summary.failed else 1
    finally:
        os._exit(code)


def watch_workers(pids: Path, mode: str) -> None:
    """Let the places note the numbers of their workers in `pids`."""
    open_as_users_do = local._Worker._open

    def noted(place: local._Worker):
        process = fork_worker(place) if mode == "fork" else open_as_users_do(place)
        with pids.open("a") as file:
            file.write(f"{process.pid}\n")
        return process

    local._Worker._open = noted


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def comparable(result: dict) -> dict:
    kept = {key: value for key, value in result.items() if key not in PASSING}
    timing = ("seconds", "images_per_second")
    kept["curve"] = {k: v for k, v in result["curve"].items() if k not in timing}
    return kept


def main(folder: Path, kills: int, seed: int, mode: str) -> int:
    generator = random.Random(seed)
    write_study(folder, RECIPE.replace("epochs = 2", "epochs = 12"))
    pids = folder / "pids"
    pids.touch()
    watch_workers(pids, mode)
    started = time.monotonic()
    os.waitpid(start(folder, folder / "plain"), 0)
    took = time.monotonic() - started
    plain = [comparable(result) for result in Store(folder / "plain").results()]
    disturbed = Store(folder / "disturbed")
    finished: set[str] = set()
    for number in range(kills):
        runner = start(folder, disturbed.folder)
        time.sleep(generator.uniform(0, took / 2))
        victims = [int(pid) for pid in pids.read_text().split()][-JOBS:]
        whom = generator.choice(("runner", "worker", "all"))
        if whom != "runner":
            for victim in victims[: 1 if whom == "worker" else JOBS]:
                kill(victim)
            time.sleep(generator.uniform(0, took / 8))
        kill(runner)
        os.waitpid(runner, 0)
        now = {
            result["cell"]["method"] + str(result["cell"]["seed"]) for result in disturbed.results()
        }
        print(f"kill {number + 1}: {whom}; {len(now)} cells finished", flush=True)
        if not finished <= now:
            print(f"lost: {finished - now}")
            return 1
        finished = now
    os.waitpid(start(folder, disturbed.folder), 0)
    deadline = time.monotonic() + 60
    while any(alive(int(pid)) for pid in pids.read_text().split()) and time.monotonic() < deadline:
        time.sleep(0.1)
    found = [comparable(result) for result in disturbed.results()]
    log = (disturbed.work / "log.txt").read_text().splitlines()
    written = Counter(line.split()[2] for line in log if line.split()[1] == "finished")
    leftovers = [p for p in (disturbed.work / "runs").rglob("*") if p.is_file()]
    checks = {
        "the results differ from undisturbed ones": found == plain and len(plain) == 4,
        f"results were written twice: {written}": max(written.values()) == 1,
        f"unfinished runs are left: {leftovers}": not leftovers,
        "a failure is left": not list(disturbed.folder.glob("*/*.failed.json")),
        "a worker outlives its runner": time.monotonic() < deadline,
    }
    wrong = [text for text, holds in checks.items() if not holds]
    print(*wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
