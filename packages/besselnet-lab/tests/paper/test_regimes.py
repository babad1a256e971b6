"""The paper's shares of images for training."""

import pytest
import torch

from besselnet.data import ImageSet
from besselnet_lab.paper import take_regime


def labelled(counts):
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    images = torch.zeros(len(labels), 1, 2, 2, dtype=torch.uint8)
    return ImageSet(images, labels, tuple(map(str, range(len(counts)))))


@pytest.mark.parametrize(
    ("family", "regime", "expected"),
    [
        ("mnist", "high", 12_400),
        ("mnist", "intermediate", 1_240),
        ("mnist", "low", 124),
        ("other", "high", 49_600),
        ("other", "intermediate", 4_960),
        ("other", "low", 496),
    ],
)
def test_regimes_take_the_papers_shares(family, regime, expected):
    whole = labelled([6_200] * 10)
    train, test = take_regime(whole, regime, family=family, seed=0)
    assert (len(train), len(test)) == (expected, 62_000 - expected)
    counts = train.class_counts()
    assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize(("regime", "family"), [("tiny", "mnist"), ("low", "galaxies")])
def test_unknown_regimes_are_refused(regime, family):
    with pytest.raises(ValueError, match="must be one of"):
        take_regime(labelled([5, 5]), regime, family=family, seed=0)
