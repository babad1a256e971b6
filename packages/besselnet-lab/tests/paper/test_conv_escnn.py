"""``BesselConv2d`` against escnn: a trivial field to irreps of SO(2), squared norms summed."""

import pytest
import torch

from besselnet.functional import expand_filters
from besselnet.nn import BesselConv2d
from besselnet.testing import plane_waves, relative_spread
from tolerances import TOLERANCES, assert_same

KERNEL_SIZE = 7
MAX_ORDER = 4  # of the strong cut-off at k = 7


@pytest.fixture(scope="module")
def escnn():
    return pytest.importorskip("escnn", reason="escnn is not installed (extra: peers)")


def steerable_power(escnn, max_order, **options):
    """An escnn layer to the irreps 0 .. max_order, and the function image -> summed squared norms."""
    space = escnn.gspaces.rot2dOnR2(-1, maximum_frequency=max_order)
    scalar = escnn.nn.FieldType(space, [space.trivial_repr])
    irreps = escnn.nn.FieldType(space, [space.irrep(v) for v in range(max_order + 1)])
    torch.manual_seed(0)
    layer = escnn.nn.R2Conv(scalar, irreps, KERNEL_SIZE, bias=False, **options)

    def power(images):
        return layer(escnn.nn.GeometricTensor(images, scalar)).tensor.square().sum(1, keepdim=True)

    return layer, power


def lattice_radii():
    axis = torch.arange(KERNEL_SIZE, dtype=torch.float64) - KERNEL_SIZE // 2
    return torch.hypot(axis[:, None], axis[None, :]).round(decimals=9).unique().tolist()


def test_our_filters_are_in_the_span_of_steerable_filters(escnn):
    """escnn with a ring at every pixel distance spans all steerable filters on the lattice. Those of
    our layer, sampled at points as escnn samples, are among them; with them escnn responds as we do.
    """
    rings = lattice_radii()
    theirs, power = steerable_power(
        escnn, MAX_ORDER, rings=rings, sigma=[0.12] * len(rings), frequencies_cutoff=lambda _: 99.0
    )
    torch.manual_seed(0)
    ours = BesselConv2d(
        1, 1, KERNEL_SIZE, bias=False, sampling="point", response="power", dtype=torch.float64
    ).requires_grad_(False)
    filters = expand_filters(ours.weight, ours.tables[0], ours.spec)[0, :, 0, 0]
    # A turn multiplies our complex response by e^{-iv alpha} and theirs, a vector, by the rotation
    # with +v alpha: the imaginary parts have opposite signs.
    filters[2::2] *= -1
    span = torch.stack(
        [theirs.basisexpansion(one).double().flatten() for one in torch.eye(theirs.weights.numel())]
    )
    solution = torch.linalg.lstsq(span.T, filters.flatten()[:, None], driver="gelsd").solution
    assert_same((solution[:, 0] @ span), filters.flatten(), TOLERANCES[torch.float32].rounding)

    with torch.no_grad():
        theirs.weights.copy_(solution[:, 0])
        images = torch.randn(2, 1, 11, 11, generator=torch.Generator().manual_seed(1))
        assert_same(power(images), ours(images.double()), TOLERANCES[torch.float32].equation)


def test_equivariance_is_at_least_as_good(escnn):
    """On waves of 4 pixels both are equivariant to a few percent, ours more so."""
    _, power = steerable_power(escnn, 3)
    probe = plane_waves(32, size=KERNEL_SIZE, window=False)
    torch.manual_seed(0)
    ours = BesselConv2d(1, 8, KERNEL_SIZE, bias=False, cutoff="soft", response="power")
    their_spread, our_spread = relative_spread(power, probe), relative_spread(ours, probe)
    assert their_spread < 0.05
    assert our_spread < their_spread
