"""The site that `make docs` builds: nothing is fetched from the network, and a browser shows all of it."""

import html
import importlib
import logging
import re
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from places import ROOT
from play.chromium import PROGRAM, Page

in_chromium = pytest.mark.skipif(PROGRAM is None, reason="there is no chromium here")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site; every warning of the build is an error, as in `make docs`."""
    pytest.importorskip("material", reason="mkdocs-material is not installed (extra: docs)")
    pytest.importorskip("mkdocstrings", reason="mkdocstrings is not installed (extra: docs)")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True)
    logging.getLogger("mkdocs").setLevel(logging.WARNING)
    build(config)
    return folder


def test_site_needs_no_network(site):
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        fetched = re.findall(
            r'<(?:script|link|img|iframe)[^>]*(?:src|href)="(?:https?:)?//[^"]+', text
        )
        assert not fetched, f"{page.name}: {fetched}"


class QuietHandler(SimpleHTTPRequestHandler):
    """The file server of Python, without its log."""

    def log_message(self, *_):
        pass


@in_chromium
def test_the_playground_of_the_site_answers_as_onnxruntime_does(site):
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    if not (site / "playground" / "runtime").exists():
        pytest.skip("onnxruntime-web could not be downloaded")
    handler = partial(QuietHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, Page() as page:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page.media(prefers_reduced_motion="reduce")
        page.open(f"http://127.0.0.1:{server.server_port}/playground.html")
        page.wait("document.querySelector('a.md-button') !== null")
        page.click("a.md-button")
        page.wait("document.body?.dataset.ready === 'true'")
        input_, *logits = page.run(
            "playground.digits.viewer.rotate(30).then(() => {const {last} = playground.digits.viewer;"
            "return [[...last.input.data], ...last.results.map(r => [...r.logits[0]])]})"
        )
        assert page.failures == []
        server.shutdown()
    image = np.array(input_, np.float32).reshape(1, 1, 28, 28)
    for name, found in zip(("besselnet", "plain"), logits, strict=True):
        session = onnxruntime.InferenceSession(site / "playground" / "digits" / f"{name}.onnx")
        (expected,) = session.run(["logits"], {"images": image})
        assert np.abs(expected[0] - found).max() <= 1e-4


def test_formulas_are_drawn(site):
    text = (site / "mathematics.html").read_text(encoding="utf-8")
    assert text.count('display="block"') > 10
    assert "arithmatex" not in text
    assert "arithmatex" not in (site / "api" / "nn.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "room",
    ["nn", "functional", "models", "conversion", "data", "train", "testing", "export", "sklearn"],
)
def test_every_public_name_with_a_docstring_is_in_the_reference(site, room):
    page = (site / "api" / f"{room}.html").read_text(encoding="utf-8")
    module = importlib.import_module(f"besselnet.{room}")
    for name in module.__all__:
        thing = getattr(module, name)
        if callable(thing) and getattr(thing, "__module__", "").startswith("besselnet"):
            assert f'id="besselnet.{room}.{name}"' in page, name


def test_marks_of_doctest_are_not_shown(site):
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert "# doctest:" not in text, page.name
        # Prompts are marked as such, and hidden.
        assert '<span class="o">&gt;&gt;&gt;</span>' not in text, page.name
    assert '<span class="gp">' in (site / "choosing.html").read_text(encoding="utf-8")


def test_listings_of_the_examples_are_shown(site):
    page = (site / "examples.html").read_text(encoding="utf-8")
    # Colours are put around words.
    shown = html.unescape(re.sub(r"<[^>]+>", "", page))
    scripts = sorted((ROOT / "examples").glob("*.py"))
    assert len(scripts) >= 5
    for script in scripts:
        first, *_, last = script.read_text(encoding="utf-8").strip().splitlines()
        assert first in shown, script.name
        assert last in shown, script.name
    assert "8<--" not in shown
    assert "8 < --" not in shown


def open_file(page, path):
    page.open(path.as_uri())
    page.wait(f"location.href === '{path.as_uri()}' && document.readyState === 'complete'")


# Elements beyond the right edge, unless something around them scrolls, as around wide tables; lines of code
# that are cut; images that are not there.
NOT_SHOWN = """(() => {
  const edge = document.documentElement.clientWidth + 1;
  const all = selector => [...document.querySelectorAll(`.md-content ${selector}`)];
  const scrolls = e => e && (getComputedStyle(e).overflowX !== "visible" || scrolls(e.parentElement));
  const beyond = e => e.getBoundingClientRect().right > edge && !scrolls(e.parentElement);
  return [
    ...all("*").filter(beyond),
    ...all("pre > code").filter(e => e.scrollWidth > e.clientWidth + 1),
    ...all("img").filter(e => e.naturalWidth === 0),
  ].map(e => e.outerHTML.slice(0, 200))
})()"""


@in_chromium
@pytest.mark.parametrize("width", [1280, 390])
def test_pages_fit_the_window(site, width):
    pages = [page for page in site.rglob("*.html") if "playground" not in page.parts]
    assert len(pages) > 40
    with Page() as browser:
        browser.size(width, 900, touch=width < 500)
        for page in pages:
            open_file(browser, page)
            assert browser.run("document.documentElement.scrollWidth") <= width, page.name
            assert browser.run(NOT_SHOWN) == [], page.name


@in_chromium
def test_the_search_works_on_pages_opened_as_files(site):
    with Page() as browser:
        browser.size(1280, 900)
        open_file(browser, site / "index.html")
        browser.click(".md-search__input")
        browser.call("Input.insertText", text="cut-off")
        browser.wait("document.querySelector('.md-search-result__link') !== null")
        found = browser.run(
            "[...document.querySelectorAll('.md-search-result__link')].map(e => e.href)"
        )
    assert (site / "choosing.html").as_uri() in found
