"""Two processes in one place: one does it, the other is told why not, and no file is of both."""

import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from besselnet.cli import main
from besselnet.locking import hold_folder, hold_output
from besselnet.models import create_model, load_network, save_network
from besselnet.train import train_run
from train.toy_run import make_images, quick_config

DRIVER = Path(__file__).with_name("race_driver.py")
SHAPE = {"in_channels": 1, "num_classes": 2, "image_size": 10}


def race(folder, races, kind):
    done = subprocess.run(
        [sys.executable, DRIVER, folder, str(races), "0", kind],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("same True") == races
    return done.stdout


@pytest.mark.parametrize("kind", ["train", "plain"])
def test_two_races_have_one_winner_each(tmp_path, kind):
    race(tmp_path, 2, kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["train", "onnx", "plain", "folder"])
def test_fifty_races_have_one_winner_each(tmp_path, kind):
    if kind == "onnx":
        pytest.importorskip("onnxscript", reason="onnxscript is not installed (extra: export)")
    race(tmp_path, 50, kind)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    make_images(folder / "images")
    train_run(quick_config(folder / "images"), folder / "run", quiet=True)
    return folder


def elsewhere(call, place):
    """Hold `place` in another thread, which counts as another process, and call."""
    with ThreadPoolExecutor(1) as pool:
        context = call(place)
        pool.submit(context.__enter__).result()
        try:
            yield
        finally:
            pool.submit(context.__exit__, None, None, None).result()


@pytest.fixture
def run_held(trained):
    yield from elsewhere(hold_folder, trained / "run")


@pytest.fixture
def output_held(trained):
    yield from elsewhere(hold_output, trained / "run" / "model.py")


def refused(capsys, *arguments):
    started = time.monotonic()
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    assert time.monotonic() - started < 3
    out, error = capsys.readouterr()
    return end.value.code == 2 and out == "" and error.count("\n") == 1 and "is in use" in error


def test_a_second_training_is_refused_in_one_line(trained, run_held, capsys):
    before = {p: p.read_bytes() for p in (trained / "run").rglob("*") if p.is_file()}
    assert refused(capsys, "train", "--out", trained / "run", "--resume")
    assert {p: p.read_bytes() for p in (trained / "run").rglob("*") if p.is_file()} == before


def test_a_second_export_is_refused_in_one_line(trained, output_held, capsys):
    assert refused(capsys, "export", trained / "run", "--to", "plain")
    assert not (trained / "run" / "model.py").exists()


@pytest.mark.parametrize(
    "arguments", [("evaluate",), ("inspect",), ("export", "--to", "folder", "--out", "{tmp}/net")]
)
def test_readers_work_beside_a_writer(trained, run_held, tmp_path, arguments):
    command, *options = (word.format(tmp=tmp_path) for word in arguments)
    with pytest.raises(SystemExit) as end:
        main([command, str(trained / "run"), *options])
    assert end.value.code == 0


def test_an_export_that_fails_leaves_nothing(trained, tmp_path, monkeypatch, capsys):
    real, calls = os.fsync, []

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        real(descriptor)

    for to, name in (("plain", "a.py"), ("folder", "net")):
        calls.clear()
        monkeypatch.setattr("besselnet.atomic.os.fsync", full)
        with pytest.raises(SystemExit) as end:
            main(["export", str(trained / "run"), "--to", to, "--out", str(tmp_path / "x" / name)])
        monkeypatch.undo()
        assert end.value.code == 2
        error = capsys.readouterr().err.splitlines()[-1]
        assert "No space left" in error
        assert str(tmp_path / "x") in error
    assert not list(tmp_path.iterdir())


WRITER = """
import sys
sys.path.insert(0, sys.argv[2])
from train.test_races import network
from besselnet.models import save_network
networks = [network(0), network(1)]
print("ready", flush=True)
while True:
    for number, model in enumerate(networks):
        save_network(model, sys.argv[1], classes=[str(number), "other"])
"""


def network(number):
    """The same architecture with weights that tell its number."""
    model = create_model("toy", **SHAPE)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(number)
    return model


def test_a_reader_beside_a_writer_sees_one_network(tmp_path):
    save_network(network(0), tmp_path / "net", classes=["0", "other"])
    program = [sys.executable, "-c", WRITER, tmp_path / "net", Path(__file__).parents[1]]
    seen = set()
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as writer:
        try:
            assert writer.stdout.readline() == "ready\n"
            deadline = time.monotonic() + 30
            reads = 0
            while (reads < 200 or len(seen) < 2) and time.monotonic() < deadline:
                model = load_network(tmp_path / "net")
                weights = {value for p in model.parameters() for value in p.flatten().tolist()}
                assert weights == {float(model.classes[0])}
                seen |= weights
                reads += 1
        finally:
            # It writes for ever.
            writer.kill()
    assert seen == {0.0, 1.0}


def test_weights_of_another_network_are_refused(tmp_path):
    for number in range(2):
        save_network(network(number), tmp_path / str(number), classes=[str(number), "other"])
    shutil.copy(tmp_path / "1" / "model.safetensors", tmp_path / "0")
    with pytest.raises(ValueError, match=r"model\.safetensors does not match .* in config\.json"):
        load_network(tmp_path / "0")


def test_a_killed_training_is_resumed_at_once_and_cleaned(tmp_path):
    make_images(tmp_path / "images")
    command = [
        *(
            sys.executable,
            "-m",
            "besselnet",
            "train",
            tmp_path / "images",
            "--out",
            tmp_path / "run",
        ),
        *("--model", "cnn", "--set", "data.image_size=28", "--set", "train.device=cpu"),
        *("--set", "model.options.width=0.13", "--set", "train.epochs=10"),
        *("--set", "train.checkpoint_steps=1"),
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as training:
        deadline = time.monotonic() + 120
        checkpoint = tmp_path / "run" / "checkpoint.safetensors"
        while not checkpoint.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        training.send_signal(signal.SIGKILL)
    # As if in the middle of the next one.
    (tmp_path / "run" / f"{checkpoint.name}.{training.pid}-00000000.partial").touch()
    with pytest.raises(SystemExit) as end:
        main(["train", "--out", str(tmp_path / "run"), "--resume"])
    assert end.value.code == 0
    assert "resuming at" in (tmp_path / "run" / "log.txt").read_text()
    assert not list((tmp_path / "run").rglob("*.partial"))
