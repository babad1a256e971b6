"""Mutated command lines: their work, or one line and exit code 2; no traceback, no hang, no memory."""

import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abuse.fork_server import Kill
from abuse.manners import check_manners, fuzzing
from abuse.networks import QUICK, SMALL
from besselnet.cli import Program, program
from besselnet.data import data_source, list_data
from besselnet.models import list_models, model_info
from besselnet.train import describe_settings, make_config
from besselnet_lab.cli import program as lab_program

# Relative, in a folder of its own: whatever is written stays there.
TRAINING = [
    ["besselnet", "train", "images", "--out", "new", *QUICK],
    ["besselnet", "train", "images", *SMALL],
    ["besselnet", "train", "--out", "run", "--resume"],
    ["besselnet", "train", "--settings", "--model", "besselnet_small", "--config", "empty.toml"],
]
LINES = [
    ["besselnet"],
    ["besselnet", "demo", "--out", "new"],
    *TRAINING,
    ["besselnet", "evaluate", "run", "--rotated", "--angles", "2", "--json"],
    ["besselnet", "evaluate", "run", "--part", "val"],
    ["besselnet", "predict", "run", "images/test", "--csv", "rows.csv"],
    ["besselnet", "predict", "run/model.onnx", "images/test", "garbage.png", "--json"],
    ["besselnet", "new", "images", "--model", "cnn", "-o", "sheet.png"],
    ["besselnet", "inspect", "run", "--json"],
    ["besselnet", "play", "run", "--port", "0", "--images", "garbage.png"],
    ["besselnet-lab", "survey", "--files", "20", "--simulated", "100", "--out", "survey.json"],
    ["besselnet", "export", "run", "--to", "plain", "--out", "network.py"],
    ["besselnet", "export", "run", "--to", "folder"],
    ["besselnet", "data", "list", "--json"],
    ["besselnet", "data", "fetch", "mnist"],
    ["besselnet", "data", "show", "images", "-o", "sheet.png", "--part", "val"],
    ["besselnet", "info", "--json"],
    ["besselnet", "models", "cnn", "--image-size", "32"],
    ["besselnet", "models", "besselnet_small", "--in-channels", "3", "--json"],
    ["besselnet-lab", "study", "status", "tiny.toml", "--json"],
    ["besselnet-lab", "study", "report", "results"],
    ["besselnet-lab", "figure"],
    ["besselnet-lab", "bench"],
]
VALUES = [
    *("", "0", "-1", "1", "1.5", "1e9", "1000000000", "1e308", "9" * 400, "nan", "inf", "-inf"),
    *(
        "null",
        "true",
        "text",
        "[]",
        "{}",
        "[1, 2]",
        '{"a": 1}',
        "[" * 5000,
        '"',
        "'",
        "=",
        "a=b",
        "%s",
    ),
    *(
        "é",
        "\udcff",
        "\u202egnp",
        "x" * 5000,
        "a\nb",
        "$100",
        "--",
        "-",
        "--json",
        "--out",
        "*",
        "[a]",
    ),
    *("cpu", "cuda", "cuda:99", "meta", "16-true", "none", "all", "cnn", "bcnn_o2", "mnist-mini"),
    *(".", "..", "run", "images", "missing", "missing/new", "fifo", "empty.toml", "deep.json"),
    *("garbage.png", "run/model.onnx", "run/config.json", "images/test/bars/0.png", "tiny.toml"),
]
# What may work for hours; what is wrong is told in the first seconds.
LONG = ("demo", "bench", "survey", "play", "train.epochs=1000000000", "train.epochs=1e9")
AT_MOST = 2.0
# Lines that went wrong, of a kind that chance seldom finds.
FOUND = [
    ["besselnet", "predict", "run", "images/test", "--csv", "fifo"],
    ["besselnet", "predict", "run", "fifo"],
    ["besselnet", "data", "show", "images", "-o", "fifo"],
    ["besselnet", "train", "images", *QUICK, "--set", "train.nodes=2"],
    ["besselnet", "evaluate", "run", "--device", "meta"],
    ["besselnet", "data", "show", "images", "-o", "a.png", "--image-size", "9" * 400],
    ["besselnet", "train", "--config", "deep.json"],
    ["besselnet", "train", "images", *QUICK, "--set", f"data.options.split={'[' * 2000}"],
]


def options_of(whole: Program) -> dict[tuple[str, ...], list[str]]:
    """Every option of every command, by the words that call it."""
    found: dict[tuple[str, ...], list[str]] = {}

    def collect(words: tuple[str, ...], command: Any) -> None:
        found[words] = [option for parameter in command.params for option in parameter.opts]
        for name, inner in getattr(command, "commands", {}).items():
            collect((*words, name), inner)

    for name in whole.commands:
        collect((whole.name, name), whole.load(name))
    return found


OPTIONS = {**options_of(program()), **options_of(lab_program)}
SETTINGS = sorted(
    {key for key, _, _ in describe_settings(make_config())}
    | {f"model.options.{key}" for name in list_models("b*") for key in model_info(name).options}
    | {f"data.options.{key}" for name in list_data() for key in data_source(name).options}
    | {"", "train", "model.options.in_channels", "train.none", "data.options.a.b", "."}
)


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """One of `LINES` with a word or two of it exchanged, dropped, repeated or added."""
    # Training has most of the settings.
    words = list(draw(st.sampled_from(LINES) | st.sampled_from(TRAINING)))
    value = st.sampled_from(VALUES)
    for _ in range(draw(st.integers(1, 2))):
        kind = draw(
            st.sampled_from(["exchange", "exchange", "option", "set", "set", "drop", "add"])
        )
        place = draw(st.integers(1, max(1, len(words) - 1)))
        known = OPTIONS.get(tuple(words[:2]), []) + OPTIONS.get(tuple(words[:3]), [])
        if kind == "exchange" and place < len(words):
            words[place] = draw(value)
        elif kind == "drop" and place < len(words):
            del words[place]
        elif kind == "add":
            words.insert(place, draw(value))
        elif kind == "set" and "--set" in known:
            words += ["--set", f"{draw(st.sampled_from(SETTINGS))}={draw(value)}"]
        elif known:
            words += [draw(st.sampled_from(known)), draw(value)]
    return words


def fill(folder: Path, run: Path) -> None:
    """What `LINES` and `VALUES` name."""
    shutil.copytree(run, folder / "run")
    shutil.copytree(run.parent / "images", folder / "images")
    shutil.copytree(run.parent / "study" / "results", folder / "results" / "tiny")
    for name in ("tiny.toml", "tiny.npz"):
        shutil.copy(run.parent / "study" / name, folder)
    os.mkfifo(folder / "fifo")
    (folder / "empty.toml").touch()
    (folder / "garbage.png").write_bytes(bytes(range(256)))
    (folder / "deep.json").write_text("[" * 100_000)


def test_every_command_is_among_the_lines():
    called = {tuple(line[:length]) for line in LINES for length in (2, 3)}
    assert {words[:2] for words in OPTIONS} <= called


def check(servers, run: Path, place: Path, words: list[str]) -> None:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    fill(place, run)
    kill = Kill(seconds=AT_MOST) if set(words) & set(LONG) else None
    ended = servers[words[0]].run(*words, folder=place, kill=kill)
    if not ended.killed:
        check_manners(ended, words)
    assert stat.S_ISFIFO((place / "fifo").stat().st_mode), "the FIFO was replaced by a file"


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_mutated_command_lines(servers, ready, tmp_path, count):
    @fuzzing(count)
    @given(command_lines())
    def one(words: list[str]) -> None:
        check(servers, ready, tmp_path / "at", words)

    one()


@pytest.mark.parametrize("words", FOUND, ids=lambda words: " ".join(words)[:60])
def test_lines_that_went_wrong(servers, ready, tmp_path, words):
    check(servers, ready, tmp_path / "at", words)
