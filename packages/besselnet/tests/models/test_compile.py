"""A training step of whole networks under ``torch.compile`` is that of eager mode."""

import pytest
import torch
from torch import nn

from besselnet.conversion import convert
from besselnet.models import create_model
from tolerances import relative_difference
from unet import UNet

SHAPE = {"in_channels": 1, "num_classes": 3, "image_size": 28}
NETWORKS = {
    "besselnet_small": lambda: create_model("besselnet_small", **SHAPE, width=0.5, dropout=0.0),
    "bcnn_so2_strong": lambda: create_model("bcnn_so2_strong", **SHAPE, width=(4, 4, 6, 6, 8, 8)),
    "besselnet_unet": lambda: create_model(
        "besselnet_unet", **{**SHAPE, "image_size": 29}, channels=[[3], [4]]
    ),
    "U-Net": lambda: convert(UNet(1, 2, 4), repair="all", image_size=32),
}


def training_step(model: nn.Module, forward) -> list[torch.Tensor]:
    """The loss, and every parameter after one step of SGD."""
    size = 32 if isinstance(model, UNet) else model.recipe.image_size
    images = torch.rand(4, 1, size, size, generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    output = forward(images)
    weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(1))
    loss = (output * weights).mean()
    loss.backward()
    optimizer.step()
    return [loss.detach(), *(p.detach() for p in model.parameters())]


# torch's compiler warns of parts of torch itself.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize(
    "name",
    [
        *("besselnet_small", "U-Net"),
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("besselnet_unet", "bcnn_so2_strong")),
    ],
)
def test_a_training_step_equals_eager(name):
    results = []
    for compiled in (False, True):
        torch.manual_seed(0)
        torch.compiler.reset()
        model = NETWORKS[name]().train()
        # fullgraph: no break anywhere, so none inside our layers.
        forward = torch.compile(model, fullgraph=True) if compiled else model
        results.append(training_step(model, forward))
    for eager, graph in zip(*results):
        assert relative_difference(graph, eager) <= 1e-4
