"""Norms of the modes as the published code has them: factors on the weights of a layer."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.special import jv
from torch import nn

from besselnet.core import kernel_modes
from besselnet.functional import BasisSpec
from besselnet.models import create_model
from besselnet.nn import BesselConv2d
from besselnet_lab.paper.mode_norms import apply_mode_norms, mode_factors
from models.probes import arguments, smooth_images
from tolerances import FLOAT64, assert_same

AUTHORS = ["authors", "authors-pixels"]


def weights_of_modes(modes):
    """The mode and the part (cosine or sine) of every weight, order by order."""
    for order in range(modes.num_orders):
        for part in ("cosine", "sine") if order else ("cosine",):
            for mode in modes.modes:
                if mode.order == order:
                    yield mode, part


def set_norms(layer, norms):
    apply_mode_norms(nn.Sequential(layer), norms)
    return layer


@pytest.mark.parametrize("kernel_size", [1, 2, 5, 9])
def test_norms_of_the_authors_are_norms_on_a_larger_disc(kernel_size):
    """The factor of a mode is that of its norms on the disc of radius (k - 1) / 2 and on the unit disc."""
    modes = kernel_modes(kernel_size, 1.0)
    radius = max(1.0, (kernel_size - 1) / 2)

    def norm(mode, upper):
        square = quad(lambda r: r * jv(mode.order, mode.root * r) ** 2, 0, upper, limit=200)[0]
        return math.sqrt(square)

    expected = [norm(mode, 1.0) / norm(mode, radius) for mode, _ in weights_of_modes(modes)]
    assert np.allclose(mode_factors(kernel_size, modes, "authors"), expected, rtol=1e-9, atol=0)
    assert np.array_equal(mode_factors(kernel_size, modes, "unit"), np.ones(modes.num_real))


@pytest.mark.parametrize("kernel_size", [3, 7, 9])
def test_filters_of_the_published_code(kernel_size):
    """Pixel by pixel: J_v(k rho) exp(-i v theta) on a grid from -1 to 1, over the norm of its pixels."""
    spec = BasisSpec.checked(kernel_size, sampling="point")
    half = kernel_size // 2
    expected = []
    for mode, part in weights_of_modes(spec.modes):
        norm = 2 * math.pi * sum(r * jv(mode.order, mode.root * r) ** 2 for r in range(half + 1))
        taps = np.zeros((kernel_size, kernel_size), dtype=complex)
        for i, j in np.ndindex(taps.shape):
            y, x = 1 - i / half, j / half - 1  # up and right, as everywhere here
            if math.hypot(x, y) <= 1 + 1e-9:
                phase = np.exp(-1j * mode.order * math.atan2(y, x))
                taps[i, j] = jv(mode.order, mode.root * math.hypot(x, y)) * phase / math.sqrt(norm)
        expected.append(taps.real if part == "cosine" else taps.imag)
    factors = torch.tensor(mode_factors(kernel_size, spec.modes, "authors-pixels"))
    (table,) = spec.tables(dtype=torch.float64)
    assert_same(table * factors[:, None, None], torch.tensor(np.array(expected)), FLOAT64.equation)


@pytest.mark.parametrize("norms", AUTHORS)
@pytest.mark.parametrize(
    "options", [{}, {"cutoff": "soft", "symmetry": "O(2)"}, {"scales": (0, 2)}]
)
def test_a_response_is_that_of_the_multiplied_filters(norms, options):
    """Each filter of each scale times the factor of its mode, with the same numbers as weights."""
    torch.manual_seed(0)
    layer = BesselConv2d(2, 3, 7, dtype=torch.float64, **options)
    images = torch.rand(2, 2, 16, 16, dtype=torch.float64)
    share = {"strong": 0.5, "soft": 1.0}[layer.cutoff]
    factors = torch.tensor(mode_factors(7, kernel_modes(7, share), norms))
    multiplied = BesselConv2d(2, 3, 7, dtype=torch.float64, **options)
    with torch.no_grad():
        multiplied.weight.copy_(layer.weight)
        for table in multiplied.tables:
            table.mul_(factors[:, None, None])
    expected = multiplied(images)
    assert_same(set_norms(layer, norms)(images), expected, FLOAT64.equation)


@pytest.mark.parametrize("norms", AUTHORS)
def test_norms_of_modes_change_the_parameters_not_what_a_layer_expresses(norms):
    torch.manual_seed(0)
    unit = BesselConv2d(2, 3, 7)
    factors = torch.tensor(mode_factors(7, kernel_modes(7, 0.5), norms), dtype=torch.float32)
    authors = BesselConv2d(2, 3, 7)
    with torch.no_grad():
        authors.weight.copy_(unit.weight / factors)
    images = torch.rand(2, 2, 12, 12)
    torch.testing.assert_close(set_norms(authors, norms)(images), unit(images))
    # The constant mode is weakened most.
    assert factors.argmin() == 0


@pytest.mark.parametrize("name", ["replication_bcnn_so2_strong", "replication_besselnet_digits"])
@pytest.mark.parametrize("norms", AUTHORS)
def test_a_network_starts_with_the_same_numbers_whatever_their_norms(name, norms):
    torch.manual_seed(3)
    unit = create_model(name, **arguments("mnist"))
    torch.manual_seed(3)
    other = create_model(name, **arguments("mnist"), mode_norms=norms)
    layers = [[m for m in net.modules() if isinstance(m, BesselConv2d)] for net in (unit, other)]
    assert len(layers[0]) == len(layers[1]) == 6
    for plain, scaled in zip(*layers):
        assert torch.equal(plain.weight, scaled.parametrizations.weight.original)
        assert not torch.allclose(plain.weight, scaled.weight)
    images = smooth_images(2, 1, 28)
    with torch.no_grad():
        assert not torch.allclose(unit.eval()(images), other.eval()(images))


def test_factors_are_no_part_of_a_checkpoint_and_follow_the_type_of_the_weights():
    layer = set_norms(BesselConv2d(1, 2, 5), "authors").double()
    assert set(layer.state_dict()) == {"parametrizations.weight.original", "bias"}
    assert layer(torch.rand(1, 1, 8, 8, dtype=torch.float64)).dtype == torch.float64


@pytest.mark.parametrize("value", ["paper", None])
def test_unknown_norms_are_named(value):
    with pytest.raises(ValueError, match=rf"mode_norms={value!r}.*'authors-pixels'"):
        apply_mode_norms(BesselConv2d(1, 1, 3), value)
