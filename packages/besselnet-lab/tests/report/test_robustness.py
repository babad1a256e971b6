"""Results with robustness in a report, and what the committed ones must show."""

import pytest

from besselnet_lab.figures import read_noise
from besselnet_lab.report import write_report
from besselnet_lab.report.collect import ColumnKey
from besselnet_lab.report.robustness import (
    collect_robust,
    draw_robust_curves,
    mean_corruption_error,
    robust_notes,
    robust_tables,
)
from besselnet_lab.study.store import Store, json_by_line
from places import LAB
from study.robust_toys import robust_result
from study.toys import make_result

COLUMN = ColumnKey("MNIST", "aug", "12000")
PLACE = {"augmentation": "aug", "regime": "12000", "group": ""}


@pytest.fixture
def results():
    return [
        robust_result(0.9, corrupted=0.6, method="plain CNN", seed=0, **PLACE),
        robust_result(0.9, corrupted=0.4, method="plain CNN", seed=1, **PLACE),
        robust_result(0.8, corrupted=0.75, method="ours", **PLACE),
        robust_result(0.7, corrupted=0.25, method="masked", reasons=("it is flat",), **PLACE),
    ]


def test_errors_are_relative_to_the_plain_network(results):
    entries = {entry.row.method: entry for entry in collect_robust(results)}
    found = {
        name: mean_corruption_error(entry, entries["plain CNN"]).mean
        for name, entry in entries.items()
    }
    assert found == pytest.approx({"plain CNN": 100, "ours": 50, "masked": 150})
    assert mean_corruption_error(entries["plain CNN"], entries["plain CNN"]).std == pytest.approx(
        20 * 2**0.5
    )


def test_corruptions_at_which_the_reference_makes_no_error_do_not_count(results):
    plain, _, ours, _ = results
    plain["robust"]["corruptions"]["blur"]["accuracy"] = [1.0] * 5
    ours["robust"]["corruptions"]["blur"]["accuracy"] = [0.0] * 5
    reference, entry = collect_robust([plain, ours])
    assert mean_corruption_error(entry, reference).mean == pytest.approx(62.5)
    for curve in plain["robust"]["corruptions"].values():
        curve["accuracy"] = [1.0] * 5
    assert mean_corruption_error(entry, reference) is None


def test_the_table_begins_with_the_least_error(results):
    table = robust_tables(collect_robust(results))[COLUMN]
    rows = [dict(zip(table.head, line.cells)) for line in table.lines]
    assert [row["method"] for row in rows] == ["ours", "plain CNN", "masked"]
    assert [row["runs"] for row in rows] == ["1", "2", "1"]
    assert [row["gradients"] for row in rows] == ["real", "real", "suspicious (1 of 1)"]
    first = rows[0]
    assert (first["clean"], first["noise 0.2"], first["worst rotation and shift"]) == (
        *("80.00", "75.00", "40.00"),
    )
    assert (first["random search"], first["FGSM"], first["PGD"]) == ("60.00", "30.00", "10.00")
    # Without the plain network there is nothing to be relative to.
    alone = robust_tables(collect_robust(results[2:]))[COLUMN]
    place = alone.head.index("corruption error")
    assert {line.cells[place] for line in alone.lines} == {"–"}


def test_notes_name_networks_whose_gradients_are_suspicious(results):
    ((column, note),) = robust_notes(collect_robust(results))
    assert column == COLUMN
    assert "masked, seed 0" in note
    assert "it is flat" in note


def test_curves_are_means_over_the_runs(results):
    severity, epsilon = draw_robust_curves(collect_robust(results)).values()
    (blur,) = (axes for axes in severity.axes if axes.get_title() == "blur")
    plain, ours, _ = blur.lines
    assert list(plain.get_ydata()) == pytest.approx([90] + [50] * 5)
    assert list(ours.get_ydata()) == pytest.approx([80] + [75] * 5)
    fgsm, pgd = (axes for axes in epsilon.axes if axes.get_title())
    assert list(pgd.lines[0].get_xdata()) == [0, 0.01, 0.02]
    assert list(pgd.lines[0].get_ydata()) == pytest.approx([90, 40, 20])
    assert list(fgsm.lines[0].get_ydata()) == pytest.approx([90, 50, 30])


def test_a_report_has_it_beside_the_accuracies(results, tmp_path):
    markdown, html = write_report(
        [*results, make_result(0.5, data_set="Cells")], tmp_path, "robust"
    )
    for text in (markdown.read_text(), html.read_text()):
        assert "MNIST aug 12000, robustness" in text
        assert "it is flat" in text
        assert "Learning curves" in text
    assert 'id="robust-0"' in html.read_text()
    drawn = {path.name for path in (tmp_path / "figures").iterdir()}
    stem = "robustness-mnist-aug-12000-accuracy-against-"
    assert {
        f"{stem}{of}.{end}" for of in ("severity", "epsilon") for end in ("svg", "png")
    } <= drawn
    plain = [{k: v for k, v in result.items() if k != "robust"} for result in results]
    write_report(plain, tmp_path / "plain", "plain")
    assert "robustness" not in (tmp_path / "plain" / "report.md").read_text()


def test_noise_is_read_from_results_and_averaged_over_seeds(results, tmp_path):
    for number, result in enumerate(results):
        (tmp_path / f"{number}.seed0.json").write_text(json_by_line(result))
    results[0]["robust"]["noise"]["changes"]["white"][-1] = 0.5
    (tmp_path / "0.seed0.json").write_text(json_by_line(results[0]))
    found = read_noise([tmp_path])
    assert list(found) == [f"{name}, MNIST aug 12000" for name in ("plain CNN", "ours", "masked")]
    assert found["plain CNN, MNIST aug 12000"].changes["white"][-1] == pytest.approx(0.7)
    results[2]["robust"]["noise"]["changes"]["white"] = [1.0]
    (tmp_path / "2.seed0.json").write_text(json_by_line(results[2]))
    with pytest.raises(ValueError, match=r"2\.seed0\.json.*white"):
        read_noise([tmp_path])


def stronger_than_pgd(result):
    """The attacks that leave fewer right answers than PGD, which must have 50 steps and 5 starts."""
    robust = result["robust"]
    assert (robust["settings"]["steps"], robust["settings"]["restarts"]) == (50, 5)
    strong = robust["attacks"]["strong"]
    return [name for name in ("fgsm", "random_search") if strong[name] < strong["pgd"]]


def test_a_stronger_attack_is_noticed():
    assert stronger_than_pgd(robust_result(0.9)) == []
    assert stronger_than_pgd(robust_result(0.9, strong={"fgsm": 0.05})) == ["fgsm"]
    assert stronger_than_pgd(robust_result(0.9, strong={"pgd": 0.7})) == ["fgsm", "random_search"]


def test_on_every_network_of_the_study_pgd_is_at_least_as_strong_as_fgsm_and_random_search():
    results = Store(LAB / "results" / "robustness").results()
    if not results:
        pytest.skip("no result of recipes/robustness.toml is committed yet")
    found = {str(result["cell"]): stronger_than_pgd(result) for result in results}
    assert not any(found.values()), {cell: names for cell, names in found.items() if names}
