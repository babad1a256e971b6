"""What `make release` checks, and what people who contribute are told."""

import re
import runpy
import shutil

import pytest

import besselnet
import besselnet_lab
from places import ROOT

TOOL = runpy.run_path(str(ROOT / "tools" / "release.py"))


def test_both_packages_have_one_version_and_the_changelog_begins_with_it():
    assert TOOL["version_of"]("besselnet") == besselnet.__version__ == besselnet_lab.__version__
    sections = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert sections[:2] == ["Unreleased", besselnet.__version__]
    versions = [tuple(map(int, version.split("."))) for version in sections[1:]]
    assert versions == sorted(versions, reverse=True)


def test_badges_are_true_and_shown():
    committed = {path.name: path.read_text() for path in TOOL["BADGES"].glob("*.svg")}
    assert committed == TOOL["badges"]()
    assert f"version: {besselnet.__version__}" in committed["version.svg"]
    readme = (ROOT / "README.md").read_text()
    assert all(f"docs/images/badges/{name}" in readme for name in committed)


@pytest.fixture
def copy(tmp_path):
    """The tool in a copy of what it reads."""
    for name in ("CHANGELOG.md", "CITATION.cff", "tools/release.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for name, package in TOOL["PACKAGES"].items():
        place = package.relative_to(ROOT)
        for file in ("pyproject.toml", f"src/{name}/_version.py"):
            (tmp_path / place / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / place / file, tmp_path / place / file)
    shutil.copytree(TOOL["BADGES"], tmp_path / "docs" / "images" / "badges")
    changes = tmp_path / "CHANGELOG.md"
    text = re.sub(r"(## \[Unreleased\]\n).*?(?=\n## )", r"\1", changes.read_text(), flags=re.DOTALL)
    changes.write_text(text)
    return tmp_path


def problems(folder):
    return runpy.run_path(str(folder / "tools" / "release.py"))["problems_of_repository"]()


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("packages/besselnet-lab/src/besselnet_lab/_version.py", besselnet.__version__, "9.9.9"),
        ("CHANGELOG.md", "## [Unreleased]\n", "## [Unreleased]\n\n### Added\n- A thing.\n"),
        ("CHANGELOG.md", f"[{besselnet.__version__}] - ", f"[{besselnet.__version__}] "),
        ("CITATION.cff", f"version: {besselnet.__version__}", "version: 9.9.9"),
        ("docs/images/badges/version.svg", besselnet.__version__, "9.9.9"),
    ],
)
def test_what_is_not_ready_is_refused(copy, file, old, new):
    assert problems(copy) == []
    text = (copy / file).read_text()
    assert old in text
    (copy / file).write_text(text.replace(old, new))
    assert problems(copy)


def test_files_must_be_there(tmp_path):
    assert len(TOOL["problems_of_files"](tmp_path)) == 2


def test_places_and_targets_that_contributors_are_told_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    places = re.findall(r"`((?:packages|docs|examples|tests|tools)/[\w./-]+)`", text)
    assert len(places) > 8
    assert not [place for place in places if not (ROOT / place).exists()]
    targets = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z-]+)\b", text)) - {"help"}
    assert named <= targets
    for link in re.findall(r"\]\(([\w.]+)\)", text):
        assert (ROOT / link).is_file()


def test_issue_templates_can_be_read():
    yaml = pytest.importorskip("yaml")

    templates = list((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
    forms = [yaml.safe_load(path.read_text()) for path in templates if path.stem != "config"]
    assert len(forms) >= 2
    for form in forms:
        assert {"name", "description", "body"} <= form.keys()
        assert all(part["attributes"]["label"] for part in form["body"])
