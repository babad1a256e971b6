"""Single objects: found, matched and measured."""

import sys

import numpy as np
import pytest
from skimage import measure

from besselnet.masks import InstanceScores, label_instances, match_instances, measure_instances


def discs(*places, size=60):
    """(row, column, radius) each -> their numbers from 1."""
    y, x = np.mgrid[:size, :size]
    found = np.zeros((size, size), np.int32)
    for number, (row, column, radius) in enumerate(places, start=1):
        found[np.hypot(y - row, x - column) <= radius] = number
    return found


APART = ((15, 15, 9), (15, 42, 8), (44, 30, 12))


def test_objects_apart_are_found_as_they_are():
    truth = discs(*APART)
    for method in ("components", "watershed"):
        found = label_instances(truth > 0, method=method)
        np.testing.assert_array_equal(found, truth)
    scores = match_instances(found, truth)
    assert (scores.f1, scores.precision, scores.recall, scores.panoptic_quality) == (1, 1, 1, 1)


TOUCHING = ((30, 18, 12), (30, 40, 12))


def test_a_learned_border_separates_objects_that_touch_and_is_given_back():
    truth = discs(*TOUCHING)
    mask = (truth > 0).astype(np.uint8)
    mask[:, 27:31] = 2 * mask[:, 27:31]
    assert label_instances(mask, background=(0, 2)).max() == 2
    found = label_instances(mask, border=2)
    # All pixels, and no object far from the cut has another number.
    np.testing.assert_array_equal(found > 0, truth > 0)
    np.testing.assert_array_equal(found[:, :27], truth[:, :27])
    np.testing.assert_array_equal(found[:, 31:], truth[:, 31:])


def test_a_border_without_an_object_is_one():
    mask = np.zeros((20, 20), np.uint8)
    mask[2:5, 2:5] = 1
    mask[12:15, 12:15] = 2
    found = label_instances(mask, border=2)
    assert found.max() == 2
    assert (found[12:15, 12:15] == 2).all()


def test_watershed_divides_objects_that_touch():
    truth = discs(*TOUCHING)
    assert label_instances(truth > 0).max() == 1
    found = label_instances(truth > 0, method="watershed")
    assert match_instances(found, truth, threshold=0.9).f1 == 1


def test_probabilities_count_by_the_most_probable_class_and_small_objects_are_dropped():
    truth = discs(*APART)
    likely = np.stack([truth == 0, truth == 1, truth > 1]) * 0.8 + 0.1
    # Two classes: components are those of one class.
    found = label_instances(likely, least_area=250)
    assert found.max() == 2
    assert not found[truth == 2].any()


def test_without_scikit_image_one_line_names_the_extra(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "skimage"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "skimage", None)
    line = r"^method='watershed' needs scikit-image: pip install 'besselnet\[masks\]'$"
    with pytest.raises(ValueError, match=line):
        label_instances(np.ones((4, 4), int), method="watershed")
    assert label_instances(np.ones((4, 4), int)).max() == 1


def test_matches_of_known_maps():
    truth = np.zeros((4, 40), int)
    prediction = np.zeros((4, 40), int)
    truth[:, 0:10], prediction[:, 0:10] = 1, 7  # the same
    truth[:, 10:18], prediction[:, 12:20] = 2, 8  # 6 of 10
    truth[:, 22:28], prediction[:, 25:31] = 3, 9  # 3 of 9: no pair
    truth[:, 36:40] = 4
    scores = match_instances(prediction, truth)
    assert (scores.matched, scores.predicted, scores.true) == (2, 3, 4)
    assert scores.precision == 2 / 3
    assert scores.recall == 2 / 4
    assert scores.f1 == 4 / 7
    assert scores.segmentation_quality == pytest.approx((1 + 0.6) / 2)
    assert scores.panoptic_quality == scores.segmentation_quality * scores.f1
    # As by its definition: the IoU of the pairs, over the pairs and half of what has no pair.
    assert scores.panoptic_quality == pytest.approx(1.6 / (2 + (1 + 2) / 2))
    hidden = np.zeros(truth.shape, bool)
    hidden[:, 20:] = True
    assert match_instances(prediction, truth, ignored=hidden).f1 == 1
    assert match_instances(prediction, truth, threshold=0.6).matched == 1


def test_scores_of_images_add_up_and_nothing_has_no_score():
    truth = discs(*APART)
    empty = np.zeros_like(truth)
    total = match_instances(truth, truth) + match_instances(empty, truth)
    assert (total.precision, total.recall) == (1, 0.5)
    assert total.f1 == pytest.approx(2 / 3)
    nothing = match_instances(empty, empty)
    assert nothing == InstanceScores()
    assert nothing.to_dict()["f1"] is None
    assert match_instances(truth, empty).panoptic_quality == 0


def test_measures_are_those_of_scikit_image():
    y, x = np.mgrid[:60, :60]
    ellipse = ((x - 30) * 0.8 + (y - 20) * 0.6) ** 2 / 256 + (
        (x - 30) * 0.6 - (y - 20) * 0.8
    ) ** 2 / 49
    instances = np.where(ellipse < 1, 2, 0).astype(np.int32)
    instances[50:55, 40:52] = 5
    rows = measure_instances(instances)
    assert [row["label"] for row in rows] == [2, 5]
    for row, known in zip(rows, measure.regionprops(instances), strict=True):
        assert row["area"] == known.area
        assert (row["row"], row["column"]) == pytest.approx(known.centroid)
        assert (row["top"], row["left"], row["bottom"], row["right"]) == known.bbox
        assert row["diameter"] == pytest.approx(known.equivalent_diameter_area)
        assert row["major_axis"] == pytest.approx(known.axis_major_length)
        assert row["minor_axis"] == pytest.approx(known.axis_minor_length)
        assert row["eccentricity"] == pytest.approx(known.eccentricity)
    # The long axis of the first goes down to the right: clockwise from the horizontal.
    assert rows[0]["orientation"] == pytest.approx(-np.degrees(np.arctan2(0.6, 0.8)), abs=2)
    assert rows[1]["orientation"] == 0


def test_classes_and_probabilities_are_in_the_measures():
    instances = discs(*APART)
    mask = np.where(instances == 2, 2, instances > 0).astype(np.uint8)
    sure = np.where(instances == 1, 0.25, 1.0)
    rows = measure_instances(
        instances, mask=mask, classes=("background", "cell", "dust"), probabilities=sure
    )
    assert [row["class"] for row in rows] == ["cell", "dust", "cell"]
    assert [row["probability"] for row in rows] == [0.25, 1, 1]


def test_a_border_joins_the_object_that_it_touches_though_another_is_nearer():
    mask = np.zeros((3, 14), np.uint8)
    mask[0, :3], mask[0, 3:12] = 1, 2
    mask[2, 9:14] = 1
    found = label_instances(mask, border=2)
    assert (found[0, :12] == 1).all()
    assert (found[2, 9:] == 2).all()
    assert found.max() == 2
