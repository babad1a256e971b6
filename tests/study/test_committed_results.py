"""The report and the page on the models tell what the committed results are."""

import re

from besselnet.study.report import write_report
from besselnet.study.store import Store
from committed_results import ROOT, listed, score, table_below

REPORT = ROOT / "docs" / "results"


def test_the_report_is_up_to_date(tmp_path):
    makefile = (ROOT / "Makefile").read_text()
    (names,) = re.findall(r"^STUDIES := \$\(addprefix results/,(.*)\)$", makefile, re.MULTILINE)
    (title,) = re.findall(r'study report \$\(STUDIES\).* --title "(.*)"', makefile)
    results = [
        result for name in names.split() for result in Store(ROOT / "results" / name).results()
    ]
    write_report(results, tmp_path, title)
    assert (REPORT / "report.md").read_text() == (tmp_path / "report.md").read_text()
    drawn = {path.name for path in (tmp_path / "figures").iterdir()}
    assert drawn == {path.name for path in (REPORT / "figures").iterdir()}


def test_the_sizes_of_a_batch():
    methods = {"64": "as-the-text-says", "32": "batch-32", "16": "batch-16"}
    found = {
        batch: listed("replication/mnist-rot-noaug-low", method)
        for batch, method in methods.items()
    }
    rows = table_below(ROOT / "docs" / "models.md", "How many steps?")
    assert {batch: right for batch, _, right in rows} == found


def test_what_is_not_explained():
    methods = {"soft": "b-cnn-k_max.so-2", "strong": "b-cnn-k_max-2.so-2"}
    found = {cut: listed("here/mnist-rot-noaug-inter", method) for cut, method in methods.items()}
    rows = table_below(ROOT / "docs" / "models.md", "What is not explained")
    assert {cut: right for cut, right, _ in rows} == found


def test_the_two_readings_of_irreps_and_hnets():
    columns = {
        "120 upright": "mnist-upright-low",
        "120 turned": "mnist-rot-noaug-low",
        "1 200 upright": "mnist-upright-inter",
        "1 200 turned": "mnist-rot-noaug-inter",
    }
    methods = ["hnet-order-1.so-2", "e-2-cnn-irreps-1.so-2"]
    rows = table_below(ROOT / "docs" / "models.md", "Which of the two?")
    for digits, *cells in rows:
        column = f"here/{columns.pop(digits)}"
        found = [score(column, method).removesuffix(" (one seed)") for method in methods]
        assert [cell.partition(" (")[0] for cell in cells] == found
    assert not columns
