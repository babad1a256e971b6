"""`besselnet models`: the list, and speed beside the baseline."""

import json
import time
from functools import partial

import pytest

from besselnet import train as training
from besselnet.models import list_models
from besselnet.models._registry import _MODELS


def _is_ours(info):
    return getattr(info.build, "func", info.build).__module__.startswith("besselnet.")


@pytest.mark.parametrize("columns", ["60", "80", "200"])
def test_models_are_listed_with_whole_names_and_the_first_to_start_with(call, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    # Other tests of this process may have registered models of their own.
    own = {name: info for name, info in _MODELS.items() if _is_ours(info)}
    monkeypatch.setattr("besselnet.models._registry._MODELS", own)
    started = time.process_time()
    code, output, _ = call("models")
    assert code == 0
    # Bases and all, it would be a quarter of a minute.
    assert time.process_time() - started < 2
    words = output.split()
    assert set(list_models()) <= set(words)
    assert all(words.index("besselnet_small") <= words.index(name) for name in list_models())
    assert max(map(len, output.splitlines())) <= int(columns)
    rows = json.loads(call("models", "--json")[1])
    assert [row["name"] for row in rows] == list_models()
    assert all(row["parameters"] > 0 for row in rows)


def test_speed_is_measured_beside_the_baseline_at_every_size_that_fits(call, monkeypatch):
    quick = training.Timing(rounds=1, fewest_rounds=1, seconds_per_case=0, seconds_per_round=0)
    monkeypatch.setattr(training, "measure_speed", partial(training.measure_speed, timing=quick))
    monkeypatch.setattr("besselnet.cli._models.BATCH_SIZE", 2)
    command = ("models", "cnn", "--speed", "--in-channels", "1", "--size", "20")
    code, output, error = call(*command, "--size", "28", "--json")
    assert code == 0
    report = json.loads(output)
    assert [part["image_size"] for part in report["sizes"]] == [20, 28]
    names = [[row["model"] for row in part["networks"]] for part in report["sizes"]]
    assert names == [["resnet18"], ["cnn", "resnet18"]]
    assert "not built: cnn: image_size=20" in error
    assert "speed at 28 pixels: about " in error
    cnn, resnet18 = report["sizes"][1]["networks"]
    assert cnn["training_time"] == pytest.approx(resnet18["training"] / cnn["training"])
    monkeypatch.setenv("COLUMNS", "80")
    code, output, _ = call(*command)
    assert code == 0
    # The row and the caption.
    assert output.split().count("resnet18") == 2
    assert max(map(len, output.splitlines())) <= 80
