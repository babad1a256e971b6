"""Measuring: turns and best rounds on a clock of our own, memory in a fresh process, agreement."""

import sys

import pytest
import torch

from besselnet.functional import _conv as conv
from besselnet_lab.benchmarks.entries import Timing
from besselnet_lab.benchmarks.measure import difference_from_direct, probe, time_in_turns
from besselnet_lab.benchmarks.subjects import LeftOut, basis_of

LAYER = {
    "layer": "BesselConv2d",
    "kernel_size": 5,
    "in_channels": 4,
    "out_channels": 4,
    "size": 16,
    "batch": 2,
    "cutoff": "soft",
}


class Machine:
    """A clock that only calls move, and a diary of the calls."""

    def __init__(self):
        self.now = 0.0
        self.calls = []

    def clock(self):
        return self.now

    def candidate(self, name, durations):
        durations = iter(durations)

        def call():
            self.calls.append(name)
            self.now += next(durations)

        return call


def timing(**changes):
    values = {"rounds": 3, "fewest_rounds": 2, "seconds_per_case": 1e9, "seconds_per_round": 0.0}
    return Timing(**{**values, **changes})


def test_candidates_take_turns_and_each_round_begins_with_another():
    machine = Machine()
    # Once each to see how long it takes, then in every turn a call that is not counted.
    a, b = [9, 9, 1, 9, 3, 9, 2], [9, 9, 5, 9, 4, 9, 6]
    calls = {"a": machine.candidate("a", a), "b": machine.candidate("b", b)}
    times = time_in_turns(calls, timing(), machine.clock)
    assert times == {"a": [1, 3, 2], "b": [5, 4, 6]}
    assert "".join(machine.calls) == "ab" + "aabb" + "bbaa" + "aabb"


def test_short_calls_are_repeated_to_fill_a_round_and_counted_per_call():
    machine = Machine()
    # The first call is slow because it sets things up, the second says what a call takes.
    calls = {"a": machine.candidate("a", [0.75, *[0.25] * 100])}
    times = time_in_turns(calls, timing(seconds_per_round=1.0), machine.clock)
    assert times == {"a": [0.25] * 3}
    assert len(machine.calls) == 2 + 3 * (1 + 4)


@pytest.mark.parametrize(("seconds", "rounds"), [(1000.0, 7), (104.0, 5), (1.0, 2)])
def test_long_cases_get_fewer_rounds_but_never_fewer_than_the_fewest(seconds, rounds):
    machine = Machine()
    calls = {name: machine.candidate(name, [5.0] * 20) for name in "ab"}
    times = time_in_turns(calls, timing(rounds=7, seconds_per_case=seconds), machine.clock)
    assert [len(found) for found in times.values()] == [rounds, rounds]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_factored_agrees_with_direct_and_direct_with_itself(dtype):
    assert difference_from_direct({**LAYER, "algorithm": "direct"}, dtype) == 0
    difference = difference_from_direct({**LAYER, "algorithm": "factored"}, dtype)
    assert 0 < difference < {torch.float32: 1e-5, torch.float64: 1e-11}[dtype]


def test_a_wrong_algorithm_is_seen(monkeypatch):
    right = conv.factored
    monkeypatch.setattr(conv, "factored", lambda *arguments: 1.01 * right(*arguments))
    difference = difference_from_direct({**LAYER, "algorithm": "factored"}, torch.float64)
    assert difference == pytest.approx(0.01, rel=1e-6)


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from Linux's /proc")
def test_the_peak_counts_all_that_is_there_at_once_and_grows_with_the_batch():
    settings = {**LAYER, "in_channels": 32, "out_channels": 32, "size": 64, "algorithm": "direct"}
    few, many = (probe({**settings, "batch": n}, threads=1)["peak_bytes"] for n in (4, 8))
    # Direct keeps all maps, and in the backward pass their gradients are there as well.
    maps = basis_of(settings).num_maps * 32 * 4 * 64 * 64 * 4
    assert few > 2 * maps
    # Nearly all of it is proportional to the batch. 5 % is what the docs promise of this measure.
    assert many / few == pytest.approx(2, rel=0.05)


def test_a_process_that_fails_leaves_its_candidate_out_with_the_reason():
    with pytest.raises(LeftOut, match="Conv9d"):
        probe({**LAYER, "model": "Conv9d", "num_classes": 2}, threads=1)
