"""Batches are a pure function of (seed, epoch, index), whoever asks and in whatever order."""

import pytest
import torch

from besselnet.data import Batches, Compose, ImageSet, Reflect, Rotate

AUGMENT = Compose([Rotate(), Reflect()])


@pytest.fixture
def digits():
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (50, 1, 8, 8), generator=generator, dtype=torch.uint8)
    return ImageSet(images, torch.arange(50) % 5, tuple("abcde"))


def test_every_image_once_as_floats(digits):
    batches = Batches(digits, 16, shuffle=True, seed=1)
    images, labels = map(torch.cat, zip(*batches))
    assert len(batches) == 4
    assert images.dtype == torch.float32
    keys = (images * 255).round().to(torch.uint8).flatten(1)
    original = digits.images.flatten(1)
    place = [int((original == key).all(1).nonzero()) for key in keys]
    assert sorted(place) == list(range(50))
    assert place != list(range(50))
    assert torch.equal(labels, digits.labels[place])


def test_without_shuffling_the_order_is_kept(digits):
    labels = torch.cat([y for _, y in Batches(digits, 7)])
    assert torch.equal(labels, digits.labels)


def test_a_batch_does_not_depend_on_what_was_asked_before(digits):
    batches = Batches(digits, 16, shuffle=True, seed=1, augment=AUGMENT)
    batches.set_epoch(3)
    in_order = list(batches)
    fresh = Batches(digits, 16, shuffle=True, seed=1, augment=AUGMENT)
    fresh.set_epoch(7)
    _ = fresh[0]
    torch.manual_seed(123)
    fresh.set_epoch(3)
    for index in (2, 0, 3, 1):
        for expected, found in zip(in_order[index], fresh[index]):
            assert torch.equal(expected, found)


def test_epochs_and_seeds_differ(digits):
    batches = Batches(digits, 50, shuffle=True, seed=1, augment=AUGMENT)
    first = batches[0][0]
    batches.set_epoch(1)
    assert not torch.equal(first, batches[0][0])
    assert not torch.equal(first, Batches(digits, 50, shuffle=True, seed=2)[0][0])


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_processes_share_the_batch_of_one(digits, world_size):
    # 50 images in batches of 18: the last one has 14, which 3 processes cannot share evenly.
    options = {"shuffle": True, "seed": 4, "augment": AUGMENT}
    alone = Batches(digits, 18, **options)
    ranks = [
        Batches(digits, 18, rank=rank, world_size=world_size, **options)
        for rank in range(world_size)
    ]
    assert {len(batches) for batches in ranks} == {len(alone)}
    for index, (images, labels) in enumerate(alone):
        for rank, batches in enumerate(ranks):
            share, share_labels = batches[index]
            # Places in the batch change the vector path of the same arithmetic: rounding only.
            torch.testing.assert_close(share, images[rank::world_size], atol=1e-5, rtol=0)
            assert torch.equal(share_labels, labels[rank::world_size])


def test_a_last_batch_may_be_too_small_for_all(digits):
    options = {"shuffle": True, "augment": AUGMENT, "world_size": 7}
    *_, last = (Batches(digits, 7, rank=rank, **options)[7] for rank in range(7))
    assert [len(Batches(digits, 7, rank=rank, **options)[7][1]) for rank in range(7)] == [1] + [
        0
    ] * 6
    assert last[0].shape == (0, *digits.images.shape[1:])


@pytest.mark.parametrize(("rank", "world_size"), [(0, 1), (1, 3)])
def test_the_indices_of_a_batch_are_its_images(digits, rank, world_size):
    batches = Batches(digits, 18, shuffle=True, seed=4, rank=rank, world_size=world_size)
    batches.set_epoch(2)
    for index, (images, labels) in enumerate(batches):
        chosen = batches.indices(index)
        assert torch.equal(labels, digits.labels[chosen])
        assert torch.equal(images, digits.images[chosen].float() / 255)
    with pytest.raises(IndexError):
        batches.indices(3)


def test_drop_last_drops_the_rest(digits):
    batches = Batches(digits, 16, drop_last=True)
    assert [len(y) for _, y in batches] == [16, 16, 16]
    with pytest.raises(IndexError):
        batches[3]


def skewed(counts):
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    return ImageSet(torch.zeros(len(labels), 1, 2, 2), labels, tuple(map(str, range(len(counts)))))


@pytest.mark.parametrize("counts", [[70, 20, 7], [3, 200], [1, 1, 8], [5, 0, 20]])
def test_balanced_epochs_have_every_class_equally_often(counts):
    images = skewed(counts)
    batches = Batches(images, 16, shuffle=True, balance=True, seed=3)
    for epoch in range(3):
        batches.set_epoch(epoch)
        drawn = torch.cat([batches.indices(i) for i in range(len(batches))])
        assert len(drawn) == len(images)
        found = torch.bincount(images.labels[drawn], minlength=len(counts))
        present = found[torch.tensor(counts) > 0]
        assert present.sum() == len(images)
        assert present.max() - present.min() <= 1
        # No image comes again before all others of its class: how often they come differs by one at most.
        times = torch.bincount(drawn, minlength=len(images))
        for label in range(len(counts)):
            own = times[images.labels == label]
            assert len(own) == 0 or own.max() - own.min() <= 1


def test_balanced_epochs_are_mixed_and_functions_of_seed_and_epoch():
    images = skewed([90, 10])
    first, again = (Batches(images, 10, shuffle=True, balance=True, seed=5) for _ in range(2))
    again.set_epoch(4)
    again.set_epoch(1)
    assert not torch.equal(first.indices(0), again.indices(0))
    first.set_epoch(1)
    assert all(torch.equal(first.indices(i), again.indices(i)) for i in range(10))
    assert all(0 < int(labels.sum()) < 10 for _, labels in first)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 5, "world_size": 2}, "multiple of world_size"),
        ({"batch_size": 4, "rank": 2, "world_size": 2}, "rank"),
        ({"batch_size": 60, "world_size": 60}, "world_size=60: must be at most the 50 images"),
        ({"batch_size": 64, "drop_last": True}, "no batch would be left"),
        ({"batch_size": 4, "seed": -1}, "seed"),
        ({"batch_size": 4, "balance": True}, "balance=True"),
    ],
)
def test_wrong_arguments_are_named(digits, options, message):
    with pytest.raises(ValueError, match=message):
        Batches(digits, **options)
