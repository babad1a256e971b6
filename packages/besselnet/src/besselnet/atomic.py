"""Files that appear whole or not at all: a crash leaves the old content or the new, never a mixture."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

__all__ = ["atomic_file", "write_atomically", "write_json"]


@contextmanager
def atomic_file(path: str | Path) -> Iterator[BinaryIO]:
    """A binary file to write to, which takes the name `path` when the block ends without error.

    It is written beside `path`, flushed to the disk, then renamed onto it. On any failure (a full disk,
    say) `path` keeps its old content and the partial file is removed.
    """
    path = Path(path)
    # One fixed name, so that what a killed process left behind is overwritten by the next write.
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        # What a full disk raises does not say which file it was.
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)
        raise
    _flush_folder(path.parent)


def write_atomically(path: str | Path, content: bytes | str) -> None:
    """Replace the content of `path`."""
    with atomic_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_json(path: str | Path, values: Any) -> None:
    """Write `values` as indented JSON."""
    write_atomically(path, json.dumps(values, indent=2, allow_nan=False) + "\n")


def _flush_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power cut, where the system lets a folder be flushed."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
