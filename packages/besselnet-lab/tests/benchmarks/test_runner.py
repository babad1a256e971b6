"""The runner: a whole tiny report, its tables and its figure; the committed results."""

import itertools
import json
import re
import socket
import sys

import pytest
import torch

from benchmarks.report_schema import check_report
from besselnet.train import Timing
from besselnet_lab.benchmarks import (
    Entry,
    draw_report,
    markdown_of,
    notes_of,
    read_entries,
    run_entry,
    tables_of,
)
from besselnet_lab.benchmarks.entries import Bound
from places import LAB

TIMING = Timing(rounds=2, fewest_rounds=1, seconds_per_case=60, seconds_per_round=0)
SHAPE = {"kernel_size": 3, "in_channels": 2, "out_channels": 2, "size": 6, "batch": 2}
LAYERS = {
    "plain": {"layer": "Conv2d"},
    "factored": {"layer": "BesselConv2d", "algorithm": "factored"},
    "direct": {"layer": "BesselConv2d", "algorithm": "direct"},
}
RESULTS = LAB / "benchmarks" / "results"


def entry(**changes):
    values = {
        "name": "tiny",
        "about": "tiny layers",
        "measures": ("training", "forward"),
        "cases": ({},),
        "candidates": LAYERS,
        "common": SHAPE,
        "baseline": "plain",
    }
    return Entry(**{**values, **changes})


def ticking(*ticks):
    """A clock that advances by the given steps, again and again."""
    moments = itertools.accumulate(itertools.cycle(ticks))
    return lambda: next(moments)


def numbers(report, candidate, case=0):
    return report["cases"][case]["results"][candidate]


def test_the_best_round_counts_and_ratios_are_to_the_baseline():
    # Three warm-ups; round 1: plain, factored, direct; round 2 begins with the next one: factored,
    # direct, plain. The clock is read before and after each; 9 s pass between.
    durations = [1, 1, 1, 4, 8, 6, 12, 3, 2]
    steps = [step for duration in durations for step in (9, duration)]
    report = run_entry(entry(measures=("forward",)), TIMING, clock=ticking(*steps))
    assert [numbers(report, n)["rounds"]["forward"] for n in LAYERS] == [[4, 2], [8, 12], [6, 3]]
    assert [numbers(report, n)["values"]["forward"] for n in LAYERS] == [2, 8, 3]
    assert [numbers(report, n)["ratios"]["forward"] for n in LAYERS] == [1, 4, 1.5]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"cases": ({}, {"size": 8})},
        {"cases": ({"kernel_size": 3}, {"kernel_size": 5}), "summary": "exponents"},
        {"cases": ({}, {"groups": 2}), "summary": "choice"},
        {"measures": ("float32", "float64"), "baseline": None, "cases": ({}, {"stride": 2})},
        {
            "bounds": (
                Bound("b", "training", "quotient", ("direct", "plain"), at_least=0.0, aim=1e9),
            )
        },
        {"cases": ({}, {"size": 8}), "most_operations": 0},
    ],
    ids=["one case", "cases", "exponents", "choice", "differences", "bound", "all left out"],
)
def test_every_kind_of_report_has_the_schema_tables_and_a_figure(changes):
    told = []
    tested = entry(**changes)
    report = run_entry(tested, TIMING, on_case=told.append)
    check_report(report, environment=False)
    assert report == json.loads(json.dumps(report))
    assert told == [case["label"] for case in report["cases"]]
    assert all(len(row) == len(t.columns) for t in tables_of(report) for row in t.rows)
    page = markdown_of([report])
    assert all(name in page for name in tested.candidates)
    figure = draw_report(report)
    assert len(figure.axes) == len(tested.measures)
    figure.canvas.draw()


def test_what_is_too_large_is_left_out_and_the_notes_say_so():
    # Conv2d: 9 taps x 4 pairs of channels x 36 pixels x 2 images.
    report = run_entry(entry(most_operations=9 * 4 * 36 * 2), TIMING)
    assert numbers(report, "plain")["left_out"] == {}
    assert "multiply-adds" in numbers(report, "direct")["left_out"]["all"]
    assert numbers(report, "direct")["values"] == {}
    assert any(note.startswith("left out: direct") for note in notes_of(report))


def test_a_network_whose_package_is_missing_is_left_out_with_what_to_install(monkeypatch):
    # None in sys.modules is Python's own way to make an import fail.
    monkeypatch.setitem(sys.modules, "besselnet_lab.paper.steerable", None)
    monkeypatch.delattr("besselnet_lab.paper.steerable", raising=False)
    networks = {"plain": {"model": "cnn"}, "peer": {"model": "e2cnn_c4"}}
    images = {"in_channels": 1, "num_classes": 2, "size": 28, "batch": 2}
    report = run_entry(entry(candidates=networks, common=images), TIMING)
    assert numbers(report, "peer")["left_out"] == {"all": "not installed: besselnet-lab[peers]"}
    assert numbers(report, "plain")["values"].keys() == {"training", "forward"}


def test_a_network_that_cannot_be_built_is_an_error_not_a_gap():
    images = {"in_channels": 1, "num_classes": 2, "size": 28, "batch": 2}
    with pytest.raises(ValueError, match="no option 'depth'"):
        run_entry(
            entry(candidates={"plain": {"model": "cnn", "options": {"depth": 3}}}, common=images),
            TIMING,
        )


def test_u_nets_take_training_steps_on_masks():
    _, entries = read_entries(quick=True)
    report = run_entry(entries["unet"], TIMING, quick=True)
    assert numbers(report, "besselnet_unet")["ratios"]["training"] > 0
    sizes = [numbers(report, name)["parameters"] for name in ("unet", "besselnet_unet")]
    assert sizes[0] == pytest.approx(sizes[1], rel=0.02)
    assert report["bounds"][0]["verdict"] == "not judged"


def test_threads_are_set_for_the_run_only():
    before = torch.get_num_threads()
    seen = []
    report = run_entry(
        entry(), TIMING, threads=before + 1, on_case=lambda _: seen.append(torch.get_num_threads())
    )
    assert (seen, report["threads"]) == ([before + 1], before + 1)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.name)
def test_committed_results_have_the_schema_and_name_no_machine(path):
    text = path.read_text(encoding="utf-8")
    report = json.loads(text)
    check_report(report)
    assert not report["quick"]
    assert socket.gethostname() not in text
    assert not re.search(r'"/|[A-Z]:\\\\', text), "a path"
