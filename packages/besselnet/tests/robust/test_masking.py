"""Masked gradients are found, and real ones are not suspected."""

import pytest
import torch
from torch import nn

from besselnet.robust import MaskingVerdict, apgd, judge_gradients, pgd, zero_gradients
from robust.patterns import pattern_images, trained_network

EPS = 0.04
FEW = {"steps": 20, "restarts": 2, "tries": 20, "queries": 100}


def rounds(images):
    """A network that rounds its input: the gradient is zero."""
    return trained_network().eval()(torch.round(images * 40) / 40)


def saturates(images):
    """Logits so large that the softmax is exactly one and zero: the cross-entropy has no gradient."""
    return 1e5 * trained_network().eval()(images)


def shatters(images):
    """A gradient that is there, and points anywhere."""
    wave = torch.sin(3e4 * images).flatten(1).sum(1, keepdim=True)
    return rounds(images) + 1e-3 * wave * torch.tensor([1.0, -1.0, 0.5])


def detached(images):
    """No gradient comes out at all."""
    return trained_network().eval()(images.detach()).detach()


@pytest.mark.parametrize("network", [rounds, saturates, shatters, detached])
def test_masked_gradients_are_suspicious(network):
    verdict = judge_gradients(network, *pattern_images(60, 1), EPS, **FEW)
    assert verdict.suspicious
    assert verdict.reasons
    assert verdict.to_dict()["suspicious"] is True
    assert (verdict.zero_gradients > 0.9) == (network is not shatters)


def test_real_gradients_are_not():
    verdict = judge_gradients(trained_network(), *pattern_images(60, 1), EPS, **FEW)
    assert not verdict.suspicious, verdict.reasons
    assert verdict.pgd < 0.9
    assert verdict.zero_gradients == 0


def test_the_scale_of_the_logits_stops_cross_entropy_and_not_dlr():
    images, labels = pattern_images(60, 1)

    def standing(attack):
        return (saturates(attack).argmax(1) == labels).float().mean()

    by_ratio = standing(apgd(saturates, images, labels, EPS, steps=20, loss="dlr"))
    assert by_ratio < standing(pgd(saturates, images, labels, EPS, steps=20, restarts=1)) - 0.1


def test_each_figure_can_be_the_reason():
    good = dict.fromkeys(("pgd", "fgsm", "random_search", "square"), 0.5)
    good |= {"pgd_large_eps": 0.0, "zero_gradients": 0.0}
    assert not MaskingVerdict(**good).suspicious
    worse = {"fgsm": 0.4, "random_search": 0.4, "square": 0.4}
    for name, value in {**worse, "pgd_large_eps": 0.4, "zero_gradients": 0.4}.items():
        assert len(MaskingVerdict(**{**good, name: value}).reasons) == 1


def test_images_without_gradient_are_found_among_right_answers():
    class Half(nn.Module):
        """Passes a gradient on for bright images only."""

        def forward(self, images):
            value = images.mean((1, 2, 3))
            value = torch.where(value > 0.5, value, value.detach())
            return torch.stack([value, -value], dim=1)

    images = torch.tensor([0.2, 0.4, 0.6, 0.9]).view(4, 1, 1, 1).expand(4, 1, 3, 3)
    first, second = torch.zeros(4, dtype=torch.long), torch.ones(4, dtype=torch.long)
    assert zero_gradients(Half(), images, first).tolist() == [True, True, False, False]
    assert not zero_gradients(Half(), images, second).any()
