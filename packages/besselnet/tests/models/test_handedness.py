"""Left or right? A rotation keeps the handedness of a spiral, a mirror swaps it."""

import pytest
import torch
from torch import nn

from besselnet.models import create_model
from besselnet.train import TrainConfig, evaluate, fit
from models.drawings import batches, spirals


@pytest.mark.parametrize(
    ("symmetry", "lowest", "highest"), [("SO(2)", 0.95, 1.0), ("O(2)", 0.45, 0.55)]
)
def test_so2_tells_mirror_images_apart_and_o2_cannot(symmetry, lowest, highest):
    torch.manual_seed(0)
    model = create_model(
        "besselnet_small",
        in_channels=1,
        num_classes=2,
        image_size=20,
        width=0.5,
        kernel_size=5,
        symmetry=symmetry,
    )
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = 0.5  # 50 steps are few for a running average of 10
    config = TrainConfig(epochs=5, learning_rate=5e-3, device="cpu")
    fit(model, batches(*spirals(320, seed=0), 32), None, config, quiet=True)

    # Guessing on 1000 images is right in 50 % of them, give or take 1.6 (one standard deviation).
    fresh = spirals(1000, seed=1)
    assert lowest <= evaluate(model, batches(*fresh, 250)).accuracy <= highest
