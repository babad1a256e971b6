"""The check for known vulnerabilities never says "none" where it has not asked."""

import json
import runpy
import sys

import pytest

from places import ROOT

TOOL = runpy.run_path(str(ROOT / "tools" / "audit.py"))
CLEAN = {"name": "numpy", "version": "1.26.4", "vulns": []}
VULNERABLE = {
    "name": "pillow",
    "version": "9.0.0",
    "vulns": [{"id": "PYSEC-2022-1", "fix_versions": ["9.0.1"]}],
}
SKIPPED = {"name": "scipy", "skip_reason": "Dependency not found on PyPI and could not be audited"}
OURS = {"name": "besselnet", "skip_reason": "distribution marked as editable"}


@pytest.mark.parametrize(
    ("packages", "code", "said"),
    [
        ([CLEAN, OURS], 0, "1 packages checked"),
        ([CLEAN, VULNERABLE], 1, "pillow 9.0.0: PYSEC-2022-1, fixed in 9.0.1"),
        ([VULNERABLE, SKIPPED], 1, "NOT CHECKED: 1 packages: scipy"),
        ([CLEAN, SKIPPED], 3, "NOT CHECKED: 1 packages: scipy"),
        ([SKIPPED, OURS], 3, "NOT CHECKED"),
        ([], 3, "NOT CHECKED"),
    ],
)
def test_only_what_the_database_answered_for_counts(packages, code, said):
    found, lines = TOOL["verdict"]({"dependencies": packages, "fixes": []})
    assert found == code
    assert any(said in line for line in lines)
    assert any("no known vulnerability" in line for line in lines) == (
        CLEAN in packages and VULNERABLE not in packages
    )


@pytest.mark.parametrize(
    "program",
    [
        # What pip-audit does without a connection: it skips every package and is content.
        f"print({json.dumps({'dependencies': [SKIPPED]})!r}); "
        "print('No known vulnerabilities found', file=sys.stderr)",
        "raise SystemExit('ConnectionError: Max retries exceeded')",
        "print('not JSON')",
        "print('{}')",
    ],
)
def test_without_the_database_it_says_so_in_one_line(tmp_path, program):
    code, lines = TOOL["audit"](str(tmp_path), [sys.executable, "-c", f"import sys; {program}"])
    assert code == 3
    assert len(lines) == 1
    assert lines[0].startswith("NOT CHECKED")
    assert "no known vulnerability" not in lines[0]
