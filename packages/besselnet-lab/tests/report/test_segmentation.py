"""Results with masks in a report, alone and beside results with classes."""

import statistics
from html.parser import HTMLParser

import pytest

from besselnet_lab.cli import main
from besselnet_lab.report import write_report
from besselnet_lab.report.collect import ColumnKey
from besselnet_lab.report.segmentation import collect_masks, draw_masks, mask_tables
from besselnet_lab.study.store import Store, json_by_line
from study.toys import make_result

VESSELS, NUCLEI = ColumnKey("Vessels", "aug", "16"), ColumnKey("Nuclei", "aug", "16")


def mask_result(dice, *, method="ours", data_set="Vessels", changed=0.0, seed=0, **changes):
    """What a finished cell with masks leaves; nuclei have three classes and objects."""
    rotation = {
        "black_corners": 0.97,
        "reflected_borders": 0.98,
        "quarter_turns": 1.0,
        "foreground": {"black_corners": 0.9, "reflected_borders": 0.91},
        "quarter_turns_changed": changed,
        "quarter_turns_identical": changed == 0,
    }
    result = make_result(
        0.95,
        data_set=data_set,
        augmentation="aug",
        regime="16",
        method=method,
        group="",
        seed=seed,
        model="besselnet_unet",
        rotation=rotation,
        **changes,
    )
    scores = {"dice": (dice + 1) / 2, "iou": 0.5, "boundary_f1": 0.6, "classes": {}, "f1": dice}
    if data_set == "Nuclei":
        found = {"f1": dice - 0.1, "precision": 0.5, "recall": 0.5, "panoptic_quality": 0.4}
        scores = {**scores, "dice": dice, "f1": None, "instances": found}
    return {**result, "scores": scores}


@pytest.fixture
def results():
    return [
        *(mask_result(d, seed=s) for s, d in enumerate((0.80, 0.81, 0.83))),
        mask_result(0.82, method="plain", changed=0.25, notes=("a note",)),
        mask_result(0.70, data_set="Nuclei"),
        mask_result(0.75, data_set="Nuclei", method="plain"),
    ]


def cells(table, row):
    return dict(zip(table.head, table.lines[row].cells))


def test_scores_are_means_and_deviations_over_the_seeds(results):
    tables = mask_tables(collect_masks(results))
    assert list(tables) == [VESSELS, NUCLEI]
    plain, ours = (cells(tables[VESSELS], row) for row in (0, 1))
    mean, std = 100 * statistics.fmean((0.80, 0.81, 0.83)), statistics.stdev((80, 81, 83))
    assert (plain["method"], plain["F1"], plain["runs"]) == ("plain", "82.00", "1")
    assert (ours["F1"], ours["runs"]) == (f"{mean:.2f} ± {std:.2f}", "3")
    assert (ours["quarter turns"], plain["quarter turns"]) == ("identical", "25% change")
    assert ours["agreement"] == "97.00 ± 0.00"
    assert ours["agreement without background"] == "90.00 ± 0.00"
    assert "instance F1" not in ours
    assert "mean Dice" not in ours


def test_objects_and_the_mean_of_several_classes_have_columns_of_their_own(results):
    best = cells(mask_tables(collect_masks(results))[NUCLEI], 0)
    assert (best["method"], best["mean Dice"], best["instance F1"]) == ("plain", "75.00", "65.00")
    assert "F1" not in best


def test_the_picture_has_a_panel_for_each_column_and_a_mark_for_each_method(results):
    (figure,) = draw_masks(collect_masks(results)).values()
    assert [len(axes.containers) for axes in figure.axes] == [2, 2]
    assert [axes.get_xlabel() for axes in figure.axes] == ["F1, %", "mean Dice, %"]
    assert draw_masks([]) == {}


class Tables(HTMLParser):
    def __init__(self):
        super().__init__()
        self.names, self.headings, self._tag = [], [], ""

    def handle_starttag(self, tag, attrs):
        self._tag = tag
        if tag == "table":
            self.names.append(dict(attrs)["id"])

    def handle_data(self, data):
        if self._tag == "h2":
            self.headings.append(data.strip())


def read_page(path):
    page = Tables()
    page.feed(path.read_text())
    return page


def test_masks_alone_leave_the_tables_of_the_paper_out(results, tmp_path):
    markdown, html = write_report(results, tmp_path, "masks")
    text = markdown.read_text()
    assert "This report has 6 trainings." in text
    assert "- Vessels aug 16: a note." in text
    assert "![Dice by method](figures/dice-by-method.svg)" in text
    assert {p.name for p in (tmp_path / "figures").iterdir()} == {
        "dice-by-method.svg",
        "dice-by-method.png",
    }
    assert read_page(html).names == ["masks-0", "masks-1"]


def test_masks_and_classes_share_a_report(results, tmp_path):
    classes = [make_result(0.7, data_set="My cells", seed=seed) for seed in range(2)]
    alone, _ = write_report(classes, tmp_path / "classes", "both")
    both, html = write_report([*results, *classes], tmp_path / "both", "both")
    assert "This report has 8 trainings." in both.read_text()
    # All that the report without masks has, but for the number of trainings.
    lines = set(both.read_text().splitlines())
    assert len(set(alone.read_text().splitlines()) - lines) == 1
    page = read_page(html)
    assert {"masks-0", "masks-1", "table0-0", "cells"} <= set(page.names)


def test_the_command_reports_stored_masks(results, tmp_path, capsys):
    for number, result in enumerate(results):
        path = tmp_path / "results" / "column" / f"{number}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json_by_line(result))
    assert len(Store(tmp_path / "results").results()) == 6
    with pytest.raises(SystemExit) as end:
        main(["study", "report", str(tmp_path / "results"), "--out", str(tmp_path / "report")])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("6 results")
    assert (tmp_path / "report" / "figures" / "dice-by-method.png").exists()


def test_the_same_cell_twice_is_refused(results):
    with pytest.raises(ValueError, match="two results for Vessels aug 16"):
        collect_masks([*results, results[0]])
