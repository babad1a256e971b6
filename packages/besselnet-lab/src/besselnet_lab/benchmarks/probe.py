"""``python -m besselnet_lab.benchmarks.probe``: one candidate in a process of its own.

Reads ``{"settings", "threads", "seed"}`` from standard input and writes
``{"construct_seconds", "peak_bytes"}`` to standard output, both as JSON.

The peak is that of the resident memory, as the kernel keeps it, over what was resident just before the
step, when module, images and the state of the optimiser existed. A step on two images goes before, so that
loaded code and compiled kernels do not count. Seen so, it has what libraries such as oneDNN take for
themselves, past torch's allocator.
"""

import gc
import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

from besselnet_lab.benchmarks.entries import Settings
from besselnet_lab.benchmarks.subjects import build, conditions, images_for, training_step
from besselnet_lab.paper import PEERS


def probe(settings: Settings, seed: int) -> dict[str, Any]:
    """Time to construct, without imports, and peak extra memory of a training step.

    ``peak_bytes`` is None where the system does not tell: it needs Linux.
    """
    if settings.get("model") in PEERS:
        importlib.import_module("besselnet_lab.paper.steerable")
    start = time.perf_counter()
    module = build(settings, seed)
    seconds = time.perf_counter() - start

    images = images_for(settings, settings["batch"], seed)
    step = training_step(module, settings, seed)
    few = images_for(settings, min(2, settings["batch"]), seed)
    with conditions(settings):
        step(few)
    module.zero_grad()
    few.grad = None
    gc.collect()
    peak = None
    if _reset_peak():
        before = _resident("VmRSS")
        with conditions(settings):
            step(images)
        peak = _resident("VmHWM") - before
    return {"construct_seconds": seconds, "peak_bytes": peak}


def _reset_peak() -> bool:
    """Let the kernel forget the highest resident memory so far; False where it can't."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _resident(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")


if __name__ == "__main__":
    request = json.load(sys.stdin)
    torch.set_num_threads(request["threads"])
    print(json.dumps(probe(request["settings"], request["seed"]), allow_nan=False))
