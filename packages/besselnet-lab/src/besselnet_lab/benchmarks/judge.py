"""What follows from measured numbers: ratios, exponents, the choices of "auto", verdicts on bounds.

Everything here is arithmetic on the ``cases`` of a report, see ``runner.run_entry``.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from besselnet_lab.benchmarks.entries import Bound, Entry
from besselnet_lab.benchmarks.subjects import predicted_algorithm

Case = Mapping[str, Any]


def value_of(case: Case, candidate: str, measure: str) -> float | None:
    """The measured number, or None if the candidate was left out."""
    found: float | None = case["results"].get(candidate, {}).get("values", {}).get(measure)
    return found


def ratios(case: Case, baseline: str | None, measure: str) -> dict[str, float]:
    """Every candidate's number divided by the baseline's."""
    base = None if baseline is None else value_of(case, baseline, measure)
    if not base:
        return {}
    values = {name: value_of(case, name, measure) for name in case["results"]}
    return {name: value / base for name, value in values.items() if value is not None}


def fitted_exponent(sizes: Sequence[float], times: Sequence[float]) -> float:
    """The slope of log(time) over log(size), by least squares."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def exponents(cases: Iterable[Case], measure: str) -> dict[str, float]:
    """Of each candidate's time as a power of the kernel size, where it was measured at two or more."""
    points: dict[str, list[tuple[float, float]]] = {}
    for case in cases:
        for name in case["results"]:
            value = value_of(case, name, measure)
            if value is not None:
                points.setdefault(name, []).append((case["settings"]["kernel_size"], value))
    return {name: fitted_exponent(*zip(*found)) for name, found in points.items() if len(found) > 1}


def choices(cases: Iterable[Case], measure: str) -> dict[str, Any]:
    """How often the cost model took the faster of "factored" and "direct", and what it lost at worst.

    The loss is the time of the algorithm it took over that of the faster one.
    """
    losses: dict[str, float] = {}
    for case in cases:
        times = {name: value_of(case, name, measure) for name in ("factored", "direct")}
        known = [value for value in times.values() if value is not None]
        if len(known) == 2:
            taken = times[predicted_algorithm({**case["settings"], "algorithm": "auto"})]
            assert taken is not None  # both are known
            losses[case["label"]] = taken / min(known)
    worst = max(losses, key=losses.__getitem__, default=None)
    return {
        "cases": len(losses),
        "faster_taken": sum(loss == 1 for loss in losses.values()),
        "worst_loss": None if worst is None else losses[worst],
        "worst_case": worst,
        "losses": losses,
    }


def unsteady(cases: Iterable[Case], share: float = 1.25) -> tuple[int, int]:
    """How many of the timings were disturbed, and how many there are.

    Disturbed: the median round took more than ``share`` times the best.
    """
    timings = [
        times for c in cases for r in c["results"].values() for times in r["rounds"].values()
    ]
    return sum(float(np.median(times)) > share * min(times) for times in timings), len(timings)


def summarise(entry: Entry, cases: Sequence[Case]) -> dict[str, Any]:
    """The entry's summary for each of its measures; empty if it asks for none."""
    if entry.summary is None:
        return {}
    compute = exponents if entry.summary == "exponents" else choices
    return {measure: compute(cases, measure) for measure in entry.measures}


def judge(bound: Bound, cases: Sequence[Case], quick: bool = False) -> dict[str, Any]:
    """A bound with the number measured for it and a verdict; over several cases the worst counts.

    A quick run measures other shapes than the bound is about: it is not judged.
    """
    numbers = _numbers(bound, cases)
    worst = min if bound.at_least is not None else max
    measured = worst(numbers) if numbers else None
    return {
        "text": bound.text,
        "measured": measured,
        "at_least": bound.at_least,
        "at_most": bound.at_most,
        "aim": bound.aim,
        "verdict": _verdict(bound, None if quick else measured),
    }


def _numbers(bound: Bound, cases: Sequence[Case]) -> list[float]:
    if bound.quantity == "exponents":
        fitted = exponents(cases, bound.measure)
        known = [fitted[name] for name in bound.candidates if name in fitted]
        return [known[0] - known[1]] if len(known) == 2 else []
    rows = [[value_of(case, name, bound.measure) for name in bound.candidates] for case in cases]
    complete = [[value for value in row if value is not None] for row in rows]
    complete = [row for row in complete if len(row) == len(bound.candidates)]
    if bound.quantity == "largest":
        return [row[0] for row in complete]
    return [row[0] / row[1] / (row[2] / row[3] if len(row) == 4 else 1) for row in complete]


def _verdict(bound: Bound, measured: float | None) -> str:
    if measured is None:
        return "not judged"

    def reaches(limit: float) -> bool:
        return measured >= limit if bound.at_least is not None else measured <= limit

    limit = bound.at_least if bound.at_least is not None else bound.at_most
    assert limit is not None  # read_entries asks for one of the two
    if not reaches(limit):
        return "not met"
    return "met, aim reached" if bound.aim is not None and reaches(bound.aim) else "met"
