"""Cells whose images have masks: their images, scores, rotations and results."""

import copy
import json

import pytest
import torch
from torch import nn

from besselnet.data import IGNORED, ImageSet, Splits
from besselnet_lab.study.cells import expand
from besselnet_lab.study.estimate import measure
from besselnet_lab.study.images import ROOT_VARIABLE, CellImages, divide_images, load_images
from besselnet_lab.study.recipe import read_recipe
from besselnet_lab.study.rotation import mask_rotation_agreement
from besselnet_lab.study.store import Store
from besselnet_lab.study.train_cell import fill_cell, mask_scores
from study.mask_toys import discs, write_study

CLASSES = ("background", "object", "border")


class Threshold(nn.Module):
    """Class 1 where the image is bright, moved to the right by some pixels."""

    def __init__(self, classes: int = 2, shift: int = 0, slope: float = 0.0) -> None:
        super().__init__()
        self.classes, self.shift, self.slope = classes, shift, slope

    def forward(self, images):
        ramp = self.slope * torch.linspace(-1, 1, images.shape[3])
        bright = images[:, 0].roll(self.shift, 2) - 0.5 + ramp
        nothing = torch.full_like(bright, -9.0)
        return torch.stack([-bright, bright, nothing][: self.classes], 1)


def imageset(count=4, size=(24, 21), classes=2, seed=0):
    x, y = discs(count, size, seed)
    objects = torch.from_numpy(y.astype("int32")) if classes == 3 else None
    labels = torch.from_numpy((y > 0).astype("uint8"))
    return ImageSet(torch.from_numpy(x)[:, None], labels, CLASSES[:classes], None, objects)


def test_f1_is_of_the_class_that_is_not_background():
    rows = {
        name: {"dice": share, "iou": 0.5, "boundary_f1": 0.5, "pixels": 9}
        for name, share in (("object", 0.7), ("background", 0.9))
    }
    results = {"dice": 0.8, "iou": 0.5, "boundary_f1": 0.5, "classes": rows}
    assert mask_scores(results)["f1"] == 0.7
    assert "instances" not in mask_scores(results)
    results["objects"] = {"f1": 0.6}
    results["classes"]["border"] = rows["object"]
    assert mask_scores(results)["instances"] == {"f1": 0.6}
    assert "f1" not in mask_scores(results)


def test_masks_that_rotate_with_the_image_agree():
    found = mask_rotation_agreement(Threshold(), imageset())
    assert found["quarter_turns_identical"]
    assert found["quarter_turns"] == 1
    assert found["black_corners"] > 0.9
    assert found["foreground"]["black_corners"] > 0.9
    assert found["images"] == 4


def test_masks_that_do_not_rotate_with_the_image_disagree():
    found = mask_rotation_agreement(Threshold(slope=1.0), imageset(size=(24, 24)))
    assert not found["quarter_turns_identical"]
    assert found["quarter_turns_changed"] > 0.1
    assert found["quarter_turns"] < 0.9
    assert found["foreground"]["reflected_borders"] < found["reflected_borders"] < 0.9


def test_large_images_are_fewer(monkeypatch):
    monkeypatch.setattr("besselnet_lab.study.rotation._MOST_PIXELS", 2 * 24 * 21)
    assert mask_rotation_agreement(Threshold(), imageset(4))["images"] == 2


def draw(splits, **changes):
    return divide_images(splits, CellImages(**{"source": "discs", "train_images": 4, **changes}))


def test_a_fifth_of_the_training_part_judges_choices():
    train, test = imageset(20), imageset(20, seed=1)
    settings = {"protocol": "standard", "judge": "val", "train_images": 16}
    divided = [draw(Splits(train, None, test), **settings, seed=seed) for seed in range(2)]
    for found in divided:
        assert (len(found.train), len(found.test)) == (16, 4)
        assert torch.equal(found.test.images, divided[0].test.images)
        both = torch.cat([found.train.images, found.test.images])
        assert torch.equal(both.flatten(1).sort(0).values, train.images.flatten(1).sort(0).values)
    tested = draw(Splits(train, None, test), protocol="standard")
    assert (len(tested.train), tested.train.image_size) == (4, (24, 21))
    assert torch.equal(tested.test.labels, test.labels)


@pytest.mark.parametrize(
    "changes", [{"equal_classes": True}, {"classes_kept": ("object",)}, {"rotate": True}]
)
def test_what_only_classes_can_do_is_refused(changes):
    with pytest.raises(ValueError, match="must be unset for masks"):
        draw(Splits(imageset(20)), **changes)


def test_values_are_refused():
    images = ImageSet(torch.zeros(9, 1, 4, 4, dtype=torch.uint8), torch.zeros(9, 1), ("size",))
    with pytest.raises(ValueError, match="must be classes or masks"):
        draw(Splits(images))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """(cells, folder of their results) of the tiny study of masks."""
    folder = tmp_path_factory.mktemp("masks")
    cells = expand(read_recipe(write_study(folder)))
    store = Store(folder / "results")
    store.prepare()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ROOT_VARIABLE, str(folder))
        for cell in cells:
            fill_cell(store, cell, "tiny masks")
    return cells, store


def test_cells_with_masks_have_scores_and_agreement(finished):
    cells, store = finished
    for cell in cells:
        result = store.result(cell.key)
        store.check_settings(cell)
        scores, rotation = result["scores"], result["rotation"]
        assert 0 <= result["accuracy"] <= 1
        assert ("instances" in scores) == (cell.key.data_set == "Objects")
        assert ("f1" in scores) == (cell.key.data_set == "Discs")
        assert rotation["black_corners_by_angle"][0] == 1
        if cell.key.method == "bessel":
            assert rotation["quarter_turns_identical"]
            assert result["model"]["trained_quarter_turn_error"] < 1e-5
        assert result["seconds"]["training"] > 0
        # Mirrored copies for all methods, as the recipe says.
        augment = result["recommendation"]["images"]["augment"]
        assert ("reflect" in augment) == (cell.key.data_set == "Discs")


def test_options_of_the_source_and_the_own_size_of_the_images_come_through(finished, monkeypatch):
    cells, store = finished
    monkeypatch.setenv(ROOT_VARIABLE, str(store.folder.parent))
    whole, objects = load_images(cells[0].images), load_images(cells[2].images)
    assert whole.train.image_size == (24, 21)
    assert (whole.train.labels[:, :, 0] == IGNORED).all()
    assert objects.train.classes == CLASSES
    assert int(objects.test.instances.max()) == 2
    assert (len(objects.train), len(objects.test)) == (4, 3)


def test_a_step_with_masks_can_be_measured(finished, monkeypatch):
    monkeypatch.setattr("besselnet_lab.study.estimate._STEPS", 1)
    assert measure(finished[0][0], threads=1) > 0


@pytest.mark.parametrize(
    "place",
    [
        ("scores",),
        ("scores", "dice"),
        ("scores", "classes"),
        ("scores", "classes", "object", "iou"),
        ("scores", "instances"),
        ("scores", "instances", "f1"),
        ("rotation", "foreground"),
        ("rotation", "foreground", "black_corners"),
        ("rotation", "quarter_turns_changed"),
    ],
    ids=".".join,
)
@pytest.mark.parametrize("value", ["high", True, 1.5, [1]], ids=str)
def test_wrong_scores_are_one_line(finished, tmp_path, place, value):
    cells, store = finished
    result = copy.deepcopy(store.result(cells[2].key))
    table = result
    for name in place[:-1]:
        table = table[name]
    table[place[-1]] = value
    other = Store(tmp_path)
    path = other.result_path(cells[2].key)
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(result))
    with pytest.raises(ValueError, match=place[-1]) as error:
        other.result(cells[2].key)
    assert "\n" not in str(error.value)
