"""Temperatures and calibration errors."""

import pytest
import torch
from torch.distributions import Categorical

from besselnet.robust import expected_calibration_error, fit_temperature, reliability


def drawn(images: int, temperature: float, classes: int = 5, seed: int = 0):
    """Logits that are `temperature` times too large for the labels drawn from them."""
    torch.manual_seed(seed)
    honest = 2 * torch.randn(images, classes, dtype=torch.float64)
    return temperature * honest, Categorical(logits=honest).sample()


@pytest.mark.parametrize("temperature", [0.2, 1.0, 4.0])
def test_a_known_temperature_is_found_again(temperature):
    logits, labels = drawn(20_000, temperature)
    found = fit_temperature(logits, labels)
    assert found == pytest.approx(temperature, rel=0.03)
    # The whole chain is scale-free.
    assert fit_temperature(3 * logits + 7, labels) == pytest.approx(3 * found, rel=1e-6)


def test_the_temperature_minimises_the_cross_entropy():
    logits, labels = drawn(400, 2.5)

    def loss(temperature: float) -> float:
        # The label has the weight 1 - 1 / (N + 1), all classes alike have the rest.
        shares = (logits / temperature).log_softmax(1)
        own = shares.gather(1, labels[:, None]).mean()
        return -(400 * own + shares.mean()).item() / 401

    found = fit_temperature(logits, labels)
    assert loss(found) < min(loss(0.99 * found), loss(1.01 * found))


def test_few_answers_that_are_all_right_are_not_taken_for_certainty():
    labels = torch.arange(10) % 3
    logits = 3 * torch.eye(3)[labels]
    top = (logits.double() / fit_temperature(logits, labels)).softmax(1).amax(1)
    assert 0.8 < top.min() < 0.99
    assert fit_temperature(torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64)) == 1


def test_honest_probabilities_have_no_calibration_error_and_others_have():
    logits, labels = drawn(50_000, 3.0)
    assert expected_calibration_error(logits.softmax(1), labels) > 0.1
    assert expected_calibration_error((logits / 3).softmax(1), labels) < 0.01


def test_the_calibration_error_of_a_small_example():
    # Two answers of 0.7, one of them right, and one of 1 that is right: (2 x 0.2 + 1 x 0) / 3.
    probabilities = torch.tensor([[0.7, 0.3], [0.7, 0.3], [0.0, 1.0]], dtype=torch.float64)
    labels = torch.tensor([0, 1, 1])
    assert expected_calibration_error(probabilities, labels) == pytest.approx(0.4 / 3)
    bins = reliability(probabilities, labels, bins=10)
    assert bins.images.tolist() == [0, 0, 0, 0, 0, 0, 2, 0, 0, 1]
    assert bins.accuracy[[6, 9]].tolist() == [0.5, 1]


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"\(N, K\) and \(N,\)"):
        fit_temperature(torch.zeros(4, 3), torch.zeros(5, dtype=torch.int64))
    with pytest.raises(ValueError, match="infinite or NaN"):
        fit_temperature(torch.full((4, 3), torch.nan), torch.zeros(4, dtype=torch.int64))
    with pytest.raises(ValueError, match="bins=0"):
        reliability(torch.ones(1, 1), torch.zeros(1, dtype=torch.int64), bins=0)
