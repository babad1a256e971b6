"""Properties of ``bessel_conv2d`` that are not a matter of options."""

import pytest
import torch

from besselnet.functional import BasisSpec, bessel_conv2d, expand_filters
from besselnet.functional._conv import strongest
from functional.equation_loops import ALGORITHMS
from tolerances import FLOAT64, TOLERANCES, assert_same


def spec_and_weight(kernel_size=5, *, dtype=torch.float64, **options):
    spec = BasisSpec.checked(kernel_size, **options)
    generator = torch.Generator().manual_seed(0)
    return spec, torch.randn(4, 3, spec.num_weights, generator=generator, dtype=dtype)


def images(dtype=torch.float64):
    return torch.randn(2, 3, 9, 9, generator=torch.Generator().manual_seed(1), dtype=dtype)


@pytest.mark.parametrize("symmetry", ["SO(2)", "O(2)"])
def test_response_is_the_energy_of_the_expanded_filters(symmetry):
    spec, weight = spec_and_weight(symmetry=symmetry)
    filters = expand_filters(weight, spec.tables(dtype=weight.dtype)[0], spec)
    assert filters.shape == (1, spec.num_maps, 4, 3, 5, 5)
    energy = sum(torch.nn.functional.conv2d(images(), f).square() for f in filters[0])
    response = bessel_conv2d(images(), weight, spec=spec, response="power")
    assert_same(response, energy, FLOAT64.rounding)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(("response", "degree"), [("power", 2), ("amplitude", 1), ("signed", 1)])
def test_degree_in_the_input(response, degree, algorithm):
    spec, weight = spec_and_weight()
    once, thrice = (
        bessel_conv2d(factor * images(), weight, spec=spec, response=response, algorithm=algorithm)
        for factor in (1, 3)
    )
    assert_same(thrice, 3**degree * once, FLOAT64.rounding)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_amplitude_has_finite_slope_where_the_image_is_blank(algorithm):
    spec, weight = spec_and_weight(dtype=torch.float32)
    blank = torch.zeros(1, 3, 9, 9, requires_grad=True)
    weight.requires_grad_()
    response = bessel_conv2d(blank, weight, spec=spec, algorithm=algorithm)
    response.sum().backward()
    assert response.abs().max() < 1e-15
    assert blank.grad.isfinite().all()
    assert weight.grad.isfinite().all()


def test_strongest_by_hand():
    """Two scales, two maps of two pixels: map 0 favours the first scale, map 1 the second."""
    first = torch.tensor([[[[3.0, 0.0]], [[0.0, 1.0]]]])
    second = torch.tensor([[[[1.0, 1.0]], [[5.0, 0.0]]]])
    expected = {
        "pixel": [[[[3.0, 1.0]], [[5.0, 1.0]]]],
        "map": [[[[3.0, 0.0]], [[5.0, 0.0]]]],
        "image": [[[[1.0, 1.0]], [[5.0, 0.0]]]],
    }
    for pool, values in expected.items():
        assert strongest([first, second], pool).tolist() == values


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_low_precision_agrees_with_float64(dtype, algorithm):
    spec, weight = spec_and_weight()
    exact = bessel_conv2d(images(), weight, spec=spec)
    low = bessel_conv2d(images().to(dtype), weight.to(dtype), spec=spec, algorithm=algorithm)
    assert low.dtype == dtype
    assert_same(low, exact, TOLERANCES[dtype].equation)


def test_an_image_smaller_than_the_kernel_is_refused():
    spec, weight = spec_and_weight(scales=(0, 2))
    with pytest.raises(ValueError, match=r"must have at least 5"):
        bessel_conv2d(images()[..., :4, :], weight, spec=spec)


def test_weights_of_another_basis_are_refused():
    spec, weight = spec_and_weight()
    with pytest.raises(ValueError, match=r"weight has shape \(4, 3, 5\): must"):
        bessel_conv2d(images(), weight[..., :5], spec=spec)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("response", "energy"),
        ("scale_pool", "max"),
        ("algorithm", "fast"),
        ("padding_mode", "mirror"),
    ],
)
def test_unknown_words_are_refused(name, value):
    spec, weight = spec_and_weight()
    with pytest.raises(ValueError, match=rf"{name}='{value}': must be one of"):
        bessel_conv2d(images(), weight, spec=spec, **{name: value})
