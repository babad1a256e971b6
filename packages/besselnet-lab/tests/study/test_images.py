"""The images of a cell: sizes, proportions, and what never meets."""

from collections import Counter

import pytest
import torch

from besselnet.data import ImageSet, Splits, data_source, list_data, load_data
from besselnet_lab.study.images import ROOT_VARIABLE, cell_images
from study.toys import write_images

COUNT, CLASSES = 600, 3


def numbered(start, count, groups=None):
    """Images that can be told apart: their number is in their first two pixels."""
    number = torch.arange(start, start + count)
    images = torch.zeros(count, 1, 4, 4, dtype=torch.uint8)
    images[:, 0, 0, 0], images[:, 0, 0, 1] = number // 256, number % 256
    return ImageSet(images, number % CLASSES, tuple("abc"), groups)


def numbers(imageset):
    pixels = imageset.images[:, 0, 0, :2].long()
    return set((256 * pixels[:, 0] + pixels[:, 1]).tolist())


@pytest.fixture
def splits():
    return Splits(numbered(0, 200), None, numbered(200, COUNT - 200))


def draw(splits, **changes):
    settings = {
        "protocol": "paper",
        "train_images": 30,
        "judge": "test",
        "judge_images": None,
        "by_group": False,
        "seed": 0,
    }
    return cell_images(splits, **{**settings, **changes})


def test_the_paper_trains_on_some_and_tests_on_all_the_others(splits):
    train, test, how = draw(splits)
    assert numbers(train) | numbers(test) == set(range(COUNT))
    assert not numbers(train) & numbers(test)
    assert train.class_counts().tolist() == [10, 10, 10]
    assert "30 to train, 570 test images judged" in how


def test_a_share_is_of_all_images_and_another_seed_draws_others(splits):
    first, *_ = draw(splits, train_images=0.1)
    second, *_ = draw(splits, train_images=0.1, seed=1)
    assert len(first) == len(second) == 60
    assert numbers(first) != numbers(second)
    assert numbers(first) == numbers(draw(splits, train_images=0.1)[0])


def test_thinned_tests_never_meet_the_images_that_choices_were_judged_on(splits):
    pools = [numbers(draw(splits, judge="val", seed=seed)[1]) for seed in range(3)]
    assert pools[0] == pools[1] == pools[2]
    assert len(pools[0]) == COUNT // 5
    for seed in range(3):
        assert not pools[0] & numbers(draw(splits, judge="val", seed=seed)[0])
        train, test, how = draw(splits, judge_images=100, seed=seed)
        assert len(test) == 100
        assert "100 (of" in how
        assert not numbers(test) & (pools[0] | numbers(train))
        assert max(test.class_counts()) - min(test.class_counts()) <= 1


def test_standard_keeps_the_published_parts(splits):
    train, test, _ = draw(splits, protocol="standard", train_images=200)
    assert (numbers(train), numbers(test)) == (set(range(200)), set(range(200, COUNT)))
    train, judged, _ = draw(splits, protocol="standard", judge="val")
    assert numbers(train) | numbers(judged) < set(range(200))
    assert not numbers(train) & numbers(judged)


def test_whole_groups_stay_on_one_side():
    groups = torch.arange(COUNT) // 20
    splits = Splits(numbered(0, COUNT, groups))
    for judge in ("test", "val"):
        train, judged, how = draw(splits, by_group=True, judge=judge)
        assert len(train) == 30
        assert not set(train.groups.tolist()) & set(judged.groups.tolist())
        assert "whole groups" in how
    pool = draw(splits, by_group=True, judge="val")[1]
    for seed in range(3):
        _, test, _ = draw(splits, by_group=True, seed=seed)
        assert not set(test.groups.tolist()) & set(pool.groups.tolist())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"train_images": 601}, "there are 600 to draw from"),
        ({"by_group": True}, "these have none"),
        ({"protocol": "standard", "by_group": True}, "by_group must be false"),
    ],
)
def test_what_cannot_be_drawn_is_refused(splits, changes, said):
    with pytest.raises(ValueError, match=said):
        draw(splits, **changes)


def test_standard_needs_official_parts():
    with pytest.raises(ValueError, match="official"):
        draw(Splits(numbered(0, COUNT)), protocol="standard")


def load(seed=0, **options):
    settings = {"base": "npz", "file": "tiny.npz", "train_images": 8, **options}
    return load_data("study", image_size=28, seed=seed, **settings)


def test_judged_images_are_turned_and_stay_so(tmp_path, monkeypatch):
    write_images(tmp_path / "tiny.npz")
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    plain, turned, again = load(), load(turn=True), load(turn=True)
    assert torch.equal(turned.test.images, again.test.images)
    assert torch.equal(turned.test.labels, plain.test.labels)
    assert torch.equal(turned.train.images, plain.train.images)
    assert not torch.equal(turned.test.images, plain.test.images)
    assert "turned" in turned.source
    assert Counter(plain.source)[";"] == 1
    # A corner of a turned image has come from outside the frame.
    assert (turned.test.images[..., 0, 0] == 0).float().mean() > 0.5


def test_a_file_needs_a_data_root(monkeypatch):
    monkeypatch.delenv(ROOT_VARIABLE, raising=False)
    with pytest.raises(ValueError, match="--data-root"):
        load()


def test_the_images_of_cells_are_not_offered_to_users():
    assert "study" not in list_data()
    assert data_source("study").name == "study"
