"""The notebooks of examples/ run, show what is committed, and are pages of the site."""

import importlib.util
import json
import re
import runpy

import pytest

from places import ROOT

NOTEBOOKS = {path.stem: path for path in (ROOT / "examples").glob("*.ipynb")}
PAGES = runpy.run_path(str(ROOT / "tools" / "notebook_pages.py")) if NOTEBOOKS else {}
# Packages that a notebook needs beside those of the extra `train`.
NEEDS = {"convert_your_resnet": "mlxtend", "own_images": "skimage", "quick_start": "mlxtend"}
INSTALL = re.compile(r'%pip install --quiet "\{source\.resolve\(\)\}\[([\w,]+)\]"')


def outputs(page: str) -> list[str | int]:
    """What the cells of a page show: a picture, or a text of so many lines. Numbers are the machine's own."""
    shown = re.findall(r"^```text\n(.*?)^```$|^!\[.*?\]", page, re.MULTILINE | re.DOTALL)
    return [text.count("\n") or "picture" for text in shown]


@pytest.mark.parametrize("name", sorted(NOTEBOOKS))
def test_notebook_runs_and_shows_what_is_committed(name, tmp_path, monkeypatch):
    for package in ("nbclient", "ipykernel", NEEDS.get(name, "nbclient")):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    import nbformat

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    run_notebook = runpy.run_path(str(ROOT / "tools" / "notebooks.py"))["run_notebook"]
    nbformat.write(run_notebook(NOTEBOOKS[name], tmp_path), tmp_path / NOTEBOOKS[name].name)
    found, _ = PAGES["page_of"](tmp_path / NOTEBOOKS[name].name)
    committed, pictures = PAGES["page_of"](NOTEBOOKS[name])
    assert outputs(found) == outputs(committed)
    assert outputs(committed)
    # No warnings, and no paths of the machine that ran it.
    assert '"stderr"' not in NOTEBOOKS[name].read_text()
    assert all(picture.startswith(b"\x89PNG") for picture in pictures.values())


def test_the_notebook_of_masks_finds_every_class():
    page, _ = PAGES["page_of"](NOTEBOOKS["segmentation"])
    scores = re.findall(r"^(\w+): Dice ([\d.]+)$", page, re.MULTILINE)
    assert len(scores) == 3
    assert all(float(score) > 0.8 for _, score in scores), scores


@pytest.mark.parametrize("name", sorted(NOTEBOOKS))
def test_the_first_cell_installs_what_exists(name):
    cells = json.loads(NOTEBOOKS[name].read_text())["cells"]
    first = next(cell for cell in cells if cell["cell_type"] == "code")
    (extras,) = INSTALL.findall("".join(first["source"]))
    about = (ROOT / "packages" / "besselnet" / "pyproject.toml").read_text()
    assert all(re.search(rf"^{extra} = \[", about, re.MULTILINE) for extra in extras.split(","))


def test_every_notebook_is_in_the_navigation():
    yaml = pytest.importorskip("yaml")

    class Loader(yaml.SafeLoader):
        """mkdocs.yml has tags of mkdocs's own."""

    Loader.add_multi_constructor("!", lambda *_: None)
    nav = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)["nav"]
    assert NOTEBOOKS
    for name in NOTEBOOKS:
        assert f"notebooks/{name}.md" in json.dumps(nav)
