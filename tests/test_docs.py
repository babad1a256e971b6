"""The documentation can be followed word for word, names things that exist, and builds."""

import ast
import csv
import doctest
import importlib.util
import re
import runpy
import shlex
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from besselnet.cli import main, program
from besselnet.train import describe_settings
from besselnet_lab.cli import program as lab_program
from places import LAB, ROOT

DOCS = {str(path.relative_to(ROOT / "docs")): path for path in (ROOT / "docs").rglob("*.md")}
TEXTS = {name: path.read_text(encoding="utf-8") for name, path in DOCS.items()}
# (language, file name or "", text) of each block of code
FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)

# Pages whose blocks are run one after the other in an empty folder, as a reader would.
FOLLOWED = {
    "quickstart.md": {"epochs=10": "epochs=1"},
    "folder-of-images.md": {
        "besselnet train": "besselnet train --set model.options.width=0.5",
        "train.epochs=20": "train.epochs=1",
        "--rotated": "--rotated --angles 2",
    },
    "segmentation.md": {
        "besselnet train": "besselnet train --set model.options.channels=[[3],[4],[4]]",
        "train.epochs=20": "train.epochs=1",
        "--rotated": "--rotated --angles 2",
    },
    "from-conv2d.md": {},
    "from-escnn.md": {},
    "distributed.md": {"epochs=10": "epochs=1"},
    "sklearn.md": {},
}
# Commands on those pages that are not run here, and why.
NOT_RUN = {
    "pip install": "a test installs nothing",
    "besselnet demo": "takes minutes; the library's test_demo.py runs a smaller one",
    "torchrun": "starts processes; the library's train/test_distributed.py does",
    "besselnet train photos --devices 4": "starts processes; train/test_distributed.py does",
    "besselnet-lab study": "takes hours; the lab's tests run smaller ones",
}
# Pages with sessions of the interpreter that the tests of their own rooms run.
SESSIONS_RUN_ELSEWHERE = {
    "convert.md": "tests/test_convert.py",
    "equivariance.md": "tests/test_testing.py",
    "gate.md": "tests/models/test_gate.py",
}


def blocks(page: str, *languages: str) -> list[tuple[str, str, str]]:
    return [found for found in FENCE.findall(TEXTS[page]) if found[0] in languages]


def shell_lines(text: str) -> list[str]:
    return [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]


def follow(line: str) -> None:
    """Do what a line of shell says, in this process."""
    if any(line.startswith(start) for start in NOT_RUN):
        return
    program, *arguments = shlex.split(line, comments=True)
    if program == "python":
        runpy.run_path(arguments[0], run_name="__main__")
        return
    assert program == "besselnet", f"do not know how to run {line!r}"
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 0, line


@pytest.mark.parametrize("page", FOLLOWED)
def test_page_can_be_followed(page, monkeypatch, tmp_path):
    for package, pages in {
        "mlxtend": ("quickstart.md", "distributed.md"),
        "escnn": "from-escnn.md",
        "sklearn": ("sklearn.md",),
    }.items():
        if page in pages and importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    smaller = dict(FOLLOWED[page])
    for language, title, text in blocks(page, "python", "sh"):
        for original in [words for words in smaller if words in text]:
            text = text.replace(original, FOLLOWED[page][original])
            smaller.pop(original, None)
        if title:
            Path(title).write_text(text)
        elif ">>> " in text:
            continue  # test_sessions runs it
        elif language == "python":
            exec(compile(text, page, "exec"), names)
        else:
            for line in shell_lines(text):
                follow(line)
    assert not smaller, f"no longer on the page: {smaller}"
    if page == "quickstart.md":
        # What the page promises: rounding, and the same answers after quarter turns.
        assert names["difference"].abs().max() < 1e-5
        assert names["curve"].agreement[2::2] == (1.0, 1.0, 1.0)
    if page == "sklearn.md":
        assert names["same"] == 1
    if page == "folder-of-images.md":
        with open("answers.csv") as file:
            assert [row["error"] for row in csv.DictReader(file)] == ["", "", ""]
        assert Path("sheet.png").exists()
        assert Path("runs/images/rotated.png").exists()

    if page == "segmentation.md":
        with open("found.csv") as file:
            assert [row["error"] for row in csv.DictReader(file)] == ["", ""]
        for name in ("found/overlays/slide.png", "found/measures.csv", "runs/cells/overlays.png"):
            assert Path(name).exists()


SESSIONS = [
    name for name, text in TEXTS.items() if "\n>>> " in text and name not in SESSIONS_RUN_ELSEWHERE
]


@pytest.mark.parametrize("page", SESSIONS)
def test_sessions(page):
    assert doctest.testfile(str(DOCS[page]), module_relative=False).failed == 0


@pytest.mark.parametrize("page", TEXTS)
def test_python_can_be_read(page):
    for _, _, text in blocks(page, "python"):
        if ">>> " not in text and "--8<--" not in text:
            ast.parse(text)


def code_lines(text: str) -> Iterator[str]:
    """The lines between fences, and the indented ones."""
    inside = False
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("```"):
            inside = not inside
        elif inside or line.startswith("    "):
            yield line.strip()


def commands() -> dict[str, list[str]]:
    """Lines that call besselnet, on any page and in the README, with the pages they are on."""
    found = defaultdict(list)
    for page, text in {**TEXTS, "README.md": (ROOT / "README.md").read_text()}.items():
        for line in code_lines(text):
            call = re.match(r"(?:.*-m )?(besselnet(?:-lab)? [a-z].*)", line)
            if call:
                found[call[1].partition("  #")[0].strip()].append(page)
    return found


@pytest.mark.parametrize("line", sorted(commands()))
def test_commands_and_their_options_exist(line):
    called, name, *words = shlex.split(line.split("|")[0].split(">")[0])
    known_to = program() if called == "besselnet" else lab_program
    assert name in known_to.commands, commands()[line]
    command = known_to.load(name)
    if words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    used = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    assert used <= known, commands()[line]
    settings = {key for key, *_ in describe_settings()}
    for word, value in pairwise(words):
        if word == "--set" and name == "train":
            key = value.partition("=")[0]
            free = re.match(r"(data|model)\.options\.\w+$", key)
            assert key in settings or free, f"{key} on {commands()[line]}"


def test_the_settings_shown_are_those_of_the_default_model():
    values = {key: value for key, value, _ in describe_settings()}
    table = re.findall(r"^\| `([\w.]+)` \| (\S+) \|", TEXTS["folder-of-images.md"], re.MULTILINE)
    assert ("train.optimizer", '"adamw"') in table
    assert [(key, values[key]) for key, _ in table] == table


def published() -> dict[tuple[str, str, str], dict[tuple[str, str], float]]:
    """The paper's accuracies: column -> row -> per cent."""
    table: dict = defaultdict(dict)
    with open(LAB / "src" / "besselnet_lab" / "paper" / "reference" / "accuracy.csv") as file:
        for row in csv.DictReader(file):
            column = row["data_set"], row["augmentation"], row["regime"]
            table[column][row["method"], row["group"]] = float(row["accuracy"])
    return table


def best(rows: dict[tuple[str, str], float]) -> tuple[str, str]:
    return max(rows, key=rows.__getitem__)


def test_numbers_of_the_paper():
    table = published()
    bessel = {
        column: {row: value for row, value in rows.items() if row[0].startswith("B-CNN")}
        for column, rows in table.items()
    }
    strong = sum(best(rows)[0] == "B-CNN k_max/2" for rows in bessel.values())
    assert f"best B-CNN in {strong} of the {len(table)} columns" in TEXTS["choosing.md"]
    malaria = [("Malaria", a, r) for a in ("aug", "noaug") for r in ("high", "inter", "low")]
    shown = {
        "best of all methods (an HNet)": [max(table[c].values()) for c in malaria],
        "best B-CNN": [max(bessel[c].values()) for c in malaria],
        "plain CNN": [table[c]["vanilla CNN", "trivial"] for c in malaria],
    }
    for name, values in shown.items():
        row = " | ".join(f"{value:.2f}" for value in values)
        assert f"| {name} | {row} |" in TEXTS["limits.md"]
    for column in malaria:
        rows = table[column]
        assert max(rows.values()) in [v for row, v in rows.items() if row[0].startswith("HNet")]


def install_lines() -> Iterator[tuple[str, str]]:
    """(page, line) of each line that installs or builds something."""
    for page, text in {**TEXTS, "README.md": (ROOT / "README.md").read_text()}.items():
        yield from ((page, line) for line in code_lines(text) if line.startswith("pip "))


def test_what_is_installed_is_there():
    """From a clone by its path: no index has these packages."""
    first: dict[str, list[str]] = {}
    for page, line in install_lines():
        ours = [word for word in shlex.split(line, comments=True) if "besselnet" in word]
        if ours:
            first.setdefault(page, ours)
        for word in ours:
            if word.startswith("./"):
                folder = ROOT / word.partition("[")[0]
                assert (folder / "pyproject.toml").is_file(), (page, line)
    for page in ("README.md", "quickstart.md", "examples.md"):
        assert first[page][0].startswith("./packages/besselnet"), page
