"""Random layers: values and derivatives are those of the direct algorithm, or our own error is raised."""

import random
import traceback
from pathlib import Path

import pytest
import torch
from torch.func import jvp, vjp

import besselnet
from besselnet.nn import BesselConv2d
from tolerances import TOLERANCES, assert_same

# torch loads what forward mode needs with a part of itself that it calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")

# What an amplitude of nothing is in float32: the root of the smallest normal number.
ZERO = torch.finfo(torch.float32).tiny ** 0.5
LIBRARY = Path(besselnet.__file__).parent


def draw_configuration(seed: int) -> tuple[dict, tuple[int, ...]]:
    """Arguments of a layer, and the shape of its input; some of them fit no image."""
    chance = random.Random(seed)
    groups = chance.choice([1, 1, 1, 2, 3])
    kernel_size = chance.randint(1, 8)
    stride = chance.choice([1, 1, 2, (2, 3)])
    options = {
        "in_channels": groups * chance.choice([1, 2, 5, 17]),
        "out_channels": groups * chance.randint(1, 5),
        "kernel_size": kernel_size,
        "stride": stride,
        "padding": chance.choice([0, kernel_size // 2, (1, 3), *(["same"] if stride == 1 else [])]),
        "dilation": chance.choice([1, 1, 1, 2, (1, 3)]),
        "groups": groups,
        "bias": chance.random() < 0.7,
        "padding_mode": chance.choice(["zeros", "zeros", "reflect", "replicate", "circular"]),
        "symmetry": chance.choice(["SO(2)", "O(2)"]),
        "cutoff": chance.choice(["strong", "soft", 0.3, 0.8, 1.4]),
        "scales": chance.choice([None, None, None, (-2, 0), (0, 2), (-2, 0, 2)]),
        "scale_pool": chance.choice(["map", "pixel", "image"]),
        "response": chance.choice(["signed", "amplitude", "power"]),
        "sampling": chance.choice(["cubic", "bilinear", "point"]),
    }
    sides = chance.randint(1, 20), chance.randint(1, 20)
    images = chance.choice([0, 1, 2, 40])
    shape = (options["in_channels"], *sides)
    return options, shape if chance.random() < 0.1 else (images, *shape)


def derivatives(layer: BesselConv2d, image: torch.Tensor, tangent: torch.Tensor) -> dict:
    """Response, gradients of input and parameters, and derivatives by ``torch.func``."""
    image = image.clone().requires_grad_()
    output = layer(image)
    # The same directions for both layers, whatever their dtype.
    generator = torch.Generator().manual_seed(1)
    cotangent = torch.rand(output.shape, generator=generator, dtype=torch.float64).to(output)
    wanted = {"input": image, **dict(layer.named_parameters())}
    gradients = torch.autograd.grad(output, list(wanted.values()), cotangent)
    return {
        "forward": output.detach(),
        **{f"backward to {name}": gradient for name, gradient in zip(wanted, gradients)},
        "jvp": jvp(layer, (image.detach(),), (tangent,))[1].detach(),
        "vjp": vjp(layer, image.detach())[1](cotangent)[0].detach(),
    }


def assert_like_the_direct_algorithm(seed: int) -> str:
    """Compare float32 by default with float64 and the direct algorithm; what came of it."""
    options, shape = draw_configuration(seed)
    torch.manual_seed(seed)
    try:
        slow = BesselConv2d(**options, dtype=torch.float64, algorithm="direct")
    except ValueError as error:
        assert_ours(error)
        return "refused"
    # Numbers that float32 holds, so that both layers see the same ones.
    fast = BesselConv2d(**options)
    slow.load_state_dict(fast.state_dict())
    image, tangent = torch.randn(shape), torch.randn(shape)
    try:
        expected = derivatives(slow, image.double(), tangent.double())
    except ValueError as error:
        assert_ours(error)
        with pytest.raises(ValueError, match="must have at least"):
            fast(image)
        return "refused"
    for name, found in derivatives(fast, image, tangent).items():
        assert found.shape == expected[name].shape, name
        if not found.numel():
            continue
        if expected[name].abs().max() <= ZERO:
            assert found.abs().max() <= ZERO, name
            continue
        assert_same(found, expected[name], TOLERANCES[torch.float32].equation)
    return "equal"


def assert_ours(error: ValueError) -> None:
    """The last to raise was the library, not torch, and it says what must be."""
    assert LIBRARY in Path(traceback.extract_tb(error.__traceback__)[-1].filename).parents
    assert "must" in str(error)


@pytest.mark.parametrize("seed", range(60))
def test_random_layers(seed):
    assert_like_the_direct_algorithm(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(60, 1060, 100))
def test_a_thousand_random_layers(first):
    results = [assert_like_the_direct_algorithm(seed) for seed in range(first, first + 100)]
    assert results.count("equal") > results.count("refused")
