"""Learning curves from run folders and from results of studies; accuracy against angle."""

import json

import numpy as np
import pytest

from besselnet_lab.figures.accuracy import AngleCurve, draw_accuracy
from besselnet_lab.figures.learning import draw_learning, read_learning


def write_run(folder, losses, *, model="toy", seed=0, epochs=9, validated=True):
    folder.mkdir(parents=True)
    config = {
        "data": {"source": "some/photos", "seed": seed},
        "model": {"name": model},
        "train": {"epochs": epochs, "seed": seed},
        "format": 1,
    }
    (folder / "config.json").write_text(json.dumps(config))
    head = "epoch,train_loss,train_accuracy" + (",val_accuracy" if validated else "")
    rows = [
        f"{i},{loss},{1 - loss}" + (f",{1 - loss / 2}" if validated else "")
        for i, loss in enumerate(losses, start=1)
    ]
    (folder / "metrics.csv").write_text("\n".join([head, *rows]) + "\n")
    return folder


def write_cell(path, losses, *, method="B-CNN", regime="low", seed=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    cell = {"data_set": "MNIST", "augmentation": "aug", "regime": regime}
    result = {
        "cell": {**cell, "method": method, "group": "SO(2)", "seed": seed, "protocol": "paper"},
        "config": {
            "data": {"source": "study", "seed": seed, "options": {"size": regime}},
            "model": {"name": method},
            "train": {"seed": seed},
        },
        "curve": {
            "epoch": list(range(1, len(losses) + 1)),
            "train_loss": losses,
            "train_accuracy": [1 - loss for loss in losses],
        },
    }
    path.write_text(json.dumps(result))
    return path


def test_runs_that_differ_in_seeds_alone_are_one_curve(tmp_path):
    write_run(tmp_path / "a", [1.0, 0.5, 0.25], seed=0)
    write_run(tmp_path / "deeper" / "b", [0.8, 0.3], seed=1)
    (curve,) = read_learning([tmp_path])
    assert (curve.network, curve.data, curve.num_runs) == ("toy", "photos", 2)
    assert np.array_equal(curve.values["train_loss"], [[1.0, 0.5], [0.8, 0.3]])
    loss, accuracy = draw_learning([curve]).axes
    assert np.allclose(loss.lines[0].get_ydata(), [0.9, 0.4])
    assert np.allclose(accuracy.lines[0].get_ydata(), [55, 80])
    assert accuracy.get_title() == "right on the validation images, %"


def test_runs_with_other_settings_are_another_curve_with_another_name(tmp_path):
    one = write_run(tmp_path / "one", [1.0])
    longer = write_run(tmp_path / "longer", [1.0, 0.5], epochs=20)
    other = write_run(tmp_path / "other", [1.0], model="cnn")
    curves = read_learning([one, longer, other])
    assert [curve.network for curve in curves] == ["toy (one)", "toy (longer)", "cnn"]


def test_results_of_a_study_have_a_panel_for_each_column(tmp_path):
    for seed in (0, 1):
        write_cell(tmp_path / "low" / f"b.so-2.seed{seed}.json", [1.0, 0.5], seed=seed)
    write_cell(tmp_path / "high" / "b.so-2.seed0.json", [0.5, 0.2], regime="high")
    write_cell(tmp_path / "high" / "cnn.seed0.json", [0.5, 0.2], regime="high", method="CNN")
    (tmp_path / "high" / "cnn.seed1.failed.json").write_text("{}")
    hidden = tmp_path / ".work" / "runs" / "unfinished"
    write_run(hidden, [1.0])
    curves = read_learning([tmp_path])
    assert [(c.network, c.data, c.num_runs) for c in curves] == [
        ("B-CNN SO(2)", "MNIST aug high", 1),
        ("CNN SO(2)", "MNIST aug high", 1),
        ("B-CNN SO(2)", "MNIST aug low", 2),
    ]
    figure = draw_learning(curves)
    titles = [axes.get_title() for axes in figure.axes]
    assert [title.split(":")[0] for title in titles] == ["MNIST aug high", "MNIST aug low"]
    assert "training images" in titles[0]
    high, low = figure.axes
    # The same network looks the same in every panel.
    assert high.lines[0].get_color() == low.lines[0].get_color() != high.lines[1].get_color()
    assert read_learning([tmp_path / "high" / "cnn.seed0.json"])[0].network == "CNN SO(2)"


def test_many_networks_are_all_drawn_and_differ(tmp_path):
    for i in range(15):
        write_run(tmp_path / f"{i}", [1.0, 0.5], model=f"net{i}")
    loss, _ = draw_learning(read_learning([tmp_path])).axes
    looks = {(line.get_color(), line.get_marker()) for line in loss.lines}
    assert len(looks) == 15


def damaged_cell(key, wrong):
    """A function that writes a result with another value at ``key``."""

    def write(path):
        result = json.loads(write_cell(path, [1.0, 0.5]).read_text())
        *sections, last = key.split(".")
        found = result
        for section in sections:
            found = found[section]
        found[last] = wrong
        path.write_text(json.dumps(result))

    return write


def damaged_run(name, text):
    """A function that makes a run with another text in one of its files."""
    return lambda path: (write_run(path, [1.0, 0.5]) / name).write_text(text)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: p.mkdir(), "has neither a run"),
        (lambda p: write_run(p, []), "has no finished epoch"),
        (lambda p: p.write_text("{"), "Expecting property name"),
        (lambda p: p.write_text("[1]"), "JSON object"),
        (lambda p: p.write_text('{"a": 1}'), "is not the result of a study"),
        (lambda p: p.write_text("[" * 100_000), "recursion"),
        (damaged_cell("cell", None), "cell"),
        (damaged_cell("cell.group", 3), "cell.group"),
        (damaged_cell("curve.epoch", 3), "epoch"),
        (damaged_cell("curve.train_loss", [1.0]), "train_loss"),
        (damaged_cell("curve.train_loss", [1.0, None]), "train_loss"),
        (damaged_cell("config.model.width", float("nan")), "JSON compliant"),
        (damaged_run("config.json", '{"data": 3}'), "config.json.*data"),
        (damaged_run("config.json", '{"data": {}, "model": {}}'), "config.json.*data.source"),
        (damaged_run("metrics.csv", "epoch,train_loss\n1,x\n"), "metrics.csv.*'x'"),
        (damaged_run("metrics.csv", "epoch,train_loss\n1\n"), "metrics.csv"),
        (damaged_run("metrics.csv", "train_loss\n1\n"), "metrics.csv.*epoch"),
        (damaged_run("metrics.csv", "epoch,train_loss\n1,nan\n"), "metrics.csv.*train_loss"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, make, message):
    path = tmp_path / "thing"
    make(path)
    with pytest.raises(ValueError, match=message) as raised:
        read_learning([path])
    assert "thing" in str(raised.value)


def test_accuracy_goes_once_around():
    curve = AngleCurve((0.0, 120.0, 240.0), (1.0, 0.5, 0.75), images=40)
    figure = draw_accuracy({"ours": curve}, "Trained on stars")
    (axes,) = figure.axes
    assert axes.lines[0].get_xydata().tolist() == [[0, 100], [120, 50], [240, 75], [360, 100]]
    assert axes.get_title() == "Trained on stars, 40 test images"
    assert figure.legends[0].get_texts()[0].get_text() == "ours: 75 % on average"
