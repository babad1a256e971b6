"""What the figures of functions, kernels and costs show is what the core says."""

import numpy as np
import pytest
import torch
from scipy.special import jv, jvp

from besselnet.core import kernel_modes
from besselnet.drawing._style import png_bytes
from besselnet.functional import expand_filters
from besselnet.nn import BesselConv2d
from besselnet_lab.figures.basis import basis_pictures, draw_basis
from besselnet_lab.figures.bessel import bessel_curves, draw_bessel
from besselnet_lab.figures.cost import cost_curves, draw_cost
from besselnet_lab.figures.cutoff import cutoff_counts, draw_cutoff
from besselnet_lab.figures.scales import draw_scales, scaled_filters
from tolerances import FLOAT64, assert_same


class TestBessel:
    def test_slopes_follow_from_the_neighbouring_orders(self):
        """J'_v = (J_{v-1} - J_{v+1}) / 2."""
        curves = bessel_curves(num_orders=5)
        expected = (curves.values[:-2] - curves.values[2:]) / 2
        assert np.abs(curves.slopes[1:-1] - expected).max() <= FLOAT64.equation

    def test_marks_are_where_the_slope_is_zero_and_none_is_left_out(self):
        curves = bessel_curves()
        for v, roots in enumerate(curves.roots):
            assert np.abs(jvp(v, roots)).max() <= FLOAT64.equation
            # Of order 0 the curve starts at a root, which is no crossing.
            crossings = np.sum(np.diff(np.sign(curves.slopes[v][1:])) != 0)
            assert len(roots) == crossings + (v == 0)

    def test_every_order_and_mark_is_drawn(self):
        curves = bessel_curves(num_orders=3)
        left, right = draw_bessel(curves).axes
        drawn = [line.get_xydata() for line in left.lines]
        for v, roots in enumerate(curves.roots):
            assert any(np.array_equal(d, np.stack([roots, jv(v, roots)], 1)) for d in drawn)
        assert [t.get_text() for t in right.figure.legends[0].get_texts()] == [
            f"order v = {v}" for v in range(3)
        ]


class TestBasis:
    pictures = basis_pictures(num_orders=4, num_radial=3, size=129)

    def test_roots_are_those_of_the_kernels(self):
        known = {(m.order, m.radial): m.root for m in kernel_modes(15, 1.0).modes}
        for place, root in np.ndenumerate(self.pictures.roots):
            assert known[place] == root

    def test_unit_norm_and_orthogonal(self):
        """A sum over pixels of 1/64 of the radius follows an integral over the disc to 1%."""
        flat = np.nan_to_num(self.pictures.functions.reshape(12, -1))
        gram = flat @ flat.conj().T * (2 / 129) ** 2
        assert np.abs(gram - np.eye(12)).max() < 0.01

    def test_a_quarter_turn_is_a_phase(self):
        for v, functions in enumerate(self.pictures.functions):
            turned = np.rot90(functions, axes=(-2, -1))
            expected = functions * np.exp(-0.5j * np.pi * v)
            assert np.nanmax(np.abs(turned - expected)) <= FLOAT64.equation

    def test_white_outside_the_disc_and_zero_where_there_is_no_imaginary_part(self):
        functions = self.pictures.functions
        assert np.isnan(functions[..., 0, 0].real).all()
        assert np.isnan(functions[..., 0, 0].imag).all()
        assert not np.isnan(functions[..., 64, 64]).any()
        figure = draw_basis(basis_pictures(2, 2, 9))
        texts = [text.get_text() for axes in figure.subfigs[1].axes for text in axes.texts]
        assert texts == ["zero", "zero"]


class TestCutoff:
    def test_counts_of_the_paper(self):
        soft, strong = cutoff_counts((7, 9))
        assert (soft.cutoff, strong.cutoff) == ("soft", "strong")
        assert soft.weights == (36, 59)
        assert strong.weights == (12, 17)
        assert soft.max_order == (9, 12)
        assert strong.max_order == (4, 5)
        assert soft.max_radial[0] == max(kernel_modes(7, 1.0).radial_counts) - 1

    def test_both_indices_grow_in_proportion_to_the_kernel(self):
        for count in cutoff_counts((15, 31)):
            for indices in (count.max_order, count.max_radial):
                assert indices[1] / indices[0] == pytest.approx(31 / 15, rel=0.15)

    def test_drawn(self):
        assert len(png_bytes(draw_cutoff(cutoff_counts((3, 5, 7))))) > 1000


class TestScales:
    def test_the_base_size_is_an_ordinary_layer(self):
        torch.manual_seed(3)
        layer = BesselConv2d(1, 1, 7, dtype=torch.float64)
        expected = expand_filters(layer.weight.detach(), layer.tables[0], layer.spec)[0, :, 0, 0]
        scaled = scaled_filters(7, (-2, 0, 2), seed=3)
        assert scaled.kernel_sizes == (5, 7, 9)
        assert_same(scaled.filters[1][0], expected[0], FLOAT64.rounding)
        assert_same(scaled.filters[1][2], expected[3], FLOAT64.rounding)

    def test_all_sizes_are_the_same_function(self):
        """Its integral over the disc is the same for order 0, and none for the others."""
        integrals = torch.stack([f.sum((1, 2)) for f in scaled_filters().filters])
        assert_same(integrals[0, 0], integrals[2, 0], FLOAT64.equation)
        assert integrals[:, 1:].abs().max() <= FLOAT64.equation

    def test_pixels_are_drawn_equally_large(self):
        figure = draw_scales(scaled_filters(7, (-2, 2)))
        assert {axes.get_xlim()[1] - axes.get_xlim()[0] for axes in figure.axes} == {9}


class TestCost:
    def test_counts_of_the_guide(self):
        """docs/factored.md: 49, 441 and 22 + 588 / 64 multiply-adds at k = 7."""
        curves = cost_curves(64, (5, 7))
        assert curves.operations["plain convolution"] == (25, 49)
        assert curves.operations["direct, strong cut-off"] == (125, 441)
        assert curves.operations["factored, strong cut-off"] == (10 + 150 / 64, 22 + 588 / 64)
        assert curves.operations["factored, soft cut-off"][1] == 68 + 1764 / 64

    def test_every_curve_is_drawn(self):
        curves = cost_curves(8, (3, 5))
        (axes,) = draw_cost(curves).axes
        assert {line.get_label() for line in axes.lines} == set(curves.operations)
