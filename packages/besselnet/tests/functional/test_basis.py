"""The tables of a layer and what decides them."""

import numpy as np
import pytest
import torch

from besselnet.core import sampled_basis
from besselnet.functional import BasisSpec, mixing_matrix
from tolerances import FLOAT64, assert_same


@pytest.mark.parametrize(
    ("kernel_size", "cutoff", "count"),
    [(7, "soft", 36), (7, "strong", 12), (9, "soft", 59), (9, "strong", 17), (1, "soft", 1)],
)
def test_real_weights_per_channel_pair(kernel_size, cutoff, count):
    spec = BasisSpec.checked(kernel_size, cutoff=cutoff)
    assert spec.num_weights == count
    assert spec.tables()[0].shape == (count, kernel_size, kernel_size)


@pytest.mark.parametrize(("symmetry", "maps"), [("SO(2)", 19), ("O(2)", 37)])
def test_maps_per_output_channel(symmetry, maps):
    """10 orders at k=7 soft: 2 v_max - 1 real maps, 4 v_max - 3 with reflections."""
    assert BasisSpec.checked(7, cutoff="soft", symmetry=symmetry).num_maps == maps


def test_tables_lie_order_by_order_cosines_then_sines():
    spec = BasisSpec.checked(5, cutoff="soft", scales=(-2, 0, 2))
    for size, table in zip((3, 5, 7), spec.tables(dtype=torch.float64)):
        taps = sampled_basis(size, spec.modes, "cubic")
        orders = np.array([m.order for m in spec.modes.modes])
        for v, (cosines, sines) in enumerate(spec.order_slices):
            assert np.array_equal(table[cosines].numpy(), taps[orders == v].real)
            if v:
                assert np.array_equal(table[sines].numpy(), taps[orders == v].imag)
            else:
                # What is left out is zero.
                assert sines.start == sines.stop
                assert np.abs(taps[orders == 0].imag).max() < 1e-15


@pytest.mark.parametrize("symmetry", ["SO(2)", "O(2)"])
def test_expansion_and_mixing_are_the_same_bilinear_form(symmetry):
    """Maps of random coefficients: by the dense table of the direct algorithm, and product by product."""
    spec = BasisSpec.checked(7, cutoff="soft", symmetry=symmetry)
    weight = torch.randn(2, 3, spec.num_weights, dtype=torch.float64)
    phi = torch.randn(3, spec.num_weights, dtype=torch.float64)
    index, signs = spec.expansion(dtype=torch.float64)
    between = (phi[:, index] * signs.T).view(3, spec.num_maps, spec.num_weights)
    dense = torch.einsum("ocn,cmn->om", weight, between)
    matrix = mixing_matrix(weight, spec.plan)  # (2, O, F, C)
    maps = [
        torch.einsum("ofc,cf->o", matrix[number, :, run.filters], phi[:, run.filters])
        for run in spec.plan.products
        for number in range(run.num_maps)
    ]
    assert_same(torch.stack(maps, 1), dense, FLOAT64.rounding)
    assert spec.plan.multiply_adds == signs.count_nonzero()


def test_equal_specs_are_equal_keys():
    one, other = (BasisSpec.checked(7, cutoff=c, scales=[-2, 0]) for c in ("strong", 0.5))
    assert one == other
    assert hash(one) == hash(other)
    assert one != BasisSpec.checked(7, cutoff=0.6, scales=[-2, 0])


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        *(("kernel_size", v) for v in (0, -3, 2.5, "7", None, True, (3, 5), (3, 3, 3))),
        *(("symmetry", v) for v in ("so(2)", "C4", None)),
        *(("cutoff", v) for v in (0, -1.0, float("nan"), float("inf"), "weak", None, True)),
        *(("sampling", v) for v in ("nearest", None)),
        *(("scales", v) for v in ((), (0, 0), (1,), (0.0, 2.0), "02", 2, (-6, 0), (-8,))),
    ],
)
def test_bad_values_are_named(argument, value):
    arguments = {"kernel_size": 5} | {argument: value}
    with pytest.raises(ValueError, match="must") as raised:
        BasisSpec.checked(**arguments)
    assert f"{argument}={value!r}" in str(raised.value)
