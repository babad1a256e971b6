"""Check untrusted input: files before they are opened, values before use, text before it is shown.

A file that is special, damaged or claims absurd sizes raises a one-line error that names it.
"""

import json
import os
import re
import reprlib
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = [
    "MOST_BYTES",
    "check_file",
    "check_keys",
    "csv_cell",
    "markdown_text",
    "parse_json",
    "printable_text",
    "read_json",
    "reading",
]

# What an archive may unpack to, unless it is larger itself.
MOST_BYTES = 1_000_000_000
_MOST_JSON = 64_000_000
_DEEPEST_JSON = 32
_LARGEST_NUMBER = 1e18
_NO_FILES = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
# Only what Markdown or HTML would take for markup: k_max and irreps<=1 stay readable.
_MARKUP = re.compile(r"[\\`*|]|(?<!\w)_|_(?!\w)|\](?=[(\[:])|<(?=[A-Za-z/!?])|&(?=#|\w+;)")
_ENTITIES = {"<": "&lt;", "&": "&amp;"}
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def check_file(path: Path | str, most: int | None = None) -> int:
    """Return the size of a regular file; raise `ValueError` for a FIFO, socket, device or folder.

    `most` is the maximum size in bytes.
    """
    status = os.stat(path)
    for is_kind, words in _NO_FILES:
        if is_kind(status.st_mode):
            raise ValueError(f"{path}: is {words}, not a file")
    if most is not None and status.st_size > most:
        raise ValueError(f"{path}: has {status.st_size:,} bytes, must have at most {most:,}")
    return status.st_size


@contextmanager
def reading(path: Path | str) -> Iterator[None]:
    """Context manager that converts errors of reading a damaged file into one line that names the file.

    A missing file remains a `FileNotFoundError`.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    # Decoders of damaged files raise exceptions of every kind, warnings turned into errors among them.
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        line = reason if str(path) in reason else f"{path}: {reason}"
        raise ValueError(line) from error


def read_json(path: Path | str) -> dict[str, Any]:
    """Read the object in a JSON file of at most 64 MB."""
    check_file(path, _MOST_JSON)
    with reading(path):
        text = Path(path).read_text(encoding="utf-8")
    values = parse_json(text, path)
    if not isinstance(values, dict):
        raise ValueError(f"{path}: must contain a JSON object, got {reprlib.repr(values)}")
    return values


def parse_json(text: str, where: Path | str) -> Any:
    """Parse JSON text, nested at most 32 levels; `where` names the text in messages."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: {' '.join(str(error).split())}") from None
    level = [value]
    for _ in range(_DEEPEST_JSON):
        nested = (
            v.values() if isinstance(v, dict) else v for v in level if isinstance(v, dict | list)
        )
        level = [v for values in nested for v in values]
        if not level:
            return value
    raise ValueError(f"{where}: is nested more than {_DEEPEST_JSON} levels deep")


def check_keys(
    where: Path | str, values: Mapping[str, Any], kinds: Mapping[str, tuple[Any, str]]
) -> None:
    """Raise `ValueError` if an object lacks a key, or a value has the wrong type or is not finite.

    `kinds`: (type, its name in messages) by key; "a.b" is the key b of the object a, which is listed first.
    """
    for key, (kind, words) in kinds.items():
        *sections, last = key.split(".")
        found: Any = values
        for section in sections:
            found = found[section]
        if last not in found:
            raise ValueError(f"{where}: {key!r} is missing: must be {words}")
        value = found[last]
        number = isinstance(value, int | float)
        if (
            not isinstance(value, kind)
            or (isinstance(value, bool) and kind is not bool)
            or (number and not abs(value) <= _LARGEST_NUMBER)
        ):
            raise ValueError(f"{where}: {key!r} is {reprlib.repr(value)}: must be {words}")


def csv_cell(text: str) -> str:
    """Escape text for a CSV cell: an apostrophe before =, +, - or @, which would start a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else text


def printable_text(text: str) -> str:
    """Return text without characters that XML or UTF-8 cannot represent."""
    return _UNPRINTABLE.sub("\ufffd", text)


def markdown_text(text: str) -> str:
    """Escape text as one line of Markdown, also for tables."""
    line = " ".join(printable_text(text).split())
    return _MARKUP.sub(lambda found: _ENTITIES.get(found[0], f"\\{found[0]}"), line)
