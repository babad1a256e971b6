"""The one runner: an entry in, a report of plain JSON values out."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import torch
from torch import nn

from besselnet.models import count_parameters
from besselnet.train import Timing, time_in_turns
from besselnet_lab.benchmarks.entries import DIFFERENCES, PASSES, PROBED, Entry, Settings
from besselnet_lab.benchmarks.judge import judge, ratios, summarise
from besselnet_lab.benchmarks.measure import difference_from_direct, probe
from besselnet_lab.benchmarks.prediction import prediction_of_files
from besselnet_lab.benchmarks.subjects import (
    LeftOut,
    build,
    conditions,
    forward_pass,
    images_for,
    multiply_adds,
    training_step,
)

__all__ = ["REPORT_FORMAT", "run_entry"]

# The layout of a report. It changes when a reader of the old one would misunderstand the new.
REPORT_FORMAT = 1


@dataclass
class _Result:
    """What was measured of one candidate in one case."""

    settings: Settings
    module: nn.Module | None = None
    values: dict[str, float] = field(default_factory=dict)
    rounds: dict[str, list[float]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    """Why something is not there: by measure, or "all"."""


def run_entry(
    entry: Entry,
    timing: Timing,
    *,
    threads: int | None = None,
    seed: int = 0,
    quick: bool = False,
    clock: Callable[[], float] = time.perf_counter,
    on_case: Callable[[str], None] = lambda label: None,
) -> dict[str, Any]:
    """Measure all candidates of an entry on all its cases.

    Args:
        entry: what to compare.
        timing: how long to measure.
        threads: of torch; as many as it has chosen itself if not given.
        seed: of weights, images and labels.
        quick: whether the entry is the quick version: then its bounds are not judged.
        clock: seconds, for the timed passes.
        on_case: called with a case's label before it is measured.

    Returns:
        The report: what was run, and for each case the numbers of every candidate ("values": seconds,
        bytes or relative differences; "rounds": all times), the ratios to the baseline, why something
        was left out, the entry's summary, and its bounds with verdicts. Best of the rounds counts.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        cases = []
        for case in entry.cases:
            on_case(entry.label(case))
            cases.append(_run_case(entry, case, timing, seed, clock))
        used = torch.get_num_threads()
    finally:
        torch.set_num_threads(before)
    return {
        "format": REPORT_FORMAT,
        "entry": entry.name,
        "about": entry.about,
        "quick": quick,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": seed,
        "threads": used,
        "measures": list(entry.measures),
        "baseline": entry.baseline,
        "cases": cases,
        "summary_kind": entry.summary,
        "summary": summarise(entry, cases),
        "bounds": [judge(bound, cases, quick) for bound in entry.bounds],
    }


def _run_case(
    entry: Entry, case: Settings, timing: Timing, seed: int, clock: Callable[[], float]
) -> dict[str, Any]:
    results = {name: _Result(entry.settings(case, name)) for name in entry.candidates}
    for result in results.values():
        try:
            _check_size(result.settings, entry.most_operations)
            result.module = build(result.settings, seed)
        except LeftOut as reason:
            result.left_out["all"] = str(reason)
    present = {name: r for name, r in results.items() if r.module is not None}
    for measure in entry.measures:
        if measure in PASSES:
            calls = {name: _call(measure, result, seed) for name, result in present.items()}
            for name, times in time_in_turns(calls, timing, clock).items():
                present[name].rounds[measure] = times
                present[name].values[measure] = min(times)
        elif measure in DIFFERENCES:
            for result in present.values():
                dtype = getattr(torch, measure)
                result.values[measure] = difference_from_direct(result.settings, dtype, seed)
    if any(measure in PROBED for measure in entry.measures):
        for result in present.values():
            _probe(entry, result, seed)
    shown: dict[str, Any] = {
        "label": entry.label(case),
        "settings": {**entry.common, **case},
        "results": {
            name: {
                "settings": entry.candidates[name],
                "parameters": None if r.module is None else count_parameters(r.module),
                "values": r.values,
                "rounds": r.rounds,
                "left_out": r.left_out,
            }
            for name, r in results.items()
        },
    }
    for measure in entry.measures:
        for name, ratio in ratios(shown, entry.baseline, measure).items():
            shown["results"][name].setdefault("ratios", {})[measure] = ratio
    return shown


def _check_size(settings: Settings, most: float | None) -> None:
    operations = multiply_adds(settings)
    if most is not None and operations is not None and operations > most:
        raise LeftOut(f"{operations:.1e} multiply-adds in a forward pass, more than {most:.0e}")


def _call(measure: str, result: _Result, seed: int) -> Callable[[], object]:
    assert result.module is not None  # only candidates that are present are called
    settings = result.settings
    if measure == "prediction":
        predict = prediction_of_files(result.module, settings, seed)

        def call_all() -> object:
            with conditions(settings):
                return predict()

        return call_all
    images = images_for(settings, settings["batch"], seed)
    step = (
        training_step(result.module, settings, seed)
        if measure == "training"
        else forward_pass(result.module, settings)
    )

    def call() -> object:
        with conditions(settings):
            return step(images)

    return call


def _probe(entry: Entry, result: _Result, seed: int) -> None:
    wanted = [measure for measure in entry.measures if measure in PROBED]
    try:
        found = probe(result.settings, torch.get_num_threads(), seed)
    except LeftOut as reason:
        result.left_out |= dict.fromkeys(wanted, str(reason))
        return
    if "construct" in wanted:
        result.values["construct"] = found["construct_seconds"]
    if "memory" in wanted:
        if found["peak_bytes"] is None:
            result.left_out["memory"] = "peak resident memory is only available on Linux (/proc)"
        else:
            result.values["memory"] = found["peak_bytes"]
