"""Promises of sets and sure answers, kept on images drawn as the held-out ones were."""

import math

import pytest
import torch

from besselnet.robust import answer_threshold, conformal_threshold, prediction_sets

SEEDS = 200


def drawn(images: int, seed: int, wrong_scale: float = 1.0, spread: float = 2.5):
    """Probabilities and labels; they are those of the labels only if `wrong_scale` is 1."""
    generator = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(images, 4, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    return (wrong_scale * logits).softmax(1), labels


@pytest.mark.parametrize("coverage", [0.8, 0.95])
@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_coverage_is_what_was_asked_for_however_wrong_the_probabilities(coverage, scale):
    held_out = 99
    covered = []
    for seed in range(SEEDS):
        probabilities, labels = drawn(held_out + 400, seed, scale)
        threshold = conformal_threshold(probabilities[:held_out], labels[:held_out], coverage)
        true = probabilities[held_out:].gather(1, labels[held_out:, None])
        covered.append((true >= threshold).double().mean().item())
        sets = prediction_sets(probabilities[held_out:], threshold)
        assert sets.any(1).all()
        assert sets.gather(1, labels[held_out:, None]).double().mean() >= covered[-1]
    mean = torch.tensor(covered).mean().item()
    # Between coverage and coverage + 1 / (N + 1); the mean over seeds is known to half a point.
    assert coverage - 0.007 < mean < coverage + 1 / (held_out + 1) + 0.007


def test_the_threshold_is_the_rank_of_the_finite_sample():
    true = torch.arange(1, 20, dtype=torch.float64) / 20
    probabilities = torch.stack([true, 1 - true], 1)
    labels = torch.zeros(19, dtype=torch.int64)
    assert conformal_threshold(probabilities, labels, 0.95) == 1 / 20
    assert conformal_threshold(probabilities, labels, 0.5) == 10 / 20
    # So few images promise nothing: every class is in the set.
    threshold = conformal_threshold(probabilities, labels, 0.96)
    assert prediction_sets(probabilities, threshold).all()


def answers(images: int, seed: int, spread: float = 2.5):
    probabilities, labels = drawn(images, seed, spread=spread)
    best = probabilities.max(1)
    return best.values, best.indices == labels


def test_sure_answers_keep_the_error_rate_with_the_confidence():
    kept, answered = 0, []
    for seed in range(SEEDS):
        probability, right = answers(400, seed)
        threshold = answer_threshold(probability, right, 0.1, confidence=0.9)
        fresh, good = answers(20_000, SEEDS + seed)
        sure = fresh >= threshold
        answered.append(sure.double().mean())
        kept += (~good[sure]).sum() <= 0.1 * sure.sum()
    # 90% were promised; five deviations of the count below that is a fault.
    assert torch.stack(answered).median() > 0.2
    assert kept / SEEDS > 0.9 - 5 * math.sqrt(0.09 / SEEDS)


def test_a_lower_error_rate_answers_less_and_none_is_not_promised_from_nothing():
    probability, right = answers(2000, 0, spread=6.0)
    rates = (0.3, 0.1, 0.03)
    thresholds = [answer_threshold(probability, right, rate) for rate in rates]
    assert thresholds == sorted(thresholds)
    assert thresholds[0] < thresholds[-1] < 1
    # 58 right answers leave more than 5% possible, with a confidence of 95% for each of two walks.
    certain = torch.ones(58, dtype=torch.float64), torch.ones(58, dtype=torch.bool)
    assert answer_threshold(*certain, 0.05) == math.inf
    more = torch.ones(59, dtype=torch.float64), torch.ones(59, dtype=torch.bool)
    assert answer_threshold(*more, 0.05) == 1
    assert answer_threshold(more[0], ~more[1], 0.5) == math.inf


def test_what_does_not_fit_is_refused():
    row = torch.ones(4)
    for call, words in {
        lambda: answer_threshold(row, row[:3], 0.1): r"\(N,\)",
        lambda: answer_threshold(row, row, 1.0): "error_rate=1.0",
        lambda: conformal_threshold(row[:, None], row.long() - 1, 0): "coverage=0",
    }.items():
        with pytest.raises(ValueError, match=words):
            call()
