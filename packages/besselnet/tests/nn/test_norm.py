"""``AttentiveNorm2d`` against its definition, and what it must not break."""

import copy
import pickle

import pytest
import torch

from besselnet.nn import AttentiveNorm2d
from tolerances import FLOAT64, assert_same

PRESETS = ("bcnn", "eccv2020")


def make_norm(preset, **options):
    torch.manual_seed(0)
    norm = AttentiveNorm2d(4, 3, preset=preset, **options).double()
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return norm


def images():
    generator = torch.Generator().manual_seed(1)
    return 2 + torch.randn(5, 4, 6, 7, generator=generator, dtype=torch.float64)


def normalised(x, dims, eps=1e-5):
    mean, variance = x.mean(dims, keepdim=True), x.var(dims, correction=0, keepdim=True)
    return (x - mean) / (variance + eps).sqrt()


def test_bcnn_preset_is_its_definition():
    """s = mean, a linear map with bias and no gate, batch normalisation with its own affine part."""
    norm, x = make_norm("bcnn"), images()
    per_channel = (slice(None), None, None)
    hat = normalised(x, (0, 2, 3)) * norm.norm.weight[per_channel] + norm.norm.bias[per_channel]
    mixture = x.mean((2, 3)) @ norm.attention.weight.T + norm.attention.bias
    scale, shift = mixture @ norm.weight, mixture @ norm.bias
    expected = scale[..., None, None] * hat + shift[..., None, None]
    assert_same(norm(x), expected, FLOAT64.equation)


def test_eccv2020_preset_is_its_definition():
    """s = mean / sqrt(var + 1e-3), linear without bias, batch norm, relu6(x + 3) / 6, no affine part."""
    norm, x = make_norm("eccv2020"), images()
    statistic = x.mean((2, 3)) / (x.var((2, 3)) + 1e-3).sqrt()
    scores = normalised(statistic @ norm.attention.weight.T, 0)
    scores = scores * norm.attention_norm.weight + norm.attention_norm.bias
    mixture = torch.clamp(scores + 3, 0, 6) / 6
    scale, shift = mixture @ norm.weight, mixture @ norm.bias
    expected = scale[..., None, None] * normalised(x, (0, 2, 3)) + shift[..., None, None]
    assert_same(norm(x), expected, FLOAT64.equation)
    assert norm.norm.weight is None
    assert norm.attention.bias is None


@pytest.mark.parametrize("preset", PRESETS)
def test_maps_of_one_pixel(preset):
    """The paper's last maps: an unbiased variance would not be a number."""
    assert make_norm(preset)(images()[:, :, :1, :1]).isfinite().all()


@pytest.mark.parametrize("preset", PRESETS)
def test_keeps_quarter_turns_and_reflections(preset):
    norm, x = make_norm(preset), images()
    for move in (lambda t: torch.rot90(t, 1, (-2, -1)), lambda t: t.flip(-1)):
        assert_same(norm(move(x)), move(norm(x)), FLOAT64.rounding)


@pytest.mark.parametrize("preset", PRESETS)
def test_each_image_alone_in_eval(preset):
    """In evaluation an image's result depends on that image only."""
    norm, x = make_norm(preset), images()
    norm(x)
    norm.eval()
    assert_same(torch.cat([norm(one[None]) for one in x]), norm(x), FLOAT64.rounding)


@pytest.mark.parametrize("preset", PRESETS)
def test_gradcheck(preset):
    norm = make_norm(preset)
    assert torch.autograd.gradcheck(norm, images()[:3, :, :3, :2].clone().requires_grad_())


@pytest.mark.parametrize("preset", PRESETS)
def test_starts_near_identity_mixture(preset):
    """W around 1 and B around 0 with a spread of 0.1."""
    torch.manual_seed(0)
    norm = AttentiveNorm2d(500, 20, preset=preset)
    assert norm.weight.shape == norm.bias.shape == (20, 500)
    # 10 000 numbers: standard errors of 0.001 for the mean, 0.0007 for the spread.
    for parameter, mean in ((norm.weight, 1.0), (norm.bias, 0.0)):
        assert abs(parameter.mean().item() - mean) < 0.005
        assert abs(parameter.std().item() - 0.1) < 0.005


def test_default_mixtures():
    assert AttentiveNorm2d(4).weight.shape == (5, 4)


@pytest.mark.parametrize("preset", PRESETS)
def test_eps_and_momentum_reach_the_normalisation(preset):
    norm = AttentiveNorm2d(4, preset=preset, eps=1e-3, momentum=0.01)
    assert (norm.norm.eps, norm.norm.momentum) == (1e-3, 0.01)


@pytest.mark.parametrize("preset", PRESETS)
def test_copies_and_state(preset):
    norm, x = make_norm(preset).eval(), images()
    for twin in (copy.deepcopy(norm), pickle.loads(pickle.dumps(norm))):
        assert_same(twin(x), norm(x), 0.0)
    fresh = AttentiveNorm2d(4, 3, preset=preset).double().eval()
    fresh.load_state_dict(norm.state_dict())
    assert_same(fresh(x), norm(x), 0.0)


@pytest.mark.parametrize(
    "bad",
    [
        {"num_features": 0},
        {"num_features": 2.0},
        {"num_features": True},
        {"num_mixtures": 0},
        {"preset": "iccv"},
    ],
    ids=str,
)
def test_bad_argument(bad):
    ((name, value),) = bad.items()
    with pytest.raises(ValueError, match="must") as raised:
        AttentiveNorm2d(**({"num_features": 4} | bad))
    assert f"{name}={value!r}" in str(raised.value)


@pytest.mark.parametrize("shape", [(4, 6, 6), (2, 5, 6, 6), (2, 4)], ids=str)
def test_bad_shape(shape):
    with pytest.raises(ValueError, match=r"input has shape .*: must be \(N, 4, H, W\)"):
        AttentiveNorm2d(4)(torch.rand(shape))
