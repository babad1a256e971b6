"""The images of a cell: sizes, proportions, and what never meets."""

import json
from collections import Counter
from hashlib import sha256

import pytest
import torch

from besselnet.data import ImageSet, Provenance, Splits, list_data
from besselnet_lab.study.images import (
    ROOT_VARIABLE,
    CellImages,
    _load_whole,
    divide_images,
    load_images,
)
from study.toys import write_images

COUNT, CLASSES = 600, 3


def numbered(start, count, groups=None):
    """Images that can be told apart: their number is in their first two pixels."""
    number = torch.arange(start, start + count)
    images = torch.zeros(count, 1, 4, 4, dtype=torch.uint8)
    images[:, 0, 0, 0], images[:, 0, 0, 1] = number // 256, number % 256
    return ImageSet(images, number % CLASSES, tuple("abc"), groups)


def in_order(imageset):
    pixels = imageset.images[:, 0, 0, :2].long()
    return (256 * pixels[:, 0] + pixels[:, 1]).tolist()


def numbers(imageset):
    return set(in_order(imageset))


@pytest.fixture
def splits():
    return Splits(numbered(0, 200), None, numbered(200, COUNT - 200))


def draw(splits, **changes):
    settings = {"source": "numbers", "image_size": 4, "train_images": 30}
    divided = divide_images(splits, CellImages(**{**settings, **changes}))
    assert divided.val is None
    return divided.train, divided.test, divided.provenance.divided


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


@pytest.fixture
def three_parts():
    """Official parts: 300 to train, 60 to validate, 240 to test."""
    return Splits(numbered(0, 300), numbered(300, 60), numbered(360, 240))


@pytest.mark.parametrize(("judge", "official"), [("val", (300, 360)), ("test", (360, 600))])
def test_standard_judges_on_the_published_part(three_parts, judge, official):
    train, judged, _ = draw(three_parts, protocol="standard", judge=judge, train_images=300)
    assert numbers(train) == set(range(300))
    assert numbers(judged) == set(range(*official))
    train, judged, _ = draw(three_parts, protocol="standard", judge=judge, judge_images=12)
    assert numbers(train) < set(range(300))
    assert numbers(judged) < set(range(*official))
    assert len(judged) == 12


@pytest.fixture
def skewed():
    """Classes of 400, 180 and 20 images."""
    whole = numbered(0, COUNT)
    labels = torch.tensor([0] * 400 + [1] * 180 + [2] * 20)
    return Splits(ImageSet(whole.images, labels, whole.classes))


def test_equal_classes_take_what_a_small_class_has_and_leave_some_to_test(skewed):
    few, test, how = draw(skewed, train_images=30, equal_classes=True)
    many, fewer_left, _ = draw(skewed, train_images=300, equal_classes=True)
    assert few.class_counts().tolist() == [10, 10, 10]
    assert many.class_counts().tolist() == [100, 100, 16]
    assert numbers(few) < numbers(many)
    assert fewer_left.class_counts().min() > 0
    assert "classes equal" in how
    pool = numbers(draw(skewed, judge="val")[1])
    for trained, judged in ((few, test), (many, fewer_left)):
        assert not numbers(judged) & (numbers(trained) | pool)
    train, judged, _ = draw(skewed, train_images=300, equal_classes=True, judge="val")
    assert numbers(judged) == pool
    assert train.class_counts().tolist() == [100, 100, 16]


def test_equal_classes_need_an_image_of_each(skewed):
    with pytest.raises(ValueError, match="at least one per class"):
        draw(skewed, train_images=2, equal_classes=True)


def test_some_classes_are_kept_with_the_pool_of_all(skewed):
    settings = {"classes_kept": ("c", "a"), "train_images": 40}
    train, judged, _ = draw(skewed, **settings)
    assert train.classes == judged.classes == ("c", "a")
    assert len(train) + len(judged) == 420
    small = set(range(580, 600))
    for part in (train, judged):
        assert numbers(part.select((part.labels == 0).nonzero()[:, 0])) <= small
        assert not numbers(part.select((part.labels == 1).nonzero()[:, 0])) & small
    pool = numbers(draw(skewed, judge="val")[1])
    kept = numbers(draw(skewed, judge="val", **settings)[1])
    assert kept == pool - set(range(400, 580))
    with pytest.raises(ValueError, match="'d' is not one of the classes a, b, c"):
        draw(skewed, classes_kept=("d",))


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
        ({"train_images": 601}, "must be at most the 600"),
        ({"by_group": True}, "requires images with groups"),
        ({"protocol": "standard", "by_group": True}, "by_group must be false"),
    ],
)
def test_what_cannot_be_drawn_is_refused(splits, changes, said):
    with pytest.raises(ValueError, match=said):
        draw(splits, **changes)


def test_standard_needs_official_parts():
    with pytest.raises(ValueError, match="official"):
        draw(Splits(numbered(0, COUNT)), protocol="standard")


def test_divisions_are_those_of_the_committed_results():
    """Every protocol, judge and size: the images of a seed must stay those that results were made with."""
    generator = torch.Generator().manual_seed(7)
    count = 3000
    labels = torch.randint(7, (count,), generator=generator)
    groups = torch.randint(60, (count,), generator=generator)
    whole = ImageSet(numbered(0, count).images, labels, tuple("abcdefg"), groups)
    first, last = torch.arange(1000), torch.arange(1000, count)
    splits = Splits(whole.select(first), None, whole.select(last))
    found = {}
    for protocol in ("paper", "standard"):
        for judge in ("test", "val"):
            for judge_images in (None, 150):
                for by_group in (False,) if protocol == "standard" else (False, True):
                    for train_images in (77, 0.05):
                        for seed in (0, 3):
                            settings = {
                                "protocol": protocol,
                                "train_images": train_images,
                                "judge": judge,
                                "judge_images": judge_images,
                                "by_group": by_group,
                                "seed": seed,
                            }
                            train, judged, _ = draw(splits, **settings)
                            found[str(settings)] = [in_order(train), in_order(judged)]
    told = sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()
    assert told == "45b7a4ac5c1338b286d8fe3e2714f2dd36a3b47798ef5750b89cae4974c6cfa9"


def test_provenance_keeps_what_the_images_are(splits):
    provenance = Provenance("digits", recreated=True, divided="0.8/0.1/0.1, seed 0")
    splits = Splits(splits.train, None, splits.test, provenance)
    images = CellImages(source="numbers", image_size=4, train_images=30)
    found = divide_images(splits, images).provenance
    assert found.recreated
    assert str(found).startswith("digits; protocol paper, images divided with seed 0: 30 to train")


def load(**options):
    settings = {"source": "npz", "file": "tiny.npz", "image_size": 28, "train_images": 8}
    return load_images(CellImages(**settings, **options))


def test_judged_images_are_rotated_and_stay_so(tmp_path, monkeypatch):
    write_images(tmp_path / "tiny.npz")
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    plain, rotated, again = load(), load(rotate=True), load(rotate=True)
    assert torch.equal(rotated.test.images, again.test.images)
    assert torch.equal(rotated.test.labels, plain.test.labels)
    assert torch.equal(rotated.train.images, plain.train.images)
    assert not torch.equal(rotated.test.images, plain.test.images)
    assert "rotated" in str(rotated.provenance)
    assert Counter(str(plain.provenance))[";"] == 1
    # A corner of a rotated image has come from outside the frame.
    assert (rotated.test.images[..., 0, 0] == 0).float().mean() > 0.5


def test_cells_of_one_data_set_load_it_once(tmp_path, monkeypatch):
    write_images(tmp_path / "tiny.npz")
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    _load_whole.cache_clear()
    for seed in range(3):
        load(seed=seed, rotate=seed == 2)
    assert (_load_whole.cache_info().misses, _load_whole.cache_info().hits) == (1, 2)


def test_a_file_needs_a_data_root(monkeypatch):
    monkeypatch.delenv(ROOT_VARIABLE, raising=False)
    with pytest.raises(ValueError, match="--data-root"):
        load()


def test_a_study_adds_no_data_set():
    assert "study" not in list_data()
