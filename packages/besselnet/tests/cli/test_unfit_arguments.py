"""Command lines that ask for what there is not: one line and exit code 2, within two seconds."""

import errno
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from besselnet.cli import Command, Program, main
from besselnet.train import load_run
from train.toy_run import make_images

TESTS = Path(__file__).parents[1]
SECONDS = 2.0
NEW = ["--out", "new", "--set", "train.device=cpu"]


def setting(*texts: str) -> list[str]:
    return ["train", "images", *NEW, *(part for text in texts for part in ("--set", text))]


# Command lines, and what the answer must name.
UNFIT: list[tuple[list[str], str]] = [
    *(
        (["evaluate", "run", "--device", device], repr(device))
        for device in ("cuda:99", "nonsense", "meta", "cpu:3", "")
    ),
    (["predict", "run", "images", "--device", "cuda:99"], "cuda:99"),
    (setting("model.options.in_channels=3"), "in_channels"),
    (setting("model.options.num_classes=3"), "num_classes"),
    (setting("model.options.nothing=3"), "nothing"),
    (setting("model.options.width=inf"), "model.options.width=inf"),
    (setting("model.options.width=nan"), "model.options.width=nan"),
    (setting("model.options.width=1e9"), "width=1000000000.0"),
    (setting("model.options.width=text"), "width='text'"),
    (setting("model.options.cutoff=50"), "cutoff=50"),
    (setting("model.options.cutoff=1e9"), "cutoff=1000000000.0"),
    (setting("model.options.scales=[100000]"), "scales=(100000,)"),
    (setting("model.options.channels=[[1000000000]]"), "numbers in total"),
    (setting("model.options.kernel_size=1000001"), "1000001"),
    (setting("model.options.pool_blur=1e9"), "pool_blur"),
    (setting("model.options.low_pass=text"), "low_pass='text'"),
    (setting("model.name=toy", "model.options.width=-1"), "'width': -1"),
    (setting("model.name=toy", "model.options.width=text"), "'width': 'text'"),
    (setting("model.name=toy", "model.options.width=1000000000"), "'width': 1000000000"),
    (setting("data.options.split=5"), "split=5"),
    (setting("data.options.split=[inf,0,1]"), "data.options.split[0]=inf"),
    (setting("data.options.resize=7"), "resize=7"),
    (setting("data.options.root=elsewhere"), "data.options.root"),
    (setting("data.options.nothing=7"), "nothing"),
    (setting("data.image_size=1000000000"), "data.image_size=1000000000"),
    (setting("train.nodes=2"), "nodes=2"),
    (setting("train.devices=1000000000"), "devices=1000000000"),
    (setting("train.class_weights=[1,1,1]"), "class_weights"),
    (setting("train.epochs=1000000000000000000000"), "train.epochs"),
    (setting("train.learning_rate=inf"), "train.learning_rate=inf"),
    *(
        (["models", *name, option, value], option)
        for name in ([], ["besselnet_small"], ["cnn"])
        for option in ("--in-channels", "--num-classes", "--image-size")
        for value in ("1000000000", "99999999999999999999999", "-1")
    ),
    (["models", "--speed", "--size", "1000000000"], "--size"),
    (["data", "show", "images", "-o", "a.png", "--image-size", "1000000000"], "--image-size"),
    (["data", "show", "images", "-o", "a.png", "--per-class", "1000000000"], "--per-class"),
    (["data", "show", "images", "-o", "a.png", "--seed", "9" * 30], "seed=999"),
    (["data", "show", "images", "-o", "a.png", "--set", "split=5"], "split=5"),
    (["data", "show", "images", "-o", "a.png", "--set", "image_size=5"], "image_size"),
    (["evaluate", "run", "--rotated", "--angles", "1000000000"], "angles=1000000000"),
    (["predict", "run", "images", "--batch-size", "9" * 30], "batch_size=999"),
]

# All command lines in one process, so that what they import is imported once, and counted for the first.
PROGRAM = textwrap.dedent(
    f"""
    import io, json, sys, time
    from contextlib import redirect_stderr, redirect_stdout
    sys.path.insert(0, {str(TESTS)!r})
    import train.toy_run
    from besselnet.cli import program

    found = []
    for arguments in json.load(sys.stdin):
        before, error = time.process_time(), io.StringIO()
        with redirect_stderr(error), redirect_stdout(io.StringIO()):
            code = program().run(arguments)
        found.append([code, error.getvalue(), time.process_time() - before])
    print(json.dumps([found, "lightning_fabric" in sys.modules]))
    """
)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with images/ and run/."""
    folder = tmp_path_factory.mktemp("unfit")
    images = make_images(folder / "images")
    with pytest.raises(SystemExit) as end:
        main(
            [
                *("train", str(images), "--out", str(folder / "run"), "--model", "toy"),
                *("--set", "train.epochs=1", "--set", "train.device=cpu"),
            ]
        )
    assert end.value.code == 0
    return folder


@pytest.fixture(scope="module")
def answers(place):
    """Exit code, standard error and seconds of every command line; whether Fabric was imported."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps([arguments for arguments, _ in UNFIT]),
        capture_output=True,
        text=True,
        cwd=place,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("number", range(len(UNFIT)), ids=[" ".join(a)[:60] for a, _ in UNFIT])
def test_one_line_soon(answers, number, place):
    code, error, seconds = answers[0][number]
    assert code == 2, error
    assert error.count("\n") == 1, error
    assert UNFIT[number][1] in error
    assert seconds < SECONDS
    assert not (place / "new").exists()


def test_mistakes_are_found_before_what_takes_long_to_import(answers):
    """Importing Fabric takes as long as all the rest, and would leave no time."""
    assert not answers[1]


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has it")
@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_devices_that_are_not_here(place, device, capsys):
    if device == "mps" and torch.backends.mps.is_available():
        pytest.skip("this machine has it")
    new = str(place / "other")
    for arguments in (
        ["evaluate", str(place / "run"), "--device", device],
        ["train", str(place / "images"), "--out", new, "--set", f"train.device={device}"],
    ):
        with pytest.raises(SystemExit) as end:
            main(arguments)
        assert end.value.code == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert f"device={device!r} is not available" in error


def call(*arguments) -> int:
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    return end.value.code


def test_a_network_that_answers_nan(place, tmp_path, capsys, monkeypatch):
    run = load_run(place / "run")
    with torch.no_grad():
        next(run.model.parameters()).fill_(float("nan"))
    monkeypatch.setattr("besselnet.train.load_run", lambda *_, **__: run)
    image = place / "images" / "test" / "bars" / "0.png"
    assert call("predict", place / "run", image, "--json") == 0
    (row,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (row["class"], row["probability"]) == (None, None)
    assert "NaN" in row["error"]
    for command in ("evaluate", "inspect"):
        assert call(command, place / "run", "--json") == 2
        output, error = capsys.readouterr()
        assert output == ""
        assert error.count("\n") == 1
        assert "NaN" in error


def test_a_full_disk_names_the_file(place, tmp_path, capsys, monkeypatch):
    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    image, answers = place / "images" / "test" / "bars" / "0.png", tmp_path / "answers.csv"
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        assert call("predict", place / "run", image, "--csv", answers) == 2
        assert f"{answers}: No space left" in capsys.readouterr().err
        new = tmp_path / "new"
        assert call("train", place / "images", "--out", new, "--model", "toy") == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert f"{new}{os.sep}" in error
    assert not answers.exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_under_the_log_and_under_standard_output(place, tmp_path, capsys):
    log = tmp_path / "run" / "log.txt"
    log.parent.mkdir()
    log.symlink_to("/dev/full")
    assert call("train", place / "images", "--out", log.parent, "--model", "toy") == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"{log}: No space left" in error
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "besselnet", "models"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 2
    assert done.stderr == "besselnet: standard output: No space left on device\n"


def no_memory() -> None:
    raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate\n9 bytes")


def defect() -> None:
    raise RuntimeError("a defect")


def test_too_little_memory_is_one_line_and_a_defect_is_not(capsys):
    names = ("no_memory", "defect")
    commands = {name: Command(__name__, name, "Fail.") for name in names}
    program = Program("besselnet", "1", "About.", commands)
    assert program.run(["no_memory"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "not enough memory" in error
    with pytest.raises(RuntimeError, match="a defect"):
        program.run(["defect"])
