"""Checks of what others wrote: files, JSON, and text that goes into other files."""

import csv
import io
import json

import pytest

from besselnet.untrusted import (
    check_file,
    check_keys,
    csv_cell,
    markdown_text,
    parse_json,
    printable_text,
    read_json,
)
from hostile import make_special, refused


@pytest.mark.parametrize("kind", ["FIFO", "socket", "device"])
def test_what_is_no_file_is_refused_without_being_opened(tmp_path, kind):
    path = make_special(tmp_path / "data.json", kind)
    for read in (check_file, read_json):
        refused(lambda read=read: read(path), "data.json", kind)


def test_a_folder_and_a_large_file_are_refused(tmp_path):
    refused(lambda: check_file(tmp_path), "folder")
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(10**10)
    assert check_file(path) == 10**10
    refused(lambda: read_json(path), "large.json", "10,000,000,000")


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe", b"[1]", b"null", b"{", b'{"a": ' * 50 + b"1" + b"}" * 50]
)
def test_a_file_that_is_no_json_object_is_named(tmp_path, content):
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    refused(lambda: read_json(path), "bad.json")


@pytest.mark.parametrize("depth", [33, 900, 100_000])
def test_deep_nesting_is_refused(depth):
    refused(lambda: parse_json("[" * depth + "]" * depth, "here"), "here")
    shallow = "[" * 32 + "]" * 32
    assert json.dumps(parse_json(shallow, "here")) == shallow


@pytest.mark.parametrize("value", [None, "3", True, 1.5, float("nan"), 10**400, [], {}])
def test_a_wrong_value_is_named_with_its_key(value):
    kinds = {"cell": (dict, "an object"), "cell.seed": (int, "an integer")}
    check_keys("here", {"cell": {"seed": 3}}, kinds)
    refused(lambda: check_keys("here", {"cell": {"seed": value}}, kinds), "here", "'cell.seed'")
    refused(lambda: check_keys("here", {"cell": {}}, kinds), "'cell.seed'")
    refused(lambda: check_keys("here", {"cell": value or None}, kinds), "'cell'")


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1"])
def test_no_cell_of_csv_is_a_formula(text):
    out = io.StringIO()
    csv.writer(out).writerow([csv_cell(text)])
    (cell,) = next(csv.reader(io.StringIO(out.getvalue(), newline="")))
    assert cell == "'" + text
    assert csv_cell(f"a{text}") == f"a{text}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("k_max/2, irreps<=1, [16, 32]", "k_max/2, irreps<=1, [16, 32]"),
        ("<script>alert(1)</script>", "&lt;script>alert(1)&lt;/script>"),
        ("&lt;b>", "&amp;lt;b>"),
        ("[x](javascript:alert(1))", r"[x\](javascript:alert(1))"),
        ("a|b", r"a\|b"),
        ("a\n\n# b", "a # b"),
        ("*a* _b_ `c`", r"\*a\* \_b\_ \`c\`"),
        ("a\x00b\ud800", "a\ufffdb\ufffd"),
    ],
)
def test_text_in_markdown_is_text(text, shown):
    assert markdown_text(text) == shown


def test_printable_text_can_be_written():
    assert printable_text("é 日本\t\n") == "é 日本\t\n"
    assert printable_text("".join(map(chr, [*range(32), 0xD800, 0xDFFF]))).encode()
