"""Evaluation against numbers that can be counted by hand."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from besselnet.functional import rotate_images
from besselnet.train._evaluate import evaluate, evaluate_rotated
from train.toys import ToyBatches, toy_model


class Echo(nn.Module):
    """The "images" are the logits."""

    def forward(self, x):
        return x


LABELS = torch.tensor([0, 0, 0, 1, 1, 2])
ANSWERS = torch.tensor([0, 0, 1, 1, 2, 2])


def test_the_counts_are_right_whatever_the_batches():
    logits = 3 * F.one_hot(ANSWERS, 4).float()
    batches = [(logits[:4], LABELS[:4]), (logits[4:], LABELS[4:])]
    result = evaluate(Echo(), batches)
    assert result.confusion.tolist() == [[2, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    assert result.images == 6
    assert result.accuracy == pytest.approx(4 / 6)
    assert result.loss == pytest.approx(F.cross_entropy(logits, LABELS).item())
    zero, one, two, none = result.per_class()
    assert zero == {"images": 3, "recall": 2 / 3, "precision": 1.0, "f1": 0.8}
    assert (one["recall"], one["precision"], one["f1"]) == (0.5, 0.5, 0.5)
    assert (two["recall"], two["precision"]) == (1.0, 0.5)
    assert none == {"images": 0, "recall": 0.0, "precision": 0.0, "f1": 0.0}
    assert list(result.to_dict("abcd")["classes"]) == list("abcd")


def test_the_mode_of_each_layer_is_kept():
    model = toy_model().train()
    model[1].eval()
    evaluate(model, ToyBatches())
    evaluate_rotated(model, [(torch.rand(3, 1, 6, 6), torch.zeros(3).long())], rotate_images)
    assert [layer.training for layer in model] == [True, False, True, True, True, True]


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_of_the_model_is_kept_and_not_used(training):
    model = toy_model().train(training)
    first, second = evaluate(model, ToyBatches()), evaluate(model, ToyBatches())
    assert first.loss == second.loss
    assert model.training == training
    assert all(module.training == training for module in model.modules())


def test_nothing_to_evaluate_is_an_error():
    with pytest.raises(ValueError, match="no batches"):
        evaluate(Echo(), [])
    with pytest.raises(ValueError, match="no batches"):
        evaluate_rotated(Echo(), [], rotate_images)
    with pytest.raises(ValueError, match="angles=1: must be an integer >= 2"):
        evaluate_rotated(Echo(), [], rotate_images, angles=1)


class Mass(nn.Module):
    """Logits from the sum of the pixels, which no quarter turn changes."""

    def forward(self, x):
        mass = x.sum((1, 2, 3))
        return torch.stack([mass, -mass], 1)


class LeftMinusRight(nn.Module):
    """Logits that half a turn reverses."""

    def forward(self, x):
        half = x.shape[-1] // 2
        mass = x[..., :half].sum((1, 2, 3)) - x[..., half:].sum((1, 2, 3))
        return torch.stack([mass, -mass], 1)


def test_rotation_means_nothing_to_an_invariant_model_and_all_to_another():
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(20, 1, 8, 8, generator=generator)
    labels = LeftMinusRight()(images).argmax(1)
    batches = [(images[:13], labels[:13]), (images[13:], labels[13:])]

    still = evaluate_rotated(Mass(), batches, rotate_images, angles=4)
    assert still.angles == (0.0, 90.0, 180.0, 270.0)
    assert still.agreement == (1.0,) * 4
    assert max(still.drift) < 1e-5

    moved = evaluate_rotated(LeftMinusRight(), batches, rotate_images, angles=2)
    assert moved.accuracy == (1.0, 0.0)
    assert moved.agreement == (1.0, 0.0)
    # Logits change sign: the change is twice their length.
    assert moved.drift == pytest.approx((0.0, 2.0), rel=1e-5)
    summary = moved.to_dict()
    assert summary["accuracy_spread"] == summary["upright_accuracy"] == 1.0
    assert summary["rotated_accuracy"] == summary["agreement"] == 0.0
