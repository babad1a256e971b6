"""Kill a training at random moments, resume it, and compare its weights with an undisturbed run.

Run as a program: `kill_driver.py FOLDER KILLS SEED`. It imports torch once and forks the trainings,
so that a kill costs milliseconds. Prints one line per kill and exits with 1 if any weights differ.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

# Before the forks: training loads these when it begins, and every child would pay for it anew.
import lightning_fabric  # noqa: F401
import torchmetrics.classification  # noqa: F401

from besselnet.train import TrainConfig, fit
from train.toys import ToyBatches, toy_model, write_weights

CONFIG = TrainConfig(
    epochs=6, learning_rate=0.02, ema_decay=0.9, keep="best", checkpoint_steps=1, device="cpu"
)


def train(folder: Path) -> None:
    model = toy_model()
    fit(model, ToyBatches(), ToyBatches(), CONFIG, folder, resume=True, quiet=True)
    write_weights(folder / "weights.safetensors", model)


def start(folder: Path) -> int:
    """Start a training in a child process and return its number."""
    child = os.fork()
    if child:
        return child
    try:
        train(folder)
        os._exit(0)
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(1)


def finish(child: int) -> bool:
    """Wait for the child; whether it ended by itself, and well."""
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit("a training failed")
    return os.WIFEXITED(status)


def main(folder: Path, kills: int, seed: int) -> int:
    chance = random.Random(seed)
    # The first run pays for what is loaded only once; the second tells how long one takes.
    finish(start(folder / "first"))
    began = time.monotonic()
    finish(start(folder / "whole"))
    duration = time.monotonic() - began
    expected = (folder / "whole" / "weights.safetensors").read_bytes()
    done = different = 0
    while done < kills:
        run = folder / f"killed-{done}"
        while True:
            child = start(run)
            time.sleep(chance.uniform(0, duration))
            os.kill(child, signal.SIGKILL)
            if finish(child):
                break
            done += 1
        different += (run / "weights.safetensors").read_bytes() != expected
        print(f"{done} kills, {different} runs differ", flush=True)
    return int(different > 0)


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
