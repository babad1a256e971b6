"""Let two processes do the same thing in one folder, and compare what is left with an undisturbed one.

Run as a program: `race_driver.py FOLDER RACES SEED train|plain|onnx|folder`. It imports torch once and forks
the two, the second a random moment after the first. Prints one line per race and exits with 1 if none of the
two has done it, if the other is not told why in one line, or if the files differ.
"""

import contextlib
import io
import os
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

# Before the forks: what training loads when it begins, every child would pay for anew.
import lightning_fabric  # noqa: F401
import matplotlib.backends.backend_agg  # noqa: F401
import torchmetrics.classification  # noqa: F401

from besselnet import drawing, export, hub  # noqa: F401
from besselnet.cli import main as besselnet
from train.toy_run import make_images

SETTINGS = ("train.epochs=15", "train.batch_size=8", "train.device=cpu", "train.checkpoint_steps=1")
# What may differ between two runs: times.
PASSING = ("metrics.csv", "log.txt", "environment.json", "checkpoint.safetensors", "curves.png")


def command(kind: str, folder: Path, place: Path) -> list[str]:
    if kind == "train":
        options = [word for setting in SETTINGS for word in ("--set", setting)]
        return ["train", str(folder / "images"), "--out", str(place), "--model", "toy", *options]
    out = place / {"plain": "a.py", "onnx": "a.onnx", "folder": "net"}[kind]
    return ["export", str(folder / "run"), "--to", kind, "--out", str(out)]


def start(arguments: list[str], errors: Path) -> int:
    """Run the command line in a child process and return its number."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            try:
                besselnet(arguments)
            except SystemExit as end:
                code = int(end.code or 0)
        errors.write_text(said.getvalue())
    finally:
        os._exit(code)


def finish(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def contents(place: Path) -> dict[str, bytes]:
    """Files by name; what is left of locks and unfinished files is among them."""
    files = (path for path in place.rglob("*") if path.is_file())
    return {
        str(path.relative_to(place)): path.read_bytes()
        for path in files
        if path.name not in (*PASSING, ".lock")
    }


def main(folder: Path, races: int, seed: int, kind: str) -> int:
    chance = random.Random(seed)
    make_images(folder / "images")
    if kind != "train":
        assert finish(start(command("train", folder, folder / "run"), folder / "error")) == 0
    finish(start(command(kind, folder, folder / "first"), folder / "error"))
    began = time.monotonic()
    assert finish(start(command(kind, folder, folder / "alone"), folder / "error")) == 0
    duration = time.monotonic() - began
    expected = contents(folder / "alone")
    assert expected
    for race in range(races):
        place = folder / f"race-{race}"
        errors = [folder / f"error-{race}-{i}" for i in range(2)]
        one = start(command(kind, folder, place), errors[0])
        time.sleep(chance.choice((0, chance.uniform(0, duration))))
        other = start(command(kind, folder, place), errors[1])
        codes = [finish(one), finish(other)]
        said = [path.read_text() for path in errors]
        lost = [text for code, text in zip(codes, said) if code]
        told = all(
            text.count("\n") == 1 and ("is in use" in text or "already holds a run" in text)
            for text in lost
        )
        same = contents(place) == expected
        print(f"race {race + 1}: exit codes {codes}, same {same}, {said}", flush=True)
        # A second training is refused in any case; a second export may come after the first.
        refused = len(lost) == 1 if kind == "train" else len(lost) <= 1
        if not (same and told and refused):
            print(sorted(contents(place)), sorted(expected))
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
