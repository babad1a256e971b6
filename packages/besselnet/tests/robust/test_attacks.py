"""Attacks stay in their ball, break what can be broken, and leave the network as it is."""

import itertools
import math

import pytest
import torch
from torch import nn

from besselnet.functional import rotate_images
from besselnet.nn import evaluating
from besselnet.robust import (
    adversarial_batch,
    apgd,
    ensemble,
    fgsm,
    pgd,
    random_search,
    spatial,
    square,
)
from besselnet.robust._apgd import _checkpoints, dlr
from besselnet.robust._standing import margins
from robust.patterns import pattern_images, trained_network

EPS = 0.04
ATTACKS = {
    "fgsm": fgsm,
    "pgd": lambda *given: pgd(*given, steps=10, restarts=2),
    "apgd": lambda *given: apgd(*given, steps=10),
    "apgd, dlr": lambda *given: apgd(*given, steps=10, loss="dlr"),
    "square": lambda *given: square(*given, queries=60),
    "random search": lambda *given: random_search(*given, tries=10),
    "ensemble": lambda *given: ensemble(*given, steps=10, queries=40),
}
# Rounding of float32 numbers in [0, 1].
ROUNDING = 2e-7


def right_answers(network, images, labels):
    with evaluating(network):
        return network(images).argmax(1) == labels


@pytest.fixture
def attacked():
    return trained_network(), *pattern_images(60, 1)


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_images_stay_in_the_ball_and_are_images(attack, attacked):
    _, images, _ = attacked
    found = attack(*attacked, EPS)
    assert found.shape == images.shape
    assert (found - images).abs().max() <= EPS + ROUNDING
    assert found.min() >= 0
    assert found.max() <= 1


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_what_comes_back_changed_is_what_was_right_and_is_wrong_now(attack, attacked):
    network, images, labels = attacked
    found = attack(*attacked, 0.3)
    changed = (found != images).flatten(1).any(1)
    before, after = (right_answers(network, x, labels) for x in (images, found))
    assert changed.any()
    assert torch.equal(changed, before & ~after)


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_the_network_keeps_its_mode_weights_and_statistics(attack, attacked):
    network = attacked[0]
    network[1].eval()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    attack(*attacked, EPS)
    assert [layer.training for layer in network] == [layer is not network[1] for layer in network]
    network[1].train()
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    assert all(parameter.grad is None for parameter in network.parameters())


@pytest.mark.parametrize("name", [name for name in ATTACKS if name != "fgsm"])
def test_the_seed_decides(name, attacked):
    first, again = (ATTACKS[name](*attacked, EPS) for _ in range(2))
    assert torch.equal(first, again)
    start = [adversarial_batch(*attacked, EPS, seed=seed) for seed in (0, 0, 1)]
    assert torch.equal(start[0], start[1])
    assert not torch.equal(start[0], start[2])


def test_strength_is_in_the_expected_order(attacked):
    network, images, labels = attacked
    left = {
        name: right_answers(network, attack(*attacked, EPS), labels).sum().item()
        for name, attack in {
            **ATTACKS,
            "pgd": lambda *given: pgd(*given, steps=50, restarts=5),
        }.items()
    }
    assert 0 < left["pgd"] < right_answers(network, images, labels).sum()
    assert left["pgd"] <= left["fgsm"]
    assert left["pgd"] <= left["random search"]
    assert left["ensemble"] <= min(left["apgd"], left["fgsm"], left["square"])
    # Gradients that are real beat the search without them.
    assert left["apgd"] <= left["square"] <= left["random search"]


def test_larger_balls_break_more(attacked):
    network, _, labels = attacked
    left = [
        right_answers(network, apgd(*attacked, eps, steps=20), labels).sum().item()
        for eps in (0.01, 0.04, 0.08, 0.3)
    ]
    assert left == sorted(left, reverse=True)
    assert left[-1] == 0 < left[0]


@pytest.mark.parametrize("attack", [fgsm, pgd, apgd], ids=["fgsm", "pgd", "apgd"])
def test_a_linear_network_is_broken_exactly_where_theory_says(attack):
    """Logits (w x + b, 0): the ball moves w x by eps |w|_1 at most."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(1, 4, 4, generator=generator)
    images = 0.5 + 0.1 * torch.randn(40, 1, 4, 4, generator=generator).clamp(-2, 2)

    def network(x):
        score = (x * weights).sum((1, 2, 3)) - 0.5 * weights.sum()
        return torch.stack([score, torch.zeros_like(score)], dim=1)

    labels, eps = network(images).argmax(1), 0.02
    margin = network(images)[:, 0].abs()
    reach = eps * weights.abs().sum()
    sure = (margin - reach).abs() > 1e-4
    broken = network(attack(network, images, labels, eps)).argmax(1) != labels
    assert 0 < broken.sum() < len(images)
    assert torch.equal(broken[sure], (margin < reach)[sure])


def test_a_batch_for_training_has_a_higher_loss_than_noise(attacked):
    network, images, labels = attacked
    found = adversarial_batch(network, images, labels, EPS)
    assert (found - images).abs().max() <= EPS + ROUNDING
    with evaluating(network):
        losses = [
            nn.functional.cross_entropy(network(x), labels)
            for x in (images, (images + EPS * torch.randn_like(images).sign()).clamp(0, 1), found)
        ]
    assert losses[2] > 2 * losses[1]
    assert losses[2] > 2 * losses[0]


def test_dlr_is_the_ratio_of_differences_and_ignores_the_scale():
    logits = torch.tensor([[3.0, 1.0, 2.0, -1.0], [0.0, 5.0, 1.0, 4.0]])
    labels = torch.tensor([0, 0])
    torch.testing.assert_close(dlr(logits, labels), torch.tensor([-1 / 2, 5 / 4]))
    torch.testing.assert_close(dlr(logits, labels), dlr(1e6 * logits, labels))
    two = torch.tensor([[3.0, 1.0]])
    assert dlr(two, torch.tensor([1])).item() == 2 == -margins(two, torch.tensor([1])).item()


def test_checkpoints_of_apgd_are_those_of_the_paper():
    ends = sorted(_checkpoints(100))
    assert ends[:4] == [22, 41, 57, 70]
    gaps = [b - a for a, b in itertools.pairwise(ends)]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] == 6
    assert all(_checkpoints(steps) for steps in range(1, 8))


def test_the_spatial_attack_finds_the_one_placement_that_is_wrong():
    """A network that compares with one placement of an image: only that one is answered wrongly."""
    image = pattern_images(3, 2)[0][:1]
    target = torch.zeros_like(image)
    # Rotated by 90 degrees, exactly, then two pixels to the right and one down.
    target[..., 1:, 2:] = rotate_images(image, 90.0)[..., :-1, :-2]

    def network(x):
        distance = (x - target).flatten(1).norm(dim=1)
        return torch.stack([distance, torch.full_like(distance, 1e-3)], dim=1)

    labels = torch.zeros(1, dtype=torch.long)
    found = spatial(network, image, labels, angles=range(0, 360, 30), shifts=(-2, -1, 0, 1, 2))
    torch.testing.assert_close(found, target, atol=1e-5, rtol=0)
    others = [angle for angle in range(0, 360, 30) if angle != 90]
    same = spatial(network, image, labels, angles=others, shifts=(-2, -1, 0, 1, 2))
    assert torch.equal(same, image)


def test_nothing_to_attack_is_no_trouble(attacked):
    network, images, labels = attacked
    wrong = (labels + 1) % 3
    chosen = ~right_answers(network, images, wrong)
    for attack in ATTACKS.values():
        assert torch.equal(attack(network, images[chosen], wrong[chosen], EPS), images[chosen])
        assert attack(network, images[:0], labels[:0], EPS).shape == images[:0].shape


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
@pytest.mark.parametrize("eps", [0, -0.1, math.nan, math.inf, 2, "0.1", True])
def test_a_ball_of_no_size_is_refused(attack, attacked, eps):
    with pytest.raises(ValueError, match="eps="):
        attack(*attacked, eps)


def test_other_images_and_labels_are_refused(attacked):
    network, images, labels = attacked
    for wrong in (images * 2, images - 1, images / 0, images[0], (255 * images).byte()):
        with pytest.raises(ValueError, match="images"):
            fgsm(network, wrong, labels, EPS)
    for wrong in (labels[:5], labels.float(), labels[:, None]):
        with pytest.raises(ValueError, match="labels"):
            fgsm(network, images, wrong, EPS)
    with pytest.raises(ValueError, match="shifts="):
        spatial(network, images, labels, angles=[0], shifts=[])
