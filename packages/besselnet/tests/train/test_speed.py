"""Speed: turns and best rounds on a clock of our own; networks side by side; what a step keeps."""

import io

import pytest
import torch
from torch import nn

from besselnet.train import Timing, measure_speed, time_in_turns
from besselnet.train._speed import _kept_bytes

QUICK = Timing(rounds=1, fewest_rounds=1, seconds_per_case=0, seconds_per_round=0)


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


def test_the_time_is_announced_before_the_rounds_begin():
    machine, stream = Machine(), io.StringIO()
    calls = {"a": machine.candidate("a", [5.0] * 20)}
    said = []
    calls["a"] = lambda call=calls["a"]: (said.append(stream.getvalue()), call())
    time_in_turns(calls, timing(), machine.clock, stream=stream, text="measuring")
    # Three rounds, in each of them a call that is not counted and one that is.
    assert said == ["", *["measuring: about 30s\n"] * 6]


def test_networks_are_measured_side_by_side():
    small = {"image_size": 28, "in_channels": 1, "num_classes": 3, "batch_size": 2}
    names = ["cnn", "besselnet_small"]
    found = measure_speed(names, **small, baseline="cnn", timing=QUICK)
    assert [speed.model for speed in found] == names
    cnn, ours = found
    assert (cnn.training_time, cnn.prediction_time) == (1.0, 1.0)
    assert ours.training_time == pytest.approx(cnn.training / ours.training)
    assert ours.prediction_time == pytest.approx(cnn.prediction / ours.prediction)
    assert min(cnn.kept_bytes, ours.kept_bytes) > 0
    (alone,) = measure_speed(names[:1], **small, baseline="resnet18", timing=QUICK)
    assert alone.training_time is alone.prediction_time is None


def test_networks_that_answer_for_pixels_are_measured():
    (unet,) = measure_speed(["unet"], image_size=16, num_classes=2, batch_size=2, timing=QUICK)
    assert min(unet.training, unet.prediction, unet.kept_bytes) > 0


def test_what_is_kept_is_counted_once_and_without_the_weights():
    # Of these layers, the convolution keeps its input, the ReLU its output, the linear layer its input,
    # which is the same memory; the loss keeps logarithms of shares, labels and the sum of their weights.
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 6 * 6, 5))
    images, labels = torch.rand(4, 1, 8, 8), torch.zeros(4, dtype=torch.int64)
    numbers = 4 * 64 + 4 * 2 * 36 + 4 * 5 + 1
    assert _kept_bytes(network, images, labels) == 4 * numbers + 8 * 4


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="batch_size=1: must be an integer >= 2"):
        measure_speed(["cnn"], batch_size=1)
    with pytest.raises(ValueError, match="nothing"):
        measure_speed(["nothing"])
