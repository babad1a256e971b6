"""The report and the page on the models tell what the committed results are."""

import re
import statistics

from scipy.stats import ttest_ind_from_stats

from besselnet.study.report import write_report
from besselnet.study.store import Store
from committed_results import ROOT, accuracies, listed, score, table_below

REPORT = ROOT / "docs" / "results"
MODELS = ROOT / "docs" / "models.md"


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
    rows = table_below(MODELS, "How many steps?")
    assert {batch: right for batch, _, right in rows} == found


def test_what_is_not_explained():
    methods = {"soft": "b-cnn-k_max.so-2", "strong": "b-cnn-k_max-2.so-2"}
    column = "here/mnist-rot-noaug-inter"
    rows = [row for row in table_below(MODELS, "What is not explained") if len(row) == 4]
    assert {cut: (right, mean) for cut, right, mean, _ in rows} == {
        cut: (listed(column, method), score(column, method)) for cut, method in methods.items()
    }
    values = {cut: accuracies(column, method) for cut, method in methods.items()}
    welch = [
        ttest_ind_from_stats(
            statistics.mean(values[cut]),
            statistics.stdev(values[cut]),
            len(values[cut]),
            *map(float, paper.split(" ± ")),
            3,
            equal_var=False,
        ).pvalue
        for cut, _, _, paper in rows
    ]
    told = re.findall(r"(0\.\d+) for the soft and (0\.\d+) for the strong", MODELS.read_text())
    assert told == [tuple(f"{p:.3f}" for p in welch)]


def test_the_readings_that_were_tried():
    results = {
        "as the text says": "mnist-rot-noaug-inter/as-the-text-says",
        "digits turned with bilinear interpolation": "mnist-rot-bilinear-noaug-inter/as-the-text-says",
        "Gaussian blur before pooling": "mnist-rot-noaug-inter/blur-before-pooling",
        "batches of 32": "mnist-rot-noaug-inter/batch-32",
        "norms of the modes as the authors'": "mnist-rot-noaug-inter/norms-of-the-modes-as-the-authors",
        "filters as the authors'": "mnist-rot-noaug-inter/filters-as-the-authors",
        "layers of the later code: tanh, no normalisation, blur": (
            "mnist-rot-noaug-inter/layers-of-the-authors-later-code"
        ),
    }
    rows = [row for row in table_below(MODELS, "What is not explained") if len(row) == 2][1:]
    found = {
        reading: listed(*f"replication/{place}".rsplit("/", 1))
        for reading, place in results.items()
    }
    assert dict(rows) == found


def test_the_two_readings_of_irreps_and_hnets():
    columns = {
        "120 upright": "mnist-upright-low",
        "120 turned": "mnist-rot-noaug-low",
        "1 200 upright": "mnist-upright-inter",
        "1 200 turned": "mnist-rot-noaug-inter",
    }
    methods = ["hnet-order-1.so-2", "e-2-cnn-irreps-1.so-2"]
    rows = table_below(MODELS, "Which of the two?")
    for digits, *cells in rows:
        column = f"here/{columns.pop(digits)}"
        found = [score(column, method).removesuffix(" (one seed)") for method in methods]
        assert [cell.partition(" (")[0] for cell in cells] == found
    assert not columns
