"""The report and the page on the models tell what the committed results are."""

import re
import statistics

import pytest
from scipy.stats import ttest_ind_from_stats

from besselnet_lab.report import write_report
from besselnet_lab.study.cells import expand
from besselnet_lab.study.recipe import read_recipe
from besselnet_lab.study.store import Store
from besselnet_lab.study.tally import unfinished
from committed_results import (
    accuracies,
    bare_score,
    in_the_paper,
    listed,
    score,
    table_below,
)
from places import LAB, ROOT

REPORT = ROOT / "docs" / "results"
MODELS = ROOT / "docs" / "models.md"


def test_the_report_is_up_to_date(tmp_path):
    makefile = (ROOT / "Makefile").read_text()
    (names,) = re.findall(
        r"^STUDIES := \$\(addprefix \$\(LAB\)/results/,(.*)\)$", makefile, re.MULTILINE
    )
    (title,) = re.findall(r'study report \$\(STUDIES\).* --title "(.*)"', makefile)
    results = [
        result for name in names.split() for result in Store(LAB / "results" / name).results()
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
    column = ("MNIST-rot", "noaug", "inter")
    folder = "here/mnist-rot-noaug-inter"
    methods = {
        "soft": ("b-cnn-k_max.so-2", "B-CNN k_max"),
        "strong": ("b-cnn-k_max-2.so-2", "B-CNN k_max/2"),
    }
    rows = [row for row in table_below(MODELS, "What is not explained") if len(row) == 4]
    assert rows == [
        [cut, listed(folder, ours), score(folder, ours), in_the_paper(column, paper)]
        for cut, (ours, paper) in methods.items()
    ]
    chances = []
    for ours, paper in methods.values():
        values = accuracies(folder, ours)
        here = (statistics.mean(values), statistics.stdev(values), len(values))
        there = (*map(float, in_the_paper(column, paper).split(" ± ")), 3)
        chances.append(ttest_ind_from_stats(*here, *there, equal_var=False).pvalue)
    told = "gives a probability of {:.3f} for the soft and {:.3f} for the strong one"
    assert told.format(*chances) in MODELS.read_text()


def test_the_readings_that_were_tried():
    results = {
        "as the text says": "mnist-rot-noaug-inter/as-the-text-says",
        "digits rotated with bilinear interpolation": "mnist-rot-bilinear-noaug-inter/as-the-text-says",
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
        "120 upright": ("MNIST", "upright", "low"),
        "120 rotated": ("MNIST-rot", "noaug", "low"),
        "1 200 upright": ("MNIST", "upright", "inter"),
        "1 200 rotated": ("MNIST-rot", "noaug", "inter"),
    }
    methods = {
        "hnet-order-1.so-2": "HNet order 1",
        "e-2-cnn-irreps-1.so-2": "E(2)-CNN irreps<=1",
    }
    rows = []
    for digits, column in columns.items():
        folder = f"here/{'-'.join(column).lower()}"
        scores = [
            f"{bare_score(folder, ours)} ({in_the_paper(column, paper)})"
            for ours, paper in methods.items()
        ]
        rows.append([digits, *scores])
    assert table_below(MODELS, "Which of the two?") == rows


@pytest.mark.parametrize("name", ["here", "ablation", "replication"])
def test_the_recipes_still_have_the_settings_of_their_results(name):
    """Also where only the default of a model's option would differ."""
    cells = expand(read_recipe(LAB / "recipes" / f"{name}.toml"))
    store = Store(LAB / "results" / name)
    assert unfinished(store, cells) == []
    assert len(store.results()) == len(cells)
