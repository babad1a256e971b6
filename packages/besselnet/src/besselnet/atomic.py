"""Atomic file writes: a crash leaves either the old or the new content, never a mixture."""

import glob
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

__all__ = [
    "atomic_file",
    "made_folder",
    "remove_leftovers",
    "write_atomically",
    "write_json",
    "write_together",
]


@contextmanager
def atomic_file(path: str | Path) -> Iterator[BinaryIO]:
    """Context manager for a binary file that is renamed to `path` when the block ends without error.

    The file is written next to `path`, flushed to disk, then renamed. On any failure (such as a full disk),
    `path` keeps its old content, and the partial file is removed.
    """
    path = Path(path)
    with _partial(path) as partial:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    _flush_folder(path.parent)


def write_atomically(path: str | Path, content: bytes | str) -> None:
    """Replace the content of `path` atomically."""
    with atomic_file(path) as file:
        file.write(_encoded(content))


def write_json(path: str | Path, values: Any) -> None:
    """Write `values` as indented JSON, atomically."""
    write_atomically(path, json.dumps(values, indent=2, allow_nan=False) + "\n")


def write_together(folder: str | Path, contents: Mapping[str, bytes | str]) -> None:
    """Replace files of `folder`, by name, in their order; the folder is created if missing.

    All files are on disk before the first is renamed. So a failure (such as a full disk) changes none of
    them, and only a kill during the renames can separate them.
    """
    folder = Path(folder)
    with made_folder(folder), ExitStack() as partials:
        ready = {name: partials.enter_context(_partial(folder / name)) for name in contents}
        for name, partial in ready.items():
            with partial.open("wb") as file:
                file.write(_encoded(contents[name]))
                file.flush()
                os.fsync(file.fileno())
        for name, partial in ready.items():
            os.replace(partial, folder / name)
    _flush_folder(folder)


@contextmanager
def made_folder(folder: Path) -> Iterator[None]:
    """Context manager that creates the folder; if the block fails and the folder is empty, it is removed."""
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        with suppress(OSError):
            for place in made:
                place.rmdir()
        raise


def remove_leftovers(folder: str | Path, name: str | None = None) -> None:
    """Remove partial files of killed processes in `folder`, at any depth, or only those of `folder/name`.

    Only for a process that has the lock, see `besselnet.locking`. Files of running processes stay.
    """
    pattern = "**/*.partial" if name is None else f"{glob.escape(name)}.*.partial"
    for path in Path(folder).glob(pattern):
        process = _PROCESS.search(path.name)
        if process is not None and not _is_alive(int(process[1])):
            # Elsewhere than on POSIX the system itself keeps files that are open.
            with suppress(OSError):
                path.unlink()


_PROCESS = re.compile(r"\.(\d+)-[0-9a-f]{8}\.partial$")


@contextmanager
def _partial(path: Path) -> Iterator[Path]:
    """A name beside `path` that nobody else has; a file of that name is removed if the block fails.

    A FIFO, socket or device at `path` is refused: the file would take its place.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ValueError(f"{path}: is not a regular file and cannot be replaced")
    partial = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
    try:
        yield partial
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno and error.filename is None:
            # A full disk, say, of which Python tells no place.
            error.filename = str(path)
        raise


def _is_alive(process: int) -> bool:
    """Whether another process of this number runs; its own leftovers are of an earlier one."""
    if os.name != "posix" or process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _encoded(content: bytes | str) -> bytes:
    # Names of files need not be UTF-8: Python then has surrogates in them, which cannot be encoded.
    return content.encode(errors="backslashreplace") if isinstance(content, str) else content


def _flush_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power cut, where the system lets a folder be flushed."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
