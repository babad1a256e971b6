"""All JSON that the packages write is JSON, which has no NaN and no infinity."""

import ast
import json
import subprocess

import pytest

from places import ROOT

SOURCES = sorted((ROOT / "packages").glob("*/src/**/*.py"))


def writes_json(node: ast.AST) -> bool:
    """Whether it is a call of `json.dump` or `json.dumps`."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("dump", "dumps")
        and ast.unparse(node.func.value) == "json"
    )


def test_no_number_is_written_that_is_not_finite():
    calls = [
        (path, node)
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if writes_json(node)
    ]
    assert len(calls) > 10
    for path, call in calls:
        strict = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        assert strict.get("allow_nan") == "False", f"{path}:{call.lineno}"


def refuse(constant: str) -> None:
    raise ValueError(constant)


def test_committed_json_is_json():
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "*.json"], capture_output=True, text=True
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in listed.stdout.splitlines():
        json.loads((ROOT / name).read_text(), parse_constant=refuse)
