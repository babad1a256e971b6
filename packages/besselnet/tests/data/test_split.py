"""Stratified and group-wise division."""

import pytest
import torch

from besselnet.data import (
    IGNORED,
    ImageSet,
    Provenance,
    Splits,
    divide,
    fold_splits,
    split_indices,
    stratified_split,
)


def labelled(counts, groups=None):
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    # The pixel is the index, so that parts can be traced back.
    images = torch.arange(len(labels)).float()[:, None, None, None] / max(1, len(labels))
    return ImageSet(images, labels, tuple(map(str, range(len(counts)))), groups)


def indices(part, whole):
    return set((part.images.flatten() * len(whole)).round().long().tolist())


def test_parts_are_disjoint_exact_and_proportional():
    whole = labelled([500, 300, 200])
    parts = stratified_split(whole, (0.7, 0.2, 0.1), seed=3)
    assert [len(part) for part in parts] == [700, 200, 100]
    assert parts[0].class_counts().tolist() == [350, 210, 140]
    assert parts[2].class_counts().tolist() == [50, 30, 20]
    found = [indices(part, whole) for part in parts]
    assert set.union(*found) == set(range(1000))
    assert sum(map(len, found)) == 1000


def test_uneven_counts_are_met_up_to_one():
    whole = labelled([101, 37, 5])
    train, rest = stratified_split(whole, [50, 90], seed=0)
    assert (len(train), len(rest)) == (50, 90)
    ideal = 50 * torch.tensor([101, 37, 5]) / 143
    assert ((train.class_counts() - ideal).abs() < 1).all()
    assert not indices(train, whole) & indices(rest, whole)


def test_a_seed_decides_the_split():
    whole = labelled([50, 50])
    first, again, other = (stratified_split(whole, [20], seed=s)[0] for s in (1, 1, 2))
    assert torch.equal(first.images, again.images)
    assert not torch.equal(first.images, other.images)


@pytest.mark.parametrize(
    ("counts", "group_size", "sizes", "seed", "expected"),
    [
        (
            [9, 6, 5],
            None,
            (0.5, 0.25),
            3,
            [[1, 2, 3, 6, 8, 10, 12, 13, 16, 18], [0, 4, 11, 14, 15]],
        ),
        (
            *([8, 8, 8], 3, (12, 6), 1),
            [[0, 1, 2, 12, 13, 14, 15, 16, 17], [3, 4, 5, 9, 10, 11, 18, 19, 20]],
        ),
    ],
)
def test_the_parts_of_a_seed_never_change(counts, group_size, sizes, seed, expected):
    labels = labelled(counts).labels
    groups = None if group_size is None else torch.arange(len(labels)) // group_size
    found = split_indices(labels, sizes, seed, groups)
    assert [part.tolist() for part in found] == expected
    whole = labelled(counts, groups)
    parts = stratified_split(whole, sizes, seed, by_group=groups is not None)
    assert [indices(part, whole) for part in parts] == [set(part) for part in expected]


def test_groups_stay_together_and_classes_balanced():
    generator = torch.Generator().manual_seed(0)
    groups = torch.randint(0, 60, (1200,), generator=generator)
    whole = labelled([800, 400], groups)
    parts = stratified_split(whole, (0.8, 0.1, 0.1), seed=0, by_group=True)
    held = [set(part.groups.tolist()) for part in parts]
    assert sum(map(len, held)) == len(set.union(*held))
    assert sum(map(len, parts)) == 1200
    # 60 groups of about 20 images: no part can be met closer than half a group, and few are worse.
    for part, share in zip(parts, (0.8, 0.1, 0.1)):
        assert abs(len(part) - share * 1200) <= 20
        assert abs(int(part.class_counts()[0]) - share * 800) <= 20


def test_groups_left_over_are_in_no_part():
    whole = labelled([50, 50], torch.arange(100) // 5)
    train, test = stratified_split(whole, (0.3, 0.2), seed=0, by_group=True)
    assert not set(train.groups.tolist()) & set(test.groups.tolist())
    assert (len(train), len(test)) == (30, 20)


def test_divide_keeps_groups_together_unless_told_otherwise():
    whole = labelled([60, 60], torch.arange(120) // 4)
    splits = divide(whole, "cells", (0.5, 0.25, 0.25), seed=0)
    assert not set(splits.train.groups.tolist()) & set(splits.test.groups.tolist())
    assert splits.provenance == Provenance("cells", divided="groups split 0.5/0.25/0.25, seed 0")
    assert str(splits.provenance) == "cells; groups split 0.5/0.25/0.25, seed 0"
    leaky = divide(whole, "cells", (0.5, 0.25, 0.25), seed=0, by_group=False)
    assert set(leaky.train.groups.tolist()) & set(leaky.test.groups.tolist())


@pytest.mark.parametrize(
    ("sizes", "options", "message"),
    [
        ((), {}, "at least one part"),
        ((0.5, 0.6), {}, "at most 1"),
        ((5, 6), {}, "at most 10 images"),
        ((0.5, 3), {}, "all int or all float"),
        ((0.5, -0.1), {}, "positive"),
        ((0.9, 0.01), {}, "would be empty"),
        ((0.5,), {"by_group": True}, "without groups"),
    ],
)
def test_impossible_sizes_are_refused(sizes, options, message):
    with pytest.raises(ValueError, match=message):
        stratified_split(labelled([5, 5]), sizes, seed=0, **options)


def test_too_few_groups_are_refused():
    whole = labelled([10, 10], torch.zeros(20, dtype=torch.int64))
    with pytest.raises(ValueError, match="too few groups"):
        stratified_split(whole, (0.5, 0.5), seed=0, by_group=True)


def test_image_sets_refuse_what_does_not_fit():
    images, labels = torch.zeros(2, 1, 4, 4), torch.tensor([0, 1])
    with pytest.raises(ValueError, match="label out of range: image 1 has label 1"):
        ImageSet(images, labels, ("one",))
    with pytest.raises(ValueError, match=r"in \[0, 1\]"):
        ImageSet(images + 2, labels, ("a", "b"))
    with pytest.raises(ValueError, match=r"in \[0, 1\]"):
        ImageSet(images * torch.nan, labels, ("a", "b"))
    with pytest.raises(ValueError, match="uint8 or float32"):
        ImageSet(images.double(), labels, ("a", "b"))
    with pytest.raises(ValueError, match="one per image"):
        ImageSet(images, labels[:1], ("a", "b"))
    small = ImageSet(images[..., :2], labels, ("a", "b"))
    with pytest.raises(ValueError, match="the same shape"):
        Splits(ImageSet(images, labels, ("a", "b")), small)


def test_a_data_loader_takes_an_image_set():
    images = torch.randint(0, 256, (7, 3, 4, 5), dtype=torch.uint8)
    dataset = ImageSet(images, torch.arange(7) % 2, ("a", "b"))
    assert isinstance(dataset, torch.utils.data.Dataset)
    image, label = dataset[3]
    assert image.dtype == torch.float32
    assert torch.equal(image, images[3].float() / 255)
    assert type(label) is int
    assert label == 1
    loader = torch.utils.data.DataLoader(dataset, batch_size=4)
    batches = [(*batch,) for batch in loader]
    assert [tuple(x.shape) for x, _ in batches] == [(4, 3, 4, 5), (3, 3, 4, 5)]
    assert torch.equal(torch.cat([y for _, y in batches]), dataset.labels)
    assert len(list(dataset)) == 7


def test_items_of_a_float_set_are_not_scaled():
    images = torch.rand(2, 1, 3, 3)
    assert torch.equal(ImageSet(images, torch.tensor([0, 1]), ("a", "b"))[1][0], images[1])


def test_merging_undoes_splitting():
    whole = labelled([6, 6], torch.arange(12) // 2)
    splits = divide(whole, "cells", (0.5, 0.25, 0.25), seed=0)
    merged = splits.merged()
    assert indices(merged, whole) == set(range(12))
    assert merged.groups is not None


@pytest.mark.parametrize("val_share", [0.0, 0.2])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("folds", [2, 5])
def test_folds_are_disjoint_and_complete(folds, grouped, val_share):
    generator = torch.Generator().manual_seed(0)
    groups = torch.randint(0, 40, (203,), generator=generator) if grouped else None
    whole = labelled([101, 62, 40], groups)
    found = fold_splits(whole, folds, 3, val_share=val_share)
    assert len(found) == folds
    tested = [indices(splits.test, whole) for splits in found]
    assert sum(map(len, tested)) == 203
    assert set.union(*tested) == set(range(203))
    for splits in found:
        parts = splits.parts()
        assert set(parts) == {"train", "test", *(["val"] if val_share else [])}
        held = [indices(part, whole) for part in parts.values()]
        assert sum(map(len, held)) == 203
        assert set.union(*held) == set(range(203))
        if grouped:
            together = [set(part.groups.tolist()) for part in parts.values()]
            assert sum(map(len, together)) == len(set.union(*together))
        else:
            ideal = whole.class_counts() / folds
            assert ((splits.test.class_counts() - ideal).abs() <= 1.5).all()


def test_a_seed_decides_the_folds_and_groups_may_be_divided():
    whole = labelled([30, 30], torch.arange(60) // 6)
    first, again, other = (fold_splits(whole, 3, seed) for seed in (1, 1, 2))
    assert torch.equal(first[1].test.images, again[1].test.images)
    assert not torch.equal(first[1].test.images, other[1].test.images)
    leaky = fold_splits(whole, 3, 1, by_group=False)[0]
    assert set(leaky.train.groups.tolist()) & set(leaky.test.groups.tolist())
    assert len({str(splits.provenance) for splits in first}) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"folds": 1}, "folds=1"),
        ({"folds": 11}, "folds=11"),
        ({"folds": 2, "val_share": 1.0}, "val_share=1.0"),
        ({"folds": 2, "by_group": True}, "without groups"),
    ],
)
def test_impossible_folds_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        fold_splits(labelled([5, 5]), seed=0, **options)


def presence(labels, kind):
    """An image set whose images have these labels (N, K), as masks of a row or as several labels."""
    names = tuple("abcd"[: labels.shape[1]])
    if kind == "multilabel":
        return ImageSet(torch.zeros(len(labels), 1, 1, 1, dtype=torch.uint8), labels, names)
    masks = torch.where(labels, torch.arange(labels.shape[1]), IGNORED).to(torch.uint8)[:, None]
    return ImageSet(torch.zeros(len(labels), 1, *masks.shape[1:], dtype=torch.uint8), masks, names)


@pytest.mark.parametrize("kind", ["segment", "multilabel"])
@pytest.mark.parametrize("seed", range(3))
def test_rare_classes_of_masks_and_of_several_labels_are_in_every_part(kind, seed):
    labels = torch.zeros(100, 3, dtype=torch.bool)
    labels[:, 0] = True
    labels[:50, 1] = True
    labels[45:55, 2] = True
    parts = stratified_split(presence(labels, kind), (0.6, 0.2, 0.2), seed)
    has = torch.stack([part.class_counts() for part in parts])
    assert has[:, 2].tolist() == [6, 2, 2]
    assert has[:, 0].tolist() == [60, 20, 20]
    folds = fold_splits(presence(labels, kind), 5, seed)
    assert [int(fold.test.class_counts()[2]) for fold in folds] == [2] * 5


def test_images_without_any_label_are_divided_too():
    labels = torch.zeros(20, 2, dtype=torch.bool)
    labels[:10, 0] = True
    train, test = stratified_split(presence(labels, "multilabel"), (0.5, 0.5), 0)
    assert train.class_counts().tolist() == test.class_counts().tolist() == [5, 0]


def test_values_are_divided_at_random_and_by_group():
    images = torch.zeros(40, 1, 2, 2, dtype=torch.uint8)
    values = ImageSet(images, torch.arange(40.0)[:, None], ("v",), torch.arange(40) // 4)
    parts = stratified_split(values, (0.5, 0.25, 0.25), seed=0)
    assert [len(part) for part in parts] == [20, 10, 10]
    assert sorted(torch.cat([part.labels for part in parts])[:, 0].tolist()) == list(range(40))
    groups = [set(p.groups.tolist()) for p in stratified_split(values, (0.5, 0.5), 0, True)]
    assert not groups[0] & groups[1]
    other = stratified_split(values, (0.5, 0.25, 0.25), seed=1)[0]
    assert not torch.equal(parts[0].labels, other.labels)
