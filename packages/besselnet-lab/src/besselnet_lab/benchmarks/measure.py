"""Peak memory and agreement of candidates."""

import copy
import json
import os
import subprocess
import sys
from typing import Any

import torch

from besselnet_lab.benchmarks.entries import Settings
from besselnet_lab.benchmarks.subjects import LeftOut, build, images_for, training_step

# Blocks above this size get pages of their own, which go back to the system when they are freed: the
# resident memory is then what is in use, not what the allocator holds back.
MMAP_THRESHOLD = 64 * 2**10


def probe(settings: Settings, threads: int, seed: int = 0) -> dict[str, Any]:
    """Peak extra memory of a training step and time to construct, both in a fresh process.

    See :mod:`besselnet_lab.benchmarks.probe`. Raises :class:`LeftOut` where that process fails.
    """
    done = subprocess.run(
        [sys.executable, "-m", "besselnet_lab.benchmarks.probe"],
        input=json.dumps({"settings": settings, "threads": threads, "seed": seed}, allow_nan=False),
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "MALLOC_MMAP_THRESHOLD_": str(MMAP_THRESHOLD),
            "OMP_NUM_THREADS": str(threads),
        },
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise LeftOut(f"its process failed: {last[0]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def difference_from_direct(settings: Settings, dtype: torch.dtype, seed: int = 0) -> float:
    """Largest difference of a Bessel layer from ``algorithm="direct"``.

    Of the response and of the gradients of input, weight and bias, each relative to its largest number.
    """
    layer = build(settings, seed, dtype)
    twin: Any = copy.deepcopy(layer)
    twin.algorithm = "direct"
    found = []
    for module in (layer, twin):
        images = images_for(settings, settings["batch"], seed, dtype)
        output = training_step(module, settings, seed)(images)
        found.append([output, images.grad, *(p.grad for p in module.parameters())])
    return max(
        float((a - b).abs().max() / b.abs().max())
        for a, b in zip(*found)
        if a is not None and b is not None
    )
