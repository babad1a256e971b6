"""The report: scores, ranks and verdicts; missing cells; and the page in a real browser."""

import json
import re
import shutil
import statistics
import subprocess
from urllib.parse import quote
from xml.etree import ElementTree

import pytest

from besselnet_lab.report import write_report
from besselnet_lab.report.collect import (
    ColumnKey,
    RowKey,
    Score,
    collect,
    compare,
    finishes,
    readings,
    undisturbed_seconds,
)
from besselnet_lab.report.columns import (
    draw_columns,
    family_places,
    standings,
    standings_in_words,
)
from besselnet_lab.report.figures import draw_figures
from besselnet_lab.report.overview import draw_overview
from study.toys import make_result

UPRIGHT_LOW = ColumnKey("MNIST", "upright", "low")
SOFT, STRONG = RowKey("B-CNN k_max", "SO(2)"), RowKey("B-CNN k_max/2", "SO(2)")
OWN = RowKey("besselnet_small", "SO(2)")


@pytest.fixture(scope="module")
def results():
    return [
        *(make_result(a, seed=s) for s, a in enumerate((0.70, 0.72, 0.74))),
        make_result(0.80, method="B-CNN k_max/2", model="bcnn_so2_strong"),
        make_result(0.90, method="besselnet_small", model="besselnet_small", notes=("thinned",)),
        make_result(0.60, method="vanilla CNN", group="trivial", model="cnn"),
        make_result(0.75, method="HNet order 1", model="hnet_so2_1"),
        make_result(0.55, data_set="My cells", method="besselnet_small", model="besselnet_small"),
        make_result(0.99, method="B-CNN k_max", judge="val"),
    ]


def entry(tables, row, column):
    found = [t.entries[row, column] for t in tables if (row, column) in t.entries]
    assert len(found) == 1
    return found[0]


def test_scores_are_means_and_sample_deviations(results):
    soft = entry(collect(results), SOFT, UPRIGHT_LOW)
    assert soft.ours == pytest.approx((72.0, statistics.stdev([70, 72, 74]), 3))
    assert soft.paper == Score(65.76, 1.82, 3)
    assert soft.seconds == 2 * 10.0
    assert entry(collect(results), STRONG, UPRIGHT_LOW).ours == Score(80.0, None, 1)


def test_times_leave_disturbances_out():
    quiet = [10.0, 10.1, 10.2] * 10
    disturbed = [*quiet[:12], 0.1, *(3 * seconds for seconds in quiet[12:-1])]
    assert undisturbed_seconds([7.0]) == 7.0
    assert undisturbed_seconds(disturbed) == pytest.approx(sum(quiet), rel=0.02)


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        (Score(95, 1, 3), Score(90, 1, 3), "above"),
        (Score(85, 1, 3), Score(90, 1, 3), "below"),
        (Score(91, 1, 3), Score(90, 1, 3), "same"),
        (Score(93, 0.1, 3), Score(90, 2, 3), "unclear"),
        (Score(93, 2, 3), Score(90, 0.1, 3), "unclear"),
        (Score(93, None, 1), Score(90, 1, 3), "above"),
        (Score(88.5, None, 1), Score(90, 1, 3), "same"),
        (Score(88.5, None, 1), Score(90, None, 1), "unknown"),
    ],
)
def test_a_difference_is_judged_by_both_deviations(ours, theirs, verdict):
    found = compare(ours, theirs)
    assert found.verdict == verdict
    assert found.difference == ours.mean - theirs.mean


def test_ranks_are_of_those_that_were_run_and_ties_share_one(results):
    tied = make_result(0.90, method="ResNet-18", group="trivial", model="resnet18")
    tables = collect([*results, tied])
    ranks = {
        row.title: entry(tables, row, UPRIGHT_LOW).our_rank
        for row in (OWN, STRONG, SOFT, RowKey("ResNet-18", "trivial"))
    }
    assert ranks == {
        "besselnet_small SO(2)": 1,
        "ResNet-18 trivial": 1,
        "B-CNN k_max/2 SO(2)": 3,
        "B-CNN k_max SO(2)": 5,
    }
    assert entry(tables, STRONG, UPRIGHT_LOW).paper_rank == 1
    # Where it was the only one, and on validation images, nobody is first.
    assert entry(tables, OWN, ColumnKey("My cells", "upright", "low")).our_rank is None
    assert finishes(tables, "our")[OWN] == (1, 1, 1)
    assert finishes(tables, "paper")[STRONG] == (8, 17, 30)


def test_places_of_families_are_those_of_the_papers_discussion(results):
    """Section 6.3 counts them for B-CNNs, E(2)-CNNs and HNets; ours is first in its only column."""
    places = {family: counts for family, *counts in family_places(collect(results))}
    assert places["B-CNN"] == [16, 22, 30]
    assert places["E(2)-CNN"] == [9, 22, 30]
    assert places["HNet"] == [
        6,
        13,
        30,
    ]  # 5 in the paper, which gives a shared place to one of them
    assert places["besselnet"] == [1, 1, 1]


def test_every_published_cell_is_there_run_or_not(results):
    tables = collect(results)
    entries = [e for table in tables for e in table.entries.values()]
    assert sum(e.paper is not None for e in entries) == 450
    assert sum(e.ours is not None for e in entries) == 7
    assert [table.name for table in tables][-2:] == [
        "My cells, beyond the paper",
        "MNIST, beyond the paper",
    ]


def test_validation_results_are_not_compared_with_the_paper(results):
    judged = entry(collect(results), SOFT, ColumnKey("MNIST", "upright", "low", judge="val"))
    assert judged.paper is None
    assert judged.comparison is None


def test_both_readings_of_a_model_are_given(results):
    tables = collect(results)
    found = [r for table in tables for r in readings(table.entries.values())]
    assert [(e.models, a.title, b.title) for e, a, b in found] == [
        (("hnet_so2_1",), "HNet order 1 SO(2)", "E(2)-CNN irreps<=1 SO(2)")
    ]


def test_a_tuned_model_is_no_reading_of_a_row_of_the_paper():
    tuned = make_result(0.85, method="tuned HNet", model="hnet_so2_1")
    assert not [r for table in collect([tuned]) for r in readings(table.entries.values())]


def test_the_same_cell_twice_is_refused(results):
    with pytest.raises(ValueError, match="two results for MNIST upright low"):
        collect([*results, results[0]])


@pytest.fixture(scope="module")
def report(results, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    write_report(results, folder, "Made up <results>")
    return folder


def test_markdown_shows_theirs_ours_and_what_is_missing(report):
    text = (report / "report.md").read_text()
    assert "**79.67 ± 2.57**<br>**80.00** (n=1) = +0.33" in text
    assert "65.76 ± 1.82<br>72.00 ± 2.00 (n=3) ▲ +6.24" in text
    assert "42.82 ± 0.23<br>–" in text
    assert "- MNIST upright low: thinned." in text
    assert "79.67 ± 2.57 (B-CNN k_max/2 SO(2)): +10.33 | the same |" in text
    for target in re.findall(r"\]\((figures/[^)]+)\)", text):
        assert (report / target).stat().st_size > 0


def test_the_report_says_how_much_was_run(report, results):
    text = (report / "report.md").read_text()
    assert (
        "This report has 9 trainings. It covers 4 of the paper's 450 cells, with results in 1 of its 30 "
        "columns. Of these cells: 2 above the paper, 2 the same within two standard deviations. Networks of "
        "besselnet have results in 1 of these columns, and are above every method of the paper in 1 of them. "
        "1 more cell is of a network that the paper does not have. 2 cells are not compared with the paper"
    ) in text
    assert "MNIST<br>upright low<br>120 images" in text
    page = (report / "report.html").read_text()
    assert "It covers 4 of the paper&#x27;s 450 cells" in page


def ablation():
    """A first row in the middle of the alphabet, and changes of it; two of them were run once."""
    runs = [
        ("basis", {}, (0.86, 0.88)),
        ("a slow one", {"learning_rate": 0.003}, (0.80, 0.81)),
        ("many at once", {"batch_size": 64}, (0.89,)),
        ("small", {"warmup": 0.1, "batch_size": 8}, (0.70,)),
    ]
    results = []
    for method, changes, accuracies in runs:
        for seed, accuracy in enumerate(accuracies):
            kind = {"method": method, "group": "", "model": "besselnet_small", "judge": "val"}
            train = {
                "learning_rate": 0.01,
                "batch_size": 16,
                "warmup": 0.2,
                "seed": seed,
                **changes,
            }
            config = {"data": {"seed": seed}, "model": {"options": {}}, "train": train}
            results.append({**make_result(accuracy, seed=seed, **kind), "config": config})
    return sorted(results, key=lambda result: result["cell"]["method"])


@pytest.fixture(scope="module")
def ablation_report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ablation")
    write_report(ablation(), folder, "ablation")
    return folder


def test_variants_are_compared_with_the_one_they_vary(ablation_report):
    text = (ablation_report / "report.md").read_text()
    rows = [line.split(" | ")[:5] for line in text.splitlines() if line.startswith("| ")][2:]
    assert rows == [
        ["| basis", "87.00 ± 1.41", "2", "", ""],
        ["| many at once", "89.00", "1", "+2.00 =", "batch_size 64"],
        ["| a slow one", "80.50 ± 0.71", "2", "-6.50 ▼", "learning_rate 0.003"],
        ["| small", "70.00", "1", "-17.00 ▼", "batch_size 8, warmup 0.1"],
    ]
    assert "Evaluated on validation images." in text


def test_an_ablation_leaves_the_figures_of_the_paper_as_they_are(results):
    tables = collect([*results, *ablation()])
    alone = draw_figures([table for table in tables if table.is_paper]).drawings
    together = draw_figures(tables).drawings
    assert together[: len(alone)] == alone
    assert len(together) > len(alone)


def test_without_a_counterpart_the_tables_of_the_paper_are_left_out(ablation_report):
    assert [table.name for table in collect(ablation())] == ["MNIST, beyond the paper"]
    assert sum(e.paper is not None for t in collect([]) for e in t.entries.values()) == 450
    text = (ablation_report / "report.md").read_text()
    assert "79.67" not in text
    assert "None of them has a counterpart in the paper" in text


def growing():
    """Two data sets with several numbers of training images, two methods; one of 900 was not run."""
    runs = [
        ("besselnet_small", "Tissues", 90, (0.60, 0.64), (0.99, 0.97, 1.0)),
        ("besselnet_small", "Tissues", 900, (0.75, 0.77), (0.96, 0.98, 1.0)),
        ("ResNet-18", "Tissues", 90, (0.50, 0.52), None),
        ("besselnet_small", "Galaxies", 50, (0.70,), (0.9, 0.9, 1.0)),
        ("besselnet_small", "Galaxies", 250, (0.80,), (0.9, 0.9, 1.0)),
        ("ResNet-18", "Galaxies", 50, (0.71,), (0.6, 0.7, 0.5)),
        ("ResNet-18", "Galaxies", 250, (0.72,), (0.7, 0.8, 0.6)),
    ]
    names = ("black_corners", "reflected_borders", "quarter_turns")
    return [
        make_result(
            accuracy,
            data_set=data_set,
            augmentation="aug",
            regime=str(images),
            method=method,
            group="",
            seed=seed,
            train_images=images,
            rotation=None if shares is None else dict(zip(names, shares)),
        )
        for method, data_set, images, accuracies, shares in runs
        for seed, accuracy in enumerate(accuracies)
    ]


@pytest.fixture(scope="module")
def growing_report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("growing")
    write_report(growing(), folder, "growing")
    return folder


def test_a_table_for_each_data_set_shows_accuracy_time_and_rotation_by_size(growing_report):
    text = (growing_report / "report.md").read_text()
    lines = text.split("### Tissues aug, by the number of training images")[1].splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("|")][:4]
    assert rows[0] == [
        *("method", "90 images", "training", "900 images", "training"),
        *("black corners", "reflected borders", "quarter turns"),
    ]
    small = ["62.00 ± 2.83", "20s", "76.00 ± 1.41", "20s", "96.0", "97.0", "100.0"]
    assert rows[2][1:] == small
    # Rotation was not measured here: an older result.
    assert rows[3][1:] == ["51.00 ± 1.41", "20s", *"–" * 5]
    galaxies = text.split("### Galaxies aug, by the number of training images")[1]
    assert galaxies.index("ResNet-18") < galaxies.index("besselnet")
    page = (growing_report / "report.html").read_text()
    assert "Tissues aug, by the number of training images" in page


def test_the_columns_of_the_paper_show_the_best_network_of_besselnet():
    """In 2 columns, ahead in one; digits of a name of their own count by the number of training images."""
    networks = {"model": "besselnet_small", "group": "SO(2)"}
    results = [
        make_result(0.95, method="besselnet_small", **networks),
        make_result(0.85, method="besselnet_base", **networks),
        make_result(0.99, method="ResNet-18", model="resnet18", group="trivial"),
        make_result(0.50, method="besselnet_small", regime="1200", train_images=1_200, **networks),
        make_result(0.99, method="besselnet_small", regime="700", train_images=700, **networks),
    ]
    tables = collect(results)
    found = {standing.column[:3]: standing for standing in standings(tables)}
    assert len(found) == 30
    low, inter = found["MNIST", "upright", "low"], found["MNIST", "upright", "inter"]
    assert (low.own.row.method, low.own.ours.mean) == ("besselnet_small", pytest.approx(95))
    assert (low.best_bcnn.paper.mean, low.best.paper.mean) == (79.67, 79.67)
    assert (low.is_ahead, inter.is_ahead) == (True, False)
    assert inter.own.ours.mean == pytest.approx(50)
    assert sum(standing.own is not None for standing in found.values()) == 2
    assert "results in 2 of these columns" in standings_in_words(found.values())
    (figure,) = draw_columns(tables).values()
    paper, bcnn, own = (line[0].get_xydata().tolist() for line in figure.axes[0].containers)
    titles = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    places = {"MNIST upright low": 95, "MNIST upright inter": 50}
    assert own == [[pytest.approx(x), titles.index(title)] for title, x in places.items()][::-1]
    assert len(paper) == len(bcnn) == 30
    galaxies = titles.index("Galaxy10 DECals aug high")
    assert (paper[galaxies][0], bcnn[galaxies][0]) == (87.70, 85.25)


def test_without_a_network_of_besselnet_no_picture_of_the_columns(results):
    plain = [result for result in results if not result["model"]["name"].startswith("besselnet")]
    assert not draw_columns(collect(plain))


def test_one_picture_has_a_panel_for_each_data_set_and_a_line_for_each_method():
    figure, times = draw_overview(collect(growing())).values()
    panels = {axes.get_title(): axes for axes in figure.axes if axes.get_title()}
    assert panels.keys() == {"Tissues", "Galaxies"}
    # Methods stand beside each other: the nearest number on the axis is theirs.
    points = {
        (title, *((min(axes.get_xticks(), key=lambda tick: abs(tick - x)), y) for x, y in places))
        for title, axes in panels.items()
        for places in (line[0].get_xydata().tolist() for line in axes.containers)
    }
    assert points == {
        ("Tissues", (90, 62), (900, 76)),
        ("Tissues", (90, 51)),
        ("Galaxies", (50, 70), (250, 80)),
        ("Galaxies", (50, 71), (250, 72)),
    }
    legend = next(axes.get_legend() for axes in figure.axes if axes.get_legend())
    assert {text.get_text() for text in legend.get_texts()} == {"besselnet_small", "ResNet-18"}
    minutes = {x for axes in times.axes for c in axes.containers for x in c[0].get_xdata()}
    assert minutes == {20 / 60}


@pytest.mark.parametrize(("methods", "panels"), [(2, 0), (3, 2)])
def test_one_number_of_images_makes_a_panel_if_several_methods_were_repeated(methods, panels):
    cell = {"data_set": "Cells", "augmentation": "aug", "regime": "20", "group": ""}
    results = [
        make_result(0.5, method=f"method {number}", seed=seed, train_images=20, **cell)
        for number in range(methods)
        for seed in (0, 1)
    ]
    figures = draw_overview(collect(results)).values()
    assert sum(axes.get_title() == "Cells" for figure in figures for axes in figure.axes) == panels


def test_the_picture_of_all_data_sets_is_there_as_png_too(growing_report, report):
    names = {path.name for path in (growing_report / "figures").glob("accuracy-against-training-*")}
    assert names == {
        f"accuracy-against-training-{what}.{kind}"
        for what in ("images", "time")
        for kind in ("svg", "png")
    }
    assert not list((report / "figures").glob("accuracy-against-training-*"))


def test_the_page_needs_nothing_from_elsewhere(report):
    text = (report / "report.html").read_text()
    assert "Made up &lt;results&gt;" in text
    # The addresses that remain are names of XML vocabularies inside the figures.
    links = set(re.findall(r"(?:src|href)\s*=\s*[\"']([^\"'#][^\"']*)", text))
    assert not links
    assert not re.search(r"@import|url\((?!#)|fetch\(|<link", text)


def test_rendering_is_repeatable(results, report, tmp_path):
    write_report(results, tmp_path, "Made up <results>")
    assert (tmp_path / "report.html").read_text() == (report / "report.html").read_text()


chromium = shutil.which("chromium")
in_browser = pytest.mark.skipif(chromium is None, reason="there is no chromium here")


def open_page(page, state, folder):
    """The document as a browser has it at the address `#state`; its profile goes to `folder`."""
    address = f"{page.as_uri()}#{state}"
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000")
    # Nothing but the page: a new profile would greet, update itself and call home.
    options += ("--no-first-run", "--disable-background-networking", "--disable-sync")
    options += ("--disable-component-update", "--disable-dev-shm-usage")
    profile = f"--user-data-dir={folder / 'profile'}"
    done = subprocess.run(
        [chromium, *options, profile, "--dump-dom", address],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout


def rows_of(document, table):
    body = re.search(rf'<table id="{table}">.*?<tbody>(.*?)</tbody>', document, re.DOTALL).group(1)
    rows = []
    for attributes, cells in re.findall(r"<tr([^>]*)>(.*?)</tr>", body, re.DOTALL):
        if not re.search(r"\bhidden\b", attributes):
            found = re.findall(r"<td[^>]*>(.*?)</td>", cells, re.DOTALL)
            rows.append([re.sub(r"<[^>]+>", "", cell) for cell in found])
    return rows


@in_browser
def test_the_page_filters(report, tmp_path):
    state = f"method={quote('B-CNN*')}&data_set=MNIST&regime=low"
    document = open_page(report / "report.html", state, tmp_path)
    rows = rows_of(document, "cells")
    # Five B-CNNs, and the one that was judged on validation images.
    assert len(rows) == 6
    assert all(row[0] == "MNIST" and row[3].startswith("B-CNN") for row in rows)
    assert "6 of 453 cells" in document
    wide = rows_of(document, "table0")
    assert {row[0] for row in wide} == {"B-CNN k_max", "B-CNN k_max/2"}
    # Of the nine columns of the first table, one is left.
    head = re.search(r'<table id="table0">.*?</thead>', document, re.DOTALL).group()
    shown = [h for h in re.findall(r"<th ([^>]*)>", head) if "hidden" not in h]
    assert len(shown) == 2 + 1


@in_browser
def test_the_page_sorts_and_keeps_missing_values_last(report, tmp_path):
    page = report / "report.html"
    down = rows_of(open_page(page, "run=1&sort=cells:here:desc", tmp_path), "cells")
    here = [float(row[6].split()[0]) for row in down]
    assert here == sorted(here, reverse=True)
    assert len(here) == 7
    state = "data_set=MNIST&regime=low&sort=cells:here:asc"
    up = rows_of(open_page(page, state, tmp_path), "cells")
    here = [float(row[6].split()[0]) for row in up if row[6]]
    assert here == sorted(here)
    assert [bool(row[6]) for row in up] == sorted((bool(row[6]) for row in up), reverse=True)


@in_browser
def test_a_click_on_a_heading_sorts(report, tmp_path):
    page = tmp_path / "report.html"
    click = "<script>document.querySelector('#table0 th[data-sort=column8]').click()</script>"
    text = (report / "report.html").read_text()
    page.write_text(text.replace("</body>", f"{click}</body>"))
    document = open_page(page, "", tmp_path)
    rows = rows_of(document, "table0")
    assert rows[0][0] == "besselnet_small"
    assert 'aria-sort="descending"' in document


@in_browser
def test_the_page_leaves_out_what_the_filters_empty(report, tmp_path):
    document = open_page(report / "report.html", "data_set=MNIST&run=1", tmp_path)
    shown = [
        heading
        for attributes, heading in re.findall(r"<section ([^>]*)><h2>(.*?)</h2>", document)
        if "hidden" not in attributes
    ]
    assert "MNIST-rot, MNIST" in shown
    assert "Galaxy10 DECals" not in shown
    assert "My cells, beyond the paper" not in shown
    # The small tables obey as well.
    assert {row[0] for row in rows_of(document, "summary1")} == {"MNIST upright low"}
    assert [row[0] for row in rows_of(document, "summary2")] == [
        "vanilla CNN",
        "HNet order 1",
        "B-CNN k_max",
        "B-CNN k_max/2",
        "besselnet_small",
    ]


@in_browser
@pytest.mark.parametrize(("column", "index"), [("accuracy", 1), ("difference", 3), ("runs", 2)])
def test_variants_sort_by_number(ablation_report, tmp_path, column, index):
    state = f"sort=table0-0:column{index}:asc"
    rows = rows_of(open_page(ablation_report / "report.html", state, tmp_path), "table0-0")
    numbers = [float(row[index].split()[0]) for row in rows if row[index]]
    assert numbers == sorted(numbers), column
    assert [bool(row[index]) for row in rows] == [True] * len(numbers) + [False] * (
        4 - len(numbers)
    )


def test_a_result_survives_its_file(tmp_path):
    """What the store writes is what the report reads."""
    from besselnet_lab.study.store import Store, json_by_line

    result = make_result(0.5)
    (tmp_path / "column").mkdir()
    (tmp_path / "column" / "cell.json").write_text(json_by_line(result))
    (tmp_path / "column" / "cell.failed.json").write_text("{}")
    assert Store(tmp_path).results() == [json.loads(json.dumps(result))]


def test_methods_of_any_name_are_drawn_and_written(tmp_path):
    methods = (
        "$100_$200",
        r"$\frac{$",
        "_hidden",
        "🐍 שלום",
        "a\x07\n\x1b",
        "caf\udce9",
        "m" * 300,
    )
    results = [make_result(0.5, method=name, data_set="My cells") for name in methods]
    for path in write_report(json.loads(json.dumps(results)), tmp_path, "made up"):
        path.read_text(encoding="utf-8")
    pictures = list((tmp_path / "figures").glob("*my-cells*.svg"))
    assert pictures
    for picture in pictures:
        shown = "".join(ElementTree.parse(picture).getroot().itertext())
        assert all(text in shown for text in ("$100_$200", r"$\frac{$", "_hidden", "caf\ufffd"))
        assert "mathdefault" not in shown
