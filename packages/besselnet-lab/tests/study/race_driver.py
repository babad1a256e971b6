"""Let two runners fill one study, and compare the results with those of a runner alone.

Run as a program: `race_driver.py FOLDER RACES SEED`. The runners are forks of this process, the second a
random moment after the first. Prints a line for each race, and exits with 1 if a result is missing, written
twice or different, or if something is left over.
"""

import os
import random
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
from study.toys import RECIPE, comparable, write_study


def start(folder: Path, results: Path) -> int:
    """Start a runner and return its number."""
    runner = os.fork()
    if runner:
        return runner
    code = 1
    try:
        summary = local.run_local(
            expand(read_recipe(folder / "tiny.toml")),
            Store(results),
            study="tiny",
            jobs=2,
            threads=1,
            data_root=folder,
            stream=sys.stderr,
        )
        code = 0 if not summary.failed else 1
    finally:
        os._exit(code)


def main(folder: Path, races: int, seed: int) -> int:
    chance = random.Random(seed)
    write_study(folder, RECIPE.replace("[0, 1]", "[0]"))
    local._Worker._open = fork_worker
    os.waitpid(start(folder, folder / "first"), 0)
    began = time.monotonic()
    os.waitpid(start(folder, folder / "alone"), 0)
    duration = time.monotonic() - began
    alone = [comparable(result) for result in Store(folder / "alone").results()]
    for race in range(races):
        store = Store(folder / f"race-{race}")
        one = start(folder, store.folder)
        time.sleep(chance.choice((0, chance.uniform(0, duration))))
        other = start(folder, store.folder)
        codes = [os.waitstatus_to_exitcode(os.waitpid(runner, 0)[1]) for runner in (one, other)]
        log = (store.work / "log.txt").read_text().splitlines()
        events = Counter(line.split(maxsplit=1)[1] for line in log)
        left = [
            path
            for path in store.folder.rglob("*")
            if path.name.endswith((".partial", ".failed.json"))
            or (path.is_file() and path.is_relative_to(store.work / "runs"))
        ]
        checks = {
            "both runners end well": codes == [0, 0],
            "the results are those of one runner": len(alone) == 2
            and [comparable(result) for result in store.results()] == alone,
            "each cell is trained once": len(events) == 4 and set(events.values()) == {1},
            "nothing is left": not left,
        }
        wrong = [text for text, holds in checks.items() if not holds]
        print(f"race {race + 1}: {'; '.join(wrong) or 'good'}", flush=True)
        if wrong:
            print(codes, dict(events), left)
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
