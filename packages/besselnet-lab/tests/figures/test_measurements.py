"""Figures and tables of measured errors: made by the tools of `besselnet.testing`, shown in the guide."""

import json

import pytest
import torch

from besselnet.drawing._style import png_bytes
from besselnet.nn import BesselConv2d
from besselnet.testing import ROUNDING, plane_waves, relative_spread
from besselnet_lab.figures import equivariance
from besselnet_lab.figures.breaking import (
    BROKEN,
    BreakingRow,
    breaking_rows,
    breaking_table,
    draw_breaking,
)
from besselnet_lab.figures.equivariance import (
    ESCNN,
    SpreadRow,
    draw_error_curves,
    error_curves,
    escnn_power,
    spread_rows,
    spread_table,
)
from places import DOCS

EXACT = ROUNDING[torch.float32]


class TestErrorCurves:
    def test_quarter_turns_are_exact_and_bilinear_sampling_is_best(self):
        curves = error_curves(angles=(0.0, 20.0, 45.0, 90.0), images=16, channels=4)
        for errors in curves.errors.values():
            assert errors[0] <= EXACT
            assert errors[-1] <= EXACT
        at_20 = {name: errors[1] for name, errors in curves.errors.items()}
        assert at_20['sampling="bilinear"'] < at_20['sampling="cubic"'] < at_20['sampling="point"']
        (axes,) = draw_error_curves(curves).axes
        assert {line.get_label() for line in axes.lines} == set(curves.errors)

    def test_without_escnn_its_curve_is_left_out(self, monkeypatch):
        monkeypatch.setattr(equivariance, "escnn_power", lambda *_: None)
        assert ESCNN not in error_curves(angles=(0.0,), images=2, channels=1).errors

    def test_escnn_turns_with_the_image(self):
        pytest.importorskip("escnn", reason="escnn is not installed (extra: peers)")
        layer = escnn_power(7, channels=3, seed=0)
        probe = plane_waves(8, size=7, min_wavelength=4.0, window=False)
        assert layer(probe.turned().float()).shape == (8, 3, 1, 1)
        assert relative_spread(layer, probe) < 0.05


class TestSpreadTable:
    def test_rows_are_the_relative_spread_of_a_layer(self, monkeypatch):
        monkeypatch.setattr(equivariance, "escnn_power", lambda *_: None)
        (row,) = spread_rows((7,), ("strong",), (3.0,), images=8, channels=2, seed=5)
        torch.manual_seed(5)
        layer = BesselConv2d(1, 2, 7, bias=False, response="power", sampling="point")
        probe = plane_waves(8, size=7, min_wavelength=3.0, window=False, seed=5)
        assert row.spread["point"] == pytest.approx(relative_spread(layer, probe))

    def test_what_is_not_there_stays_empty(self):
        row = SpreadRow(7, "soft", 2.0, {"bilinear": 0.0771, "point": 0.25}, None)
        lines = spread_table([row]).splitlines()
        assert len(lines) == 3
        assert lines[2] == "| 7, soft | 2 pixels | 0.077 | 0.250 |  |"


class TestBreaking:
    def test_what_keeps_and_what_breaks(self):
        wanted = ("a Bessel layer", "stride 2 that does not fit", "all layers `nn.Conv2d`")
        chosen = [change for change in BROKEN if change.title in wanted]
        kept, stride, plain = breaking_rows(chosen, images=4)
        assert kept.maps <= EXACT < 0.01 < stride.maps < plain.maps
        assert kept.outputs < plain.outputs
        assert len(png_bytes(draw_breaking([kept, stride, plain]))) > 1000

    def test_small_errors_are_shown_as_powers_of_ten(self):
        row = BreakingRow("`BlurPool2d()`", 32, 2.1e-7, 0.0712)
        assert breaking_table([row]).splitlines()[2] == "| `BlurPool2d()` | 32 | 2e-07 | 0.07 |"


class TestGuide:
    """The tables of docs/equivariance.md are those that the command wrote."""

    @pytest.mark.parametrize(
        ("name", "kind", "table"),
        [("equivariance", SpreadRow, spread_table), ("breaking", BreakingRow, breaking_table)],
    )
    def test_tables_are_not_typed(self, name, kind, table):
        stored = json.loads((DOCS / "images" / "figures" / f"{name}.json").read_text())
        guide = (DOCS / "equivariance.md").read_text()
        assert table([kind(**row) for row in stored]) in guide

    def test_a_stored_number_comes_out_again(self):
        """The seventh row, 7 pixels and strong cut-off, needs no escnn; other processors round
        differently."""
        stored = json.loads((DOCS / "images" / "figures" / "equivariance.json").read_text())
        row = next(r for r in stored if (r["kernel_size"], r["cutoff"]) == (7, "strong"))
        again = spread_rows((7,), ("soft", "strong"), (row["wavelength"],))[1]
        assert again.spread == pytest.approx(row["spread"], rel=1e-3)
