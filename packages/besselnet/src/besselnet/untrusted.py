"""What others wrote: files checked before they are opened, values before use, text before it is shown.

A file that is none, is damaged or claims absurd sizes ends in one line that names it.
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
    """The size of a regular file; a FIFO, socket, device or folder is refused without being opened.

    `most`: bytes that it may have.
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
    """Turn whatever a damaged or unexpected file makes its reader raise into one line naming it.

    A missing file stays a `FileNotFoundError`.
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
    """The object in a JSON file of at most 64 MB."""
    check_file(path, _MOST_JSON)
    with reading(path):
        text = Path(path).read_text(encoding="utf-8")
    values = parse_json(text, path)
    if not isinstance(values, dict):
        raise ValueError(f"{path}: must hold a JSON object, got {reprlib.repr(values)}")
    return values


def parse_json(text: str, where: Path | str) -> Any:
    """The value of a JSON text that is nested at most 32 deep; `where` names the text in messages."""
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
    raise ValueError(f"{where}: is nested more than {_DEEPEST_JSON} deep")


def check_keys(
    where: Path | str, values: Mapping[str, Any], kinds: Mapping[str, tuple[Any, str]]
) -> None:
    """Refuse an object that lacks a key or has a value of another type under it; numbers are finite.

    `kinds`: (type, its name in messages) by key; "a.b" is the key b of the object a, which goes before it.
    """
    for key, (kind, words) in kinds.items():
        *sections, last = key.split(".")
        found: Any = values
        for section in sections:
            found = found[section]
        if last not in found:
            raise ValueError(f"{where}: has no {key!r}: must be {words}")
        value = found[last]
        number = isinstance(value, int | float)
        if (
            not isinstance(value, kind)
            or (isinstance(value, bool) and kind is not bool)
            or (number and not abs(value) <= _LARGEST_NUMBER)
        ):
            raise ValueError(f"{where}: {key!r} is {reprlib.repr(value)}: must be {words}")


def csv_cell(text: str) -> str:
    """Text for a CSV cell that no spreadsheet takes for a formula: an apostrophe goes before =, +, -, @."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else text


def printable_text(text: str) -> str:
    """Text without characters that neither XML nor UTF-8 can hold."""
    return _UNPRINTABLE.sub("\ufffd", text)


def markdown_text(text: str) -> str:
    """One line of Markdown, also inside a table, that shows `text` as it is."""
    line = " ".join(printable_text(text).split())
    return _MARKUP.sub(lambda found: _ENTITIES.get(found[0], f"\\{found[0]}"), line)
