"""The gate, trained as any model is, tells which symmetry the data have."""

import pytest
import torch

from besselnet.models import create_model
from besselnet.train import TrainConfig, evaluate, fit
from models.drawings import batches, spirals, turned_and_mirrored, upright

WANTED = [(turned_and_mirrored, "O(2)"), (spirals, "SO(2)"), (upright, "plain")]


def trained(draw, seed, size, epochs, **options):
    torch.manual_seed(seed)
    model = create_model(
        "besselnet_gated",
        in_channels=1,
        num_classes=2,
        image_size=size,
        width=0.5,
        kernel_size=5,
        **options,
    )
    images = batches(*draw(256, 2 * seed, size), 64)
    config = TrainConfig(epochs=epochs, learning_rate=5e-3, seed=seed, device="cpu")
    fit(model, images, None, config, quiet=True)
    return model


@pytest.mark.parametrize(("draw", "wanted"), WANTED)
def test_three_branches(draw, wanted):
    model = trained(draw, 0, size=16, epochs=25, branches=["O(2)", "SO(2)", "plain"])
    report = model.gate_report()
    assert report.chosen == model.chosen() == wanted, str(report)
    # 52 of 256 are expected; one standard deviation is 6.4.
    assert 32 <= report.images <= 72
    fresh = batches(*draw(500, 1, 16), 250)
    assert evaluate(model.pruned(), fresh).accuracy > 0.97


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("draw", "wanted"), WANTED)
def test_all_branches(draw, wanted, seed):
    model = trained(draw, seed, size=20, epochs=40)
    assert model.chosen() == wanted, str(model.gate_report())
    fresh = batches(*draw(500, 2 * seed + 1, 20), 250)
    assert evaluate(model, fresh).accuracy > 0.97
