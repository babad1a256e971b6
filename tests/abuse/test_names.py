"""Names that break careless programs: trained, drawn, reported and exported like any other."""

import csv
import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from abuse.manners import only_json
from abuse.networks import QUICK

NAMES = [
    *(
        "$100_$200",
        r"$\frac{$",
        "$x^2$",
        "a_b^c",
        r"\undefined",
        "{0}",
        "%s%n",
        "100%",
        "#1",
        "&amp;",
    ),
    *("<script>alert(1)<", "[bold]red[", "`|`", "a|b", "--out", "-rf", "=1+1", "+1", "@SUM(A1)"),
    *(
        "'quoted'",
        '"double"',
        "a,b",
        "a;b",
        "a\tb",
        "a\nb",
        " space ",
        "~",
        "*",
        "?",
        "nul",
        "None",
        "true",
    ),
    *(
        "naïve",
        "cafe\u0301",
        "微米",
        "한국어",
        "עברית",
        "العربية",
        "\u202egnp.exe",
        "a\u200bb",
        "🔬",
        "👩‍🔬",
    ),
    *("\ufeffbom", "\x1b[31mred", "x" * 120),
    os.fsdecode(b"not \xff UTF-8"),
]


def make_named(folder: Path, names: Sequence[str]) -> Path:
    """Images of classes with these names, in files of the same names, and of a plain class."""
    chance = np.random.default_rng(0)
    for part, count in (("train", 4), ("val", 1), ("test", 1)):
        for name in ("plain", *names):
            (folder / part / name).mkdir(parents=True)
            for number in range(count):
                image = Image.fromarray(chance.integers(0, 256, (10, 10), dtype=np.uint8))
                image.save(folder / part / name / f"{name}{number or ''}.png")
    return folder


@pytest.mark.parametrize(
    "names",
    [NAMES, *(pytest.param([name], marks=pytest.mark.slow, id=ascii(name)) for name in NAMES)],
)
def test_nasty_names(server, tmp_path, names):
    data = make_named(tmp_path / "data", names)

    def call(*words: object) -> str:
        ended = server.run("besselnet", *words, folder=tmp_path)
        assert ended.code == 0, ended.error
        assert "Traceback" not in ended.error
        # Terminals obey escape sequences.
        assert "\x1b[31m" not in ended.output + ended.error
        return ended.output

    call("train", data, "--out", "run", *QUICK)
    for picture in ("curves.png", "confusion.png"):
        with Image.open(tmp_path / "run" / picture) as drawn:
            drawn.verify()
    saved = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    assert set(saved["classes"]) == {"plain", *names}
    report = only_json(call("evaluate", "run", "--json"))[0]
    assert set(report["classes"]) == set(saved["classes"])
    call("evaluate", "run", "--rotated", "--angles", "2")
    call("data", "show", data, "-o", "sheet.png", "--per-class", "2")
    rows = only_json(call("predict", "run", data / "test", "--json"))
    assert {row["class"] for row in rows} <= set(saved["classes"])
    assert {f"{name}.png" for name in names} < {Path(row["image"]).name for row in rows}
    call("predict", "run", data / "test", "--csv", "rows.csv")
    with (tmp_path / "rows.csv").open(newline="", errors="surrogateescape") as file:
        assert len(list(csv.DictReader(file))) == len(rows)
    call("export", "run", "--to", "plain", "--out", "network.py")
    compile((tmp_path / "network.py").read_text(errors="surrogatepass"), "network.py", "exec")
    call("export", "run", "--to", "folder", "--out", "given")
    card = (tmp_path / "given" / "README.md").read_text(errors="surrogatepass")
    assert "<script>" not in card
    table = [line for line in card.splitlines() if line.startswith("| answers |")]
    assert len(table) == 1
