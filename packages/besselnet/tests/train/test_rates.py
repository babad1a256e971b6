"""The learning-rate finder finds rates that are stable, and leaves everything as it was."""

import json

import pytest
import torch
from torch import nn

from besselnet.train import (
    NonFiniteLoss,
    TrainConfig,
    find_learning_rate,
    find_run_rate,
    make_config,
)
from train.toy_run import make_images
from train.toys import ToyBatches, same, toy_model, weights_of


class Bowl:
    """One batch, of which no weights are always right: the loss of a linear model is a bowl."""

    def __init__(self, scale: float) -> None:
        generator = torch.Generator().manual_seed(0)
        self.images = scale * torch.randn(256, 8, generator=generator)
        self.labels = torch.randint(0, 2, (256,), generator=generator)

    def __len__(self) -> int:
        return 1

    def __iter__(self):
        yield self.images, self.labels


def largest_curvature(bowl: Bowl) -> float:
    """Of the loss of a linear model at zero: the softmax of two classes has p (1 - p) = 1/4, twice."""
    return float(torch.linalg.eigvalsh(bowl.images.T @ bowl.images / 256)[-1]) / 2


@pytest.mark.parametrize("scale", [3.0, 30.0])
def test_in_a_bowl_the_rate_is_stable_and_not_tiny(scale):
    bowl = Bowl(scale)
    model = nn.Linear(8, 2, bias=False)
    nn.init.normal_(model.weight, std=1 / scale)
    config = TrainConfig(optimizer="sgd", momentum=0.0)
    curve = find_learning_rate(model, bowl, config, lowest=1e-7, highest=100.0)
    limit = 2 / largest_curvature(bowl)
    assert limit / 1000 < curve.suggestion < limit


def test_it_is_deterministic_and_changes_nothing():
    model, batches, config = toy_model(), ToyBatches(), TrainConfig()
    before, chance = weights_of(model), torch.get_rng_state()
    curves = [find_learning_rate(model, batches, config) for _ in range(2)]
    assert curves[0] == curves[1]
    assert same(weights_of(model), before)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), chance)
    assert curves[0].rates[0] < curves[0].suggestion < curves[0].rates[-1]
    assert json.loads(json.dumps(curves[0].to_dict(), allow_nan=False))["rates"][0] == 1e-6


def test_a_rate_is_at_most_a_tenth_of_the_one_that_diverges():
    curve = find_learning_rate(toy_model(), ToyBatches(), TrainConfig(), highest=1e6, steps=150)
    assert curve.diverged is not None
    assert curve.suggestion <= 1.05 * curve.diverged / 10
    assert len(curve.rates) == len(curve.losses) < 150


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"lowest": 0}, "lowest=0"), ({"highest": 1e-9}, "highest=1e-09"), ({"steps": 3}, "steps=3")],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        find_learning_rate(toy_model(), ToyBatches(), TrainConfig(), **arguments)


def test_a_loss_that_is_never_finite_is_an_error():
    batches = ToyBatches()
    batches.images[:] = torch.nan
    with pytest.raises(NonFiniteLoss, match="check the images"):
        find_learning_rate(toy_model(), batches, TrainConfig())


def test_a_folder_gets_the_curve_and_its_picture(tmp_path):
    images = make_images(tmp_path / "images")
    settings = ["model.name=toy", "train.device=cpu", f"data.source='{images}'"]
    curve = find_run_rate(make_config(settings=settings), tmp_path / "run")
    assert json.loads((tmp_path / "run" / "rates.json").read_text()) == curve.to_dict()
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {"rates.json", "rates.png", ".lock"}
