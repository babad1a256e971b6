"""Locks of the operating system, which are released when the process ends."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from filelock import FileLock, Timeout

from besselnet.atomic import made_folder, remove_leftovers

__all__ = ["Busy", "hold", "hold_folder", "hold_output", "is_held"]

LOCK_NAME = ".lock"
# Seconds to wait for a lock: longer than `is_held` has one.
_PATIENCE = 0.5
# What this thread holds, so that who writes a folder may call others that write to it. A fork holds nothing.
_HELD: ContextVar[frozenset[tuple[int, str]]] = ContextVar("_HELD", default=frozenset())


class Busy(ValueError):
    """Another process has the lock."""


@contextmanager
def hold(path: Path, what: str | Path, patience: float = _PATIENCE) -> Iterator[None]:
    """Context manager that holds the lock file `path`, or raises `Busy` if another process writes `what`.

    It waits `patience` seconds for the other process.

    The system releases the lock when the process ends, also after a kill; the file itself stays. Inside the
    block, the same thread can hold it again.
    """
    if _is_mine(path):
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=patience, poll_interval=_PATIENCE / 20)
    except Timeout:
        raise Busy(
            f"{what} is in use: another process is writing to it; wait until it has finished, or choose "
            "another path"
        ) from None
    token = _HELD.set(_HELD.get() | {_key(path)})
    try:
        yield
    finally:
        _HELD.reset(token)
        lock.release()


@contextmanager
def hold_folder(folder: str | Path) -> Iterator[None]:
    """Context manager that locks a folder, created if missing, and removes partial files of killed processes.

    If the block fails before it writes anything, a new folder is removed.
    """
    folder = Path(folder)
    path = folder / LOCK_NAME
    if _is_mine(path):
        yield
        return
    with made_folder(folder), hold(path, folder):
        remove_leftovers(folder)
        try:
            yield
        except BaseException:
            if [place.name for place in folder.iterdir()] == [LOCK_NAME]:
                _remove(path)
            raise


@contextmanager
def hold_output(path: str | Path) -> Iterator[None]:
    """Context manager that locks an output file or folder, by a temporary lock file next to it."""
    path = Path(path)
    lock = path.with_name(f".{path.name}{LOCK_NAME}")
    with made_folder(path.parent), hold(lock, path):
        if path.is_dir():
            remove_leftovers(path)
        else:
            remove_leftovers(path.parent, path.stem)
        try:
            yield
        finally:
            _remove(lock)


def is_held(path: Path) -> bool:
    """Return whether a process holds the lock file."""
    if not path.exists():
        return False
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    lock.release()
    return False


def _is_mine(path: Path) -> bool:
    return _key(path) in _HELD.get()


def _key(path: Path) -> tuple[int, str]:
    return os.getpid(), os.path.realpath(path)


def _remove(path: Path) -> None:
    """Remove a lock file that is held: who waits for a file without a name begins anew."""
    # Where files that are open cannot be removed, it stays.
    with suppress(OSError):
        path.unlink()
