"""Results that someone else has made: one line for what is wrong, and their text is text in a report."""

import json
import os
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from besselnet_lab.report import write_report
from besselnet_lab.study.store import Store
from study.toys import make_result

SCRIPT = "<script>alert(1)</script>"
NAMES = [
    *(SCRIPT, '"><img src=x onerror=alert(1)>', "[x](javascript:alert(1))", "a|b", "a\n# b"),
    *("$100_$200", r"$\frac{$", "]]>", "\x00\x1b\ud800", "عربي 🙂", "9" * 5000 + "h", ",", "", " "),
]


def keys(values, before=()):
    for key, value in values.items():
        yield (*before, key)
        if isinstance(value, dict):
            yield from keys(value, (*before, key))


OPTIONAL = {"judged.images"}
KEYS = [key for key in keys(make_result(0.5)) if ".".join(key) not in OPTIONAL]


def write(folder, result):
    path = folder / "column" / "cell.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(result))
    return Store(folder)


@pytest.mark.parametrize("key", KEYS, ids=".".join)
def test_every_wrong_value_of_a_result_is_one_line(tmp_path, key):
    wrong = [None, True, float("nan"), float("inf"), 10**400, [[]], {"a": 1}, -1.5, "missing"]
    if key[0] == "config" and len(key) > 1:
        wrong.remove({"a": 1})
    if key[0] == "seconds":
        wrong.remove(-1.5)
    for value in wrong:
        result = make_result(0.5)
        inner = result
        for part in key[:-1]:
            inner = inner[part]
        if value == "missing":
            del inner[key[-1]]
        else:
            inner[key[-1]] = value
        store = write(tmp_path, result)
        if value == "missing" and key[0] == "curve" and key[-1].startswith("train_"):
            assert len(store.results()) == 1
            continue
        with pytest.raises(ValueError, match=r"cell\.json") as found:
            store.results()
        assert "\n" not in str(found.value)
        assert key[-1] in str(found.value)


@pytest.mark.parametrize("name", ["black_corners", "reflected_borders", "quarter_turns"])
def test_wrong_values_of_what_was_measured_under_rotation_are_one_line(tmp_path, name):
    shares = {"black_corners": 0.9, "reflected_borders": 0.95, "quarter_turns": 1.0}
    assert write(tmp_path, make_result(0.5, rotation=shares)).results()[0]["rotation"] == shares
    for value in (None, True, float("nan"), "1", -0.1, 1.1, []):
        store = write(tmp_path, make_result(0.5, rotation={**shares, name: value}))
        with pytest.raises(ValueError, match=rf"cell\.json.*rotation\.{name}") as found:
            store.results()
        assert "\n" not in str(found.value)


def test_results_that_are_no_objects_or_no_files_are_named(tmp_path):
    path = tmp_path / "column" / "cell.json"
    path.parent.mkdir()
    for text in ("", "null", "[]", "[" * 10**5, '{"format": 2, "cell": ' * 500):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"cell\.json"):
            Store(tmp_path).results()
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ValueError, match=r"cell\.json.*FIFO"):
        Store(tmp_path).results()


class Tags(HTMLParser):
    """Names of elements and attributes."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found += [tag, *(name for name, _ in attrs)]


def elements(path):
    tags = Tags()
    tags.feed(path.read_text(encoding="utf-8"))
    return tags.found


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_text_of_results_is_text_in_every_file(tmp_path, name):
    places = {"method": name, "data_set": f"D{name}", "group": name, "regime": name}

    def report(folder, **places):
        results = [make_result(0.5, seed=s, notes=(places["method"],), **places) for s in (0, 1)]
        results.append(make_result(0.4, **{**places, "method": f"other {places['method']}"}))
        for result in results:
            result["config"] = {"images": {}, "model": {"name": places["method"]}, "train": {}}
        write_report(results, tmp_path / folder, places["method"])
        return tmp_path / folder

    hostile = report("hostile", **places)
    harmless = report("harmless", method="m", data_set="Dm", group="m", regime="m")
    assert elements(hostile / "report.html").count("script") == 1
    allowed = set(elements(harmless / "report.html"))
    assert set(elements(hostile / "report.html")) <= allowed
    text = (hostile / "report.md").read_text(encoding="utf-8")
    assert set(re.findall(r"<[a-zA-Z/!?]\w*", text)) <= {"<br"}
    assert not re.search(r"(?<!\\)\]\((?!figures/)", text)
    for path in (hostile / "figures").iterdir():
        assert {e.tag.split("}")[-1] for e in ElementTree.parse(path).iter()}.isdisjoint(
            {"script", "img"}
        )
