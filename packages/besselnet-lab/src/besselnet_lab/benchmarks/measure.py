"""Time, peak memory and agreement of candidates."""

import copy
import gc
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from besselnet_lab.benchmarks.entries import Settings, Timing
from besselnet_lab.benchmarks.subjects import LeftOut, build, images_for, training_step

# Blocks above this size get pages of their own, which go back to the system when they are freed: the
# resident memory is then what is in use, not what the allocator holds back.
MMAP_THRESHOLD = 64 * 2**10


def time_in_turns(
    calls: Mapping[str, Callable[[], object]],
    timing: Timing,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds per call of every candidate in every round.

    The candidates take turns, each round beginning with another one, so that whatever else the machine
    does meets all of them. Short calls are repeated to fill ``timing.seconds_per_round``. The first call
    of a turn is not counted: it finds the caches and the memory as the candidate before left them, and
    whoever trains or predicts calls the same network again and again.
    """
    repeats, spent = {}, 0.0
    for name, call in calls.items():
        seconds = _time(call, 1, clock)
        if seconds < timing.seconds_per_round:
            # The first call also builds kernels and caches: it says too much about a short one.
            seconds = _time(call, 1, clock)
        repeats[name] = max(1, math.ceil(timing.seconds_per_round / max(seconds, 1e-6)))
        spent += (1 + repeats[name]) * seconds
    affordable = int(timing.seconds_per_case / spent) if spent else timing.rounds
    rounds = min(timing.rounds, max(affordable, timing.fewest_rounds))
    times: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    gc.collect()
    for turn in range(rounds):
        first = turn % max(len(names), 1)
        for name in names[first:] + names[:first]:
            calls[name]()
            times[name].append(_time(calls[name], repeats[name], clock))
    return times


def _time(call: Callable[[], object], repeats: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(repeats):
        call()
    return (clock() - start) / repeats


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
