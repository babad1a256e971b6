"""Evaluation against numbers that can be counted by hand."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from besselnet.functional import VIEWS, hidden_colour, show_rotated, soft_disc
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
    evaluate_rotated(model, [(torch.rand(3, 1, 6, 6), torch.zeros(3).long())])
    assert [layer.training for layer in model] == [True, False, True, True, True, True]


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_of_the_model_is_kept_and_not_used(training):
    model = toy_model().train(training)
    first, second = evaluate(model, ToyBatches()), evaluate(model, ToyBatches())
    assert first.loss == second.loss
    assert model.training == training
    assert all(module.training == training for module in model.modules())


def test_nothing_to_evaluate_is_an_error():
    with pytest.raises(ValueError, match="batches is empty"):
        evaluate(Echo(), [])
    with pytest.raises(ValueError, match="batches is empty"):
        evaluate_rotated(Echo(), [])
    with pytest.raises(ValueError, match="angles=1: must be an integer >= 2"):
        evaluate_rotated(Echo(), [], angles=1)
    with pytest.raises(ValueError, match="border='zeros': must be one of 'disc', 'reflect'"):
        evaluate_rotated(Echo(), [], border="zeros")
    with pytest.raises(ValueError, match="batches is an iterator"):
        evaluate_rotated(Echo(), iter([]))


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

    still = evaluate_rotated(Mass(), batches, angles=4)
    assert still.angles == (0.0, 90.0, 180.0, 270.0)
    assert still.agreement == (1.0,) * 4
    assert max(still.drift) < 1e-5

    moved = evaluate_rotated(LeftMinusRight(), batches, angles=2, border="black")
    assert moved.accuracy == (1.0, 0.0)
    assert moved.agreement == (1.0, 0.0)
    # Logits change sign: the change is twice their length.
    assert moved.drift == pytest.approx((0.0, 2.0), rel=1e-5)
    summary = moved.to_dict()
    assert summary["accuracy_spread"] == summary["upright_accuracy"] == 1.0
    assert summary["rotated_accuracy"] == summary["agreement"] == 0.0


def photographs(count=12, size=24):
    """Smooth RGB images that fill their frame; each colour is about as bright as the others."""
    generator = torch.Generator().manual_seed(1)
    coarse = torch.rand(count, 3, 4, 4, generator=generator)
    return 0.5 + 0.5 * F.interpolate(coarse, size=(size, size), mode="bicubic").clamp(0, 1)


class MeanColour(nn.Module):
    """Invariant under every rotation of the plane; on pixels, black corners darken the mean."""

    def forward(self, x):
        brightness = x.mean((1, 2, 3))
        return torch.stack([brightness, torch.full_like(brightness, 0.72)], 1)


def test_the_corners_count_unless_the_images_are_seen_through_the_disc():
    images = photographs()
    batches = [(images[:7], torch.zeros(7).long()), (images[7:], torch.zeros(5).long())]
    found = {b: evaluate_rotated(MeanColour(), batches, angles=8, border=b) for b in VIEWS}
    assert {b: result.border for b, result in found.items()} == dict(zip(VIEWS, VIEWS))
    assert min(found["black"].agreement) < 0.7
    assert max(found["black"].drift) > 1
    assert max(found["disc"].drift) < 0.02
    # Mirrors keep the colours, more or less.
    assert 0.02 < max(found["reflect"].drift) < max(found["black"].drift)


def test_a_plain_network_fails_through_the_disc_as_well():
    images = photographs()
    torch.manual_seed(0)
    plain = nn.Sequential(
        nn.Conv2d(3, 8, 5), nn.ReLU(), nn.Conv2d(8, 8, 5), nn.ReLU(), nn.Flatten(), nn.LazyLinear(4)
    )
    found = evaluate_rotated(plain, [(images, torch.zeros(12).long())], angles=4)
    assert max(found.drift) > 0.1


def test_the_disc_shows_the_same_whatever_lies_outside():
    """Upright copies hide what a rotation would bring in or take away."""
    images = photographs(2)
    changed = images.clone()
    changed[..., soft_disc(24, 24) == 0] = 0.0
    colour = hidden_colour([(images, None)])
    a, b = (show_rotated(i, 0.0, "disc", "cubic", colour) for i in (images, changed))
    assert torch.equal(a, b)
    whole = soft_disc(24, 24) == 1
    assert torch.equal(a[..., whole], images[..., whole])
    torch.testing.assert_close(a[0, :, 0, 0].double(), colour, atol=1e-6, rtol=0)


def test_the_colour_outside_is_that_of_the_ground_and_not_of_the_batch():
    ground = torch.tensor([0.2, 0.5, 0.9])[:, None, None]
    images = ground.repeat(5, 1, 16, 16).reshape(5, 3, 16, 16)
    images[..., 5:11, 5:11] = torch.rand(5, 3, 6, 6)
    colour = hidden_colour([(images[:4], None), (images[4:], None)])
    torch.testing.assert_close(colour, ground.flatten().double(), atol=1e-6, rtol=0)
    # So an object on a ground is seen as it is.
    torch.testing.assert_close(show_rotated(images, 0.0, "disc", "cubic", colour), images)
    split = [[(images, None)], [(image[None], None) for image in images]]
    one, many = (hidden_colour(batches) for batches in split)
    torch.testing.assert_close(one, many)
