"""The tables of a layer and what decides them."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.special import jv

from besselnet.core import sampled_basis
from besselnet.functional import BasisSpec
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


def test_tables_are_real_parts_then_imaginary_parts():
    spec = BasisSpec.checked(5, cutoff="soft", scales=(-2, 0, 2))
    for size, table in zip((3, 5, 7), spec.tables(dtype=torch.float64)):
        taps = sampled_basis(size, spec.modes, "bilinear")
        whole = [m.order > 0 for m in spec.modes.modes]
        expected = np.concatenate([taps.real, taps.imag[whole]])
        assert np.array_equal(table.numpy(), expected)
        # What is left out is zero.
        assert np.abs(taps.imag[np.logical_not(whole)]).max() < 1e-15


@pytest.mark.parametrize("kernel_size", [1, 2, 5, 9])
def test_norms_of_the_authors_are_factors_on_the_filters(kernel_size):
    """The factor of a mode is that of its norms on the disc of radius (k - 1) / 2 and on the unit disc."""
    options = {"cutoff": "soft", "scales": (0, 2)}
    unit = BasisSpec.checked(kernel_size, **options)
    authors = BasisSpec.checked(kernel_size, mode_norms="authors", **options)
    assert unit != authors
    radius = max(1.0, (kernel_size - 1) / 2)
    modes = unit.modes.modes
    norms = [
        [
            np.sqrt(quad(lambda r, m=m: r * jv(m.order, m.root * r) ** 2, 0, r, limit=200)[0])
            for m in modes
        ]
        for r in (1.0, radius)
    ]
    factor = np.array(norms[0]) / np.array(norms[1])
    factor = np.concatenate([factor, factor[[m.order > 0 for m in modes]]])[:, None, None]
    for one, other in zip(unit.tables(dtype=torch.float64), authors.tables(dtype=torch.float64)):
        assert np.allclose(one.numpy() * factor, other.numpy(), rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("kernel_size", [3, 7, 9])
def test_filters_of_the_published_code(kernel_size):
    """Pixel by pixel: J_v(k rho) exp(-i v theta) on a grid from -1 to 1, over the norm of its pixels."""
    spec = BasisSpec.checked(kernel_size, mode_norms="authors-pixels", sampling="point")
    half = kernel_size // 2
    expected = []
    for mode in spec.modes.modes:
        norm = 2 * math.pi * sum(r * jv(mode.order, mode.root * r) ** 2 for r in range(half + 1))
        taps = np.zeros((kernel_size, kernel_size), dtype=complex)
        for i, j in np.ndindex(taps.shape):
            y, x = 1 - i / half, j / half - 1  # up and right, as everywhere here
            if math.hypot(x, y) <= 1 + 1e-9:
                turn = np.exp(-1j * mode.order * math.atan2(y, x))
                taps[i, j] = jv(mode.order, mode.root * math.hypot(x, y)) * turn / math.sqrt(norm)
        expected.append(taps)
    whole = [mode.order > 0 for mode in spec.modes.modes]
    expected = np.concatenate([np.real(expected), np.imag(expected)[whole]])
    (table,) = spec.tables(dtype=torch.float64)
    assert_same(table, torch.tensor(expected), FLOAT64.equation)


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
        *(("mode_norms", v) for v in ("paper", None)),
        *(("scales", v) for v in ((), (0, 0), (1,), (0.0, 2.0), "02", 2, (-6, 0), (-8,))),
    ],
)
def test_bad_values_are_named(argument, value):
    arguments = {"kernel_size": 5} | {argument: value}
    with pytest.raises(ValueError, match="allowed") as raised:
        BasisSpec.checked(**arguments)
    assert f"{argument}={value!r}" in str(raised.value)
