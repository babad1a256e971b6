"""Adversarial training: it makes networks robust, resumes exactly, and is for classes alone."""

import pytest
import torch
from torch import nn

from besselnet.nn import evaluating
from besselnet.robust import pgd
from besselnet.train import Multilabel, TrainConfig, fit, make_config
from besselnet.train._checkpoint import load_checkpoint, save_checkpoint
from besselnet.train._fit import CHECKPOINT_NAME
from robust.patterns import pattern_images
from train.toys import ToyBatches, same, toy_model, weights_of

EPS = 0.05


class UnitBatches(ToyBatches):
    """The toys with values in [0, 1]."""

    def __init__(self, images: int = 64, batch_size: int = 16):
        super().__init__(images, batch_size)
        self.images = self.images.sigmoid()


class Stopped(Exception):
    """The process is gone."""


class Killed(UnitBatches):
    """Ends the training in the third batch of the second epoch."""

    def __iter__(self):
        for index, batch in enumerate(super().__iter__()):
            if self.epoch == 1 and index == 2:
                raise Stopped
            yield batch


def config(**settings) -> TrainConfig:
    return TrainConfig(
        **{"epochs": 3, "learning_rate": 0.02, "device": "cpu", "adversarial": EPS, **settings}
    )


class Indexed(UnitBatches):
    """Batches that need not be drawn again to be passed over."""

    def __getitem__(self, index):
        return list(self)[index]


@pytest.mark.parametrize("batches", [UnitBatches, Indexed])
def test_a_killed_training_resumes_with_identical_results(tmp_path, batches):
    settings = config(checkpoint_steps=1, ema_decay=0.9)
    whole, resumed = toy_model(), toy_model()
    fit(whole, UnitBatches(), UnitBatches(), settings, quiet=True)
    with pytest.raises(Stopped):
        fit(toy_model(), Killed(), UnitBatches(), settings, tmp_path, quiet=True)
    fit(resumed, batches(), UnitBatches(), settings, tmp_path, resume=True, quiet=True)
    assert same(weights_of(whole), weights_of(resumed))


def test_the_seed_and_the_size_change_what_is_learned():
    found = []
    for settings in ({}, {}, {"seed": 1}, {"adversarial": 0.1}, {"adversarial": None}):
        model = toy_model(0.0)
        fit(model, UnitBatches(), None, config(epochs=1, **settings), quiet=True)
        found.append(weights_of(model))
    assert same(found[0], found[1])
    assert not any(same(found[0], other) for other in found[2:])


def test_off_is_off():
    unset, zero = toy_model(), toy_model()
    fit(unset, UnitBatches(), None, config(adversarial=None), quiet=True)
    fit(zero, UnitBatches(), None, config(adversarial=0), quiet=True)
    assert same(weights_of(unset), weights_of(zero))


def test_a_checkpoint_that_knows_no_such_setting_is_resumed(tmp_path):
    settings = config(adversarial=None)
    with pytest.raises(Stopped):
        fit(toy_model(), Killed(), None, settings, tmp_path, quiet=True)
    stored = load_checkpoint(tmp_path / CHECKPOINT_NAME)
    del stored.values["train"]["adversarial"]
    save_checkpoint(tmp_path / CHECKPOINT_NAME, stored)
    assert fit(toy_model(), UnitBatches(), None, settings, tmp_path, resume=True).finished


class Patterns:
    """Training images of patterns."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return pattern_images(60, index)


def test_it_makes_the_network_robust():
    images, labels = pattern_images(60, 9)
    standing = []
    for eps in (None, EPS):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            network = nn.Sequential(
                nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 144, 3)
            )
        settings = config(epochs=12, learning_rate=0.005, adversarial=eps)
        fit(network, Patterns(), None, settings, quiet=True)
        found = pgd(network, images, labels, EPS, steps=10, restarts=1)
        with evaluating(network):
            standing.append((network(found).argmax(1) == labels).float().mean().item())
    assert standing[1] > standing[0] + 0.2


def test_it_is_for_classes_and_for_images():
    with pytest.raises(ValueError, match=r"adversarial=0\.05: must be unset for several labels"):
        fit(toy_model(), UnitBatches(), None, config(monitor="val_f1"), task=Multilabel(("a", "b")))
    with pytest.raises(ValueError, match=r"must be in \[0, 1\]"):
        fit(toy_model(), ToyBatches(), None, config(), quiet=True)
    for wrong in (-0.1, 1.5, "much"):
        with pytest.raises(ValueError, match="adversarial="):
            make_config({"train": {"adversarial": wrong}})
