"""`besselnet bench` as a user meets it."""

import json

import pytest

from benchmarks.report_schema import check_report
from besselnet_lab.benchmarks import REPORT_FORMAT
from besselnet_lab.cli import main

ENTRIES = """
[timing]
rounds = 2
fewest_rounds = 1
seconds_per_case = 1.0
seconds_per_round = 0.0
[entries.one]
about = "one tiny case"
measures = ["training"]
baseline = "plain"
common = { kernel_size = 3, in_channels = 2, out_channels = 2, size = 6, batch = 2 }
cases = [{}]
candidates = { plain = { layer = "Conv2d" }, "ours [strong]" = { layer = "BesselConv2d" } }
[[entries.one.bounds]]
text = "ours / plain"
measure = "training"
quotient = ["ours [strong]", "plain"]
at_most = 1e9
[entries.two]
about = "two tiny cases"
measures = ["forward"]
common = { kernel_size = 3, in_channels = 2, out_channels = 2, batch = 2 }
cases = [{ size = 6 }, { size = 8 }]
candidates = { ours = { layer = "BesselConv2d" } }
"""


@pytest.fixture
def call(capsys, tmp_path, monkeypatch):
    """Call the command in an empty folder: (exit code, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.toml").write_text(ENTRIES)

    def run(*arguments):
        with pytest.raises(SystemExit) as end:
            main(["bench", *arguments])
        return (end.value.code, *capsys.readouterr())

    return run


def test_prints_tables_and_writes_json_figures_and_a_page(call, tmp_path):
    code, output, progress = call("--entries", "tiny.toml", "--threads", "1")
    assert code == 0
    assert "ours [strong]" in output
    assert "ours / plain" in output
    assert "met" in output
    assert "one: k=3" in progress
    folder = tmp_path / "benchmarks" / "results"
    written = {"one.json", "one.png", "two.json", "two.png", "tables.md"}
    assert {path.name for path in folder.iterdir()} == written
    for name in ("one", "two"):
        report = json.loads((folder / f"{name}.json").read_text())
        check_report(report)
        assert report["threads"] == report["environment"]["machine"]["threads"] == 1
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_the_page_keeps_the_results_of_earlier_runs(call, tmp_path):
    for name in ("one", "two"):
        assert call(name, "--entries", "tiny.toml", "--out", "kept")[0] == 0
    page = (tmp_path / "kept" / "tables.md").read_text()
    assert page.index("## one") < page.index("## two")


@pytest.mark.parametrize(
    ("text", "key"),
    [("{", "line 1"), ("[]", "object"), ("[" * 100_000, "recursion"), (None, "bounds")],
)
def test_a_report_that_is_none_is_named(call, tmp_path, text, key):
    (tmp_path / "kept").mkdir()
    damaged = text or json.dumps({"format": REPORT_FORMAT})
    (tmp_path / "kept" / "two.json").write_text(damaged)
    code, _, error = call("one", "--entries", "tiny.toml", "--out", "kept", "--rounds", "1")
    assert code == 2
    line = error.splitlines()[-1]
    assert "two.json" in line
    assert key in line
    # What was measured is there.
    check_report(json.loads((tmp_path / "kept" / "one.json").read_text()))


def test_json_goes_to_standard_output_alone_and_quick_results_to_their_own_folder(call, tmp_path):
    code, output, _ = call("two", "--entries", "tiny.toml", "--quick", "--rounds", "1", "--json")
    assert code == 0
    (report,) = json.loads(output)
    check_report(report)
    assert report["quick"]
    rounds = [c["results"]["ours"]["rounds"]["forward"] for c in report["cases"]]
    assert [len(times) for times in rounds] == [1, 1]
    assert (tmp_path / "benchmarks" / "results" / "quick" / "two.json").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["networks"], "no entry is named 'networks'; known: layer, layer64"),
        (["--entries", "missing.toml"], "missing.toml"),
        (["--entries", "tiny.toml", "--rounds", "0"], "--rounds"),
        (["--entries", "tiny.toml", "--threads", "none"], "--threads"),
        (["--entries", "tiny.toml", "--out", "tiny.toml"], "tiny.toml"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(call, arguments, said):
    code, output, error = call(*arguments)
    assert (code, output) == (2, "")
    assert error.count("\n") == 1
    assert said in error
