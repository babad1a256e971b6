"""Every package that an installation can bring along has a compatible licence and is listed."""

import re
import runpy
import sys
from importlib import metadata

from places import DOCS, ROOT

TOOL = runpy.run_path(str(ROOT / "tools" / "licences.py"))


def test_licences_are_compatible_and_those_of_our_requirements_listed(monkeypatch):
    # Whoever imports setuptools gets the packages inside of it on the path: they are not installed.
    installed = [place for place in sys.path if "_vendor" not in place]
    monkeypatch.setattr(sys, "path", installed)
    tables = TOOL["tables"]()
    assert {"torch", "numpy", "scipy", "safetensors"} <= set(tables["besselnet"])
    assert not set(tables["besselnet"]) & set(tables["besselnet-lab"])
    table = {name: text for found in tables.values() for name, text in found.items()}
    for name, licence in table.items():
        assert any(word in licence for word in TOOL["COMPATIBLE"]), f"{name}: {licence!r}"
    # What those bring along in turn may change with their versions; what we ask for may not.
    page = (DOCS / "licences.md").read_text()
    for requirement in [line for package in tables for line in metadata.requires(package)]:
        name = TOOL["normal"](re.match(r"[A-Za-z0-9._-]+", requirement)[0])
        if name in table:
            assert f"| {name} | " in page, f"{name} is missing: run tools/licences.py"


def test_an_incompatible_licence_would_be_seen():
    for text in ("GPL-3.0-only", "GNU General Public License v3 (GPLv3)", "Proprietary", ""):
        assert not any(word in text for word in TOOL["COMPATIBLE"])
