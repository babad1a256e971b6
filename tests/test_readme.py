"""The README's Python runs; its numbers, and those of the pages behind it, are the committed ones."""

import json
import re
import statistics

import pytest

from besselnet_lab.paper.reference import published
from committed_results import accuracies, as_written, bare_score, in_the_paper, score, table_below
from places import DOCS, LAB, ROOT

README = ROOT / "README.md"
ACCURACY = ROOT / "docs" / "accuracy.md"
SPEED = ROOT / "docs" / "speed.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_snippet(number, capsys):
    names: dict = {}
    exec(SNIPPETS[number], names)
    assert capsys.readouterr().out
    if "difference" in names:
        assert names["difference"].abs().max() < 1e-5


def as_one_line(page):
    return " ".join(page.read_text().split())


FEW_LABELS = [
    "pathmnist-aug-900-standard",
    "pathmnist-aug-18000-standard",
    "malaria-by-slide-aug-220",
    "galaxies-aug-50-a-class",
    "mnist-upright-120",
    "mnist-upright-1200",
    "mnist-upright-12000",
]


def test_few_labels():
    found = []
    for column in FEW_LABELS:
        files = (LAB / "results" / "real-images" / column).glob("besselnet_small.so-2.seed*.json")
        rotations = [json.loads(file.read_text())["rotation"] for file in files]
        assert {rotation["quarter_turns"] for rotation in rotations} == {1}
        scores = [
            score(f"real-images/{column}", method)
            for method in ("besselnet_small.so-2", "resnet-18", "plain-cnn")
        ]
        borders = ("black_corners", "reflected_borders")
        kept = min(rotation[border] for rotation in rotations for border in borders)
        found.append([*scores, f"{kept:.1%}"])
    for page, heading in ((README, "Accuracy with few labels"), (ACCURACY, "With few labels")):
        assert [row[1:] for row in table_below(page, heading)] == found


MORE_AND_FEWER = [
    "pathmnist-aug-90-standard",
    "pathmnist-aug-900-standard",
    "pathmnist-aug-18000-standard",
    "malaria-by-slide-aug-220",
    "malaria-by-slide-aug-2200",
    "galaxies-aug-10-a-class",
    "galaxies-aug-50-a-class",
    "galaxies-aug-200-a-class",
    "mnist-upright-120",
    "mnist-upright-1200",
    "mnist-upright-12000",
]
OTHERS = ("e-2-cnn-c8", "tuned-e-2-cnn-irreps-1", "resnet-18", "plain-cnn")


def test_more_and_fewer_images():
    rows = table_below(ACCURACY, "More and fewer images")
    methods = ("besselnet_small.so-2", *OTHERS)
    found = [[score(f"real-images/{column}", m) for m in methods] for column in MORE_AND_FEWER]
    assert [row[1:] for row in rows] == found


def test_variants_and_rates_with_few_labels():
    text = as_one_line(ACCURACY)
    column, digits = "real-images/pathmnist-aug-900-standard", "real-images/mnist-upright-12000"
    c8 = score(column, "e-2-cnn-c8")
    rates = "real-images-rates/pathmnist-aug-900-standard/e-2-cnn-c8-learning-rate-0"
    fast, slow = (bare_score(*f"{rates}-{rate}".rsplit("/", 1)) for rate in ("003", "001"))
    assert f"C8 has {fast} with 0.003 and {slow} with 0.001 (one seed)" in text
    averaged = score(digits, "besselnet_small-2-rotations.so-2")
    fewest, few = (
        score(f"real-images/mnist-upright-{count}", "besselnet_small-2-rotations.so-2")
        for count in (120, 1200)
    )
    assert f"{fewest} with 120 upright digits, {few} with 1 200 (three seeds each)" in text
    assert f"and {averaged} with 12 000 (two seeds)." in text
    readme = as_one_line(README)
    assert f"an E(2)-CNN with C8 gets {c8}." in readme
    galaxies = "real-images/galaxies-aug-50-a-class"
    assert f"better than `besselnet_small`: {score(galaxies, 'e-2-cnn-c8')}." in readme
    (first, *_) = accuracies(galaxies, "besselnet_small.so-2")
    assert f"whose same seed has {first:.2f}." in text
    assert f"with [`rotations=2`](docs/models.md) gets {averaged}." in readme
    base = score("real-images/mnist-upright-12000", "besselnet_base.so-2")
    assert f"upright digits: {base} (two seeds)" in text


def test_weights_of_other_images():
    rows = table_below(DOCS / "training.md", "Start from trained weights")
    columns = ("malaria-by-slide-aug-220", "galaxies-aug-10-a-class", "galaxies-aug-50-a-class")
    methods = ("besselnet_small", "weights-of-pathmnist")
    found = [[score(f"real-images-ablation/{c}", m) for m in methods] for c in columns]
    assert [row[1:] for row in rows] == found


def test_fields_of_view():
    rows = table_below(DOCS / "choosing.md", "What the choice is worth")
    column = "real-images-ablation/pathmnist-aug-900-standard"
    found = []
    for method in ("besselnet_small", "field-square", "images-as-they-are"):
        rotations = [
            json.loads(file.read_text())["rotation"]
            for file in sorted((LAB / "results" / column).glob(f"{method}.seed*.json"))
        ]
        kept = (
            statistics.mean(rotation[border] for rotation in rotations)
            for border in ("black_corners", "reflected_borders")
        )
        found.append([score(column, method), *(f"{share:.1%}" for share in kept)])
    assert [row[1:] for row in rows] == found


def test_upright_digits():
    rows = table_below(ACCURACY, "Beside other methods, on upright digits")
    assert [row[0] for row in rows] == ["120", "1 200", "12 000"]
    for row, regime in zip(rows, ("low", "inter", "high")):
        column = f"here/mnist-upright-{regime}"
        peer = "tuned-e-2-cnn-irreps-1"
        methods = ("besselnet_digits", peer, f"{peer}-learning-rate-0-003")
        assert row[1:4] == [score(column, f"{method}.so-2") for method in methods]


def published_best(column, family=""):
    """The paper's best number of a column among the methods whose name begins so."""
    numbers = [n for n in published() if (n.data_set, n.augmentation, n.regime) == column]
    best = max((n for n in numbers if n.method.startswith(family)), key=lambda n: n.accuracy)
    return as_written(best)


def test_other_images():
    columns = [
        ("MNIST-rot", "noaug", "low"),
        ("MNIST-rot", "noaug", "inter"),
        ("MNIST-back", "upright", "inter"),
        ("Malaria", "noaug", "low"),
    ]
    found = [
        [
            score(f"here/{'-'.join(column).lower()}", "besselnet_digits.so-2"),
            published_best(column, "B-CNN"),
            published_best(column),
        ]
        for column in columns
    ]
    assert [row[1:] for row in table_below(ACCURACY, "On other images")] == found
    soft_here = bare_score("here/mnist-back-upright-inter", "b-cnn-k_max.so-2")
    soft_paper = in_the_paper(columns[2], "B-CNN k_max").partition(" ")[0]
    assert f"has {soft_here} here, {soft_paper} in the paper" in ACCURACY.read_text()
    ours, plain = (
        bare_score("here/malaria-by-slide-noaug-low", method)
        for method in ("besselnet_digits.so-2", "vanilla-cnn.trivial")
    )
    assert f"`besselnet_digits` has {ours}, a plain CNN {plain} (one seed)" in ACCURACY.read_text()


def test_speed():
    """Every row of the table of speed is in the results of the benchmark."""
    report = json.loads((LAB / "benchmarks" / "results" / "network.json").read_text())
    results = report["cases"][0]["results"]
    names = {"plain CNN": "CNN", "escnn SO(2), irreps <= 1": "escnn SO(2) irreps<=1"}
    names["escnn O(2), irreps <= 1"] = "escnn O(2) irreps<=1"
    for ours, theirs in (
        ("besselnet, {} cut-off", "factored"),
        ("the paper's algorithm, {}", "direct"),
    ):
        names |= {ours.format(cutoff): f"{theirs} {cutoff}" for cutoff in ("soft", "strong")}
    rows = table_below(SPEED, "The paper's network beside other methods")
    assert len(rows) == 10
    for name, parameters, *ratios, _ in rows:
        result = results[names.get(name, name)]
        assert parameters == f"{result['parameters']:,}"
        measures = ("training", "forward", "memory")
        assert ratios == [f"{result['ratios'][measure]:.2f}" for measure in measures]


MEASURED = json.loads((LAB / "benchmarks" / "results" / "sizes.json").read_text())["cases"]


def test_speed_at_real_sizes():
    expected = []
    for case in MEASURED:
        for name, result in case["results"].items():
            training, prediction, memory = speeds(case, name)
            ratios = (f"{result['ratios'][measure]:.2f}" for measure in ("training", "forward"))
            size = str(case["settings"]["size"])
            expected.append([size, name, training, next(ratios), prediction, next(ratios), memory])
    assert table_below(SPEED, "At real sizes") == expected


def test_models():
    """The same figures, a model to a row, and the ratios that the README names."""
    rows = table_below(README, "Models")
    assert [row[0] for row in rows] == ["besselnet_small", "besselnet_base", "ResNet-18"]
    for name, *columns in rows:
        by_size = [speeds(case, name) for case in MEASURED]
        assert columns == [" / ".join(values) for values in zip(*by_size)]
    for case, size in ((MEASURED[1], 64), (MEASURED[3], 224)):
        assert case["settings"]["size"] == size
        ratio = case["results"]["besselnet_small"]["ratios"]["training"]
        assert f"{ratio:.2f}" in README.read_text().partition("## Your own images")[0]


def speeds(case, name):
    """Images per second in training and in prediction, and MiB of extra memory, as the pages write them."""
    batch, values = case["settings"]["batch"], case["results"][name]["values"]
    rates = (f"{batch / values[measure]:.0f}" for measure in ("training", "forward"))
    return (*rates, f"{values['memory'] / 2**20:.0f}")
