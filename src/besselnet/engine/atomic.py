"""Writing a file so that a crash leaves either the old content or the new, never a mixture."""

import json
import os
from pathlib import Path
from typing import Any


def write_atomically(path: str | Path, content: bytes | str) -> None:
    """Replace the content of `path`: written beside it, flushed to the disk, then renamed onto it.

    On any failure (a full disk, say) the file keeps its old content and the partial one is removed.
    """
    path = Path(path)
    # One fixed name, so that what a killed process left behind is overwritten by the next write.
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    _flush_folder(path.parent)


def write_json(path: str | Path, values: Any) -> None:
    """Write `values` as indented JSON, atomically."""
    write_atomically(path, json.dumps(values, indent=2) + "\n")


def _flush_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power cut, where the system lets a folder be flushed."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
