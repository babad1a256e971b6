"""Six stacked layers at the start of training: the signal neither vanishes nor explodes."""

import pytest
import torch
from torch import nn

from besselnet.nn import AttentiveNorm2d, BesselConv2d

# The paper's network.
CHANNELS = (1, 8, 16, 24, 24, 32, 40)
KERNEL_SIZES = (9, 7, 7, 7, 7, 7)
RECIPES = {
    "amplitude": ("amplitude", []),
    "amplitude, batch norm, relu": ("amplitude", [nn.BatchNorm2d, lambda _: nn.ReLU()]),
    "signed": ("signed", []),
    "signed, batch norm, relu": ("signed", [nn.BatchNorm2d, lambda _: nn.ReLU()]),
    "power, softsign": ("power", [lambda _: nn.Softsign()]),
    "power, batch norm, softsign": ("power", [nn.BatchNorm2d, lambda _: nn.Softsign()]),
    "power, attentive norm, softsign": ("power", [AttentiveNorm2d, lambda _: nn.Softsign()]),
}


def strokes():
    """Bright smooth strokes on black, in [0, 1], a third of the frame filled, as digits are."""
    generator = torch.Generator().manual_seed(0)
    axis = torch.arange(20.0)
    images = torch.zeros(4, 1, 20, 20)
    for image in images:
        for row, column in torch.rand(8, 2, generator=generator) * 10 + 5:
            distance = (axis[:, None] - row).square() + (axis[None, :] - column).square()
            image[0] = torch.maximum(image[0], torch.exp(-distance / 4))
    return images


INPUTS = {
    "strokes": strokes,
    "noise": lambda: torch.randn(4, 1, 20, 20, generator=torch.Generator().manual_seed(0)),
}


def blocks(response, after, cutoff):
    torch.manual_seed(0)
    return [
        nn.Sequential(
            BesselConv2d(
                CHANNELS[i], CHANNELS[i + 1], k, padding=k // 2, response=response, cutoff=cutoff
            ),
            *(make(CHANNELS[i + 1]) for make in after),
        )
        for i, k in enumerate(KERNEL_SIZES)
    ]


@pytest.mark.parametrize("images", INPUTS.values(), ids=INPUTS)
@pytest.mark.parametrize("cutoff", ["strong", "soft"])
@pytest.mark.parametrize(("response", "after"), RECIPES.values(), ids=RECIPES)
def test_signal_and_gradient_survive(response, after, cutoff, images):
    """Bounds: a factor of 10 around 1 for a signal that starts between 0.3 and 1, with contrast left in
    the last map, and gradients of the first and last layer within a factor of 100.
    """
    stack, signal = blocks(response, after, cutoff), images()
    for block in stack:
        signal = block(signal)
        assert 0.1 < signal.square().mean().sqrt() < 10
    assert signal.std((-2, -1)).mean() > 0.05
    signal.square().sum().backward()
    first, *_, last = (block[0].weight for block in stack)
    ratio = (first.grad.norm() / first.norm()) / (last.grad.norm() / last.norm())
    assert 0.01 < ratio < 100


def test_a_power_layer_has_the_gain_that_softsign_needs():
    """x -> g x^2 / (1 + g x^2) with g = 8 draws everything above 0.15 to 0.85, see reset_parameters."""
    x = torch.tensor([0.16, 0.5, 1.0])
    for _ in range(100):
        x = nn.functional.softsign(8 * x.square())
    assert torch.allclose(x, torch.full((3,), 0.8536), atol=1e-3)
    torch.manual_seed(0)
    power, amplitude = (
        BesselConv2d(8, 64, 7, response=r).weight.square().mean() for r in ("power", "amplitude")
    )
    # 6144 numbers: their mean square has a standard error of sqrt(2 / 6144) = 1.8%.
    assert 8 * 0.9 < power / amplitude < 8 * 1.1
