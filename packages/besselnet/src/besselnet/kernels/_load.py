"""Find and load the library, and report which kernel is used and why."""

import ctypes
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from besselnet.kernels._openmp import find_parallel

SUFFIX = ".dylib" if sys.platform == "darwin" else ".so"
FILE = Path(__file__).with_name(f"libbesselnet{SUFFIX}")
API_VERSION = 1
SYMBOLS = (
    *("bessel_api_version", "bessel_available", "bessel_select", "bessel_use_openmp"),
    *("bessel_forward", "bessel_backward"),
)
# Variables of the environment: one of the instruction sets by name; any value but 0 for no kernel at all.
FORCED = "BESSELNET_KERNEL"
SWITCHED_OFF = "BESSELNET_NO_KERNEL"
# One item for each `switched_off` that is under way.
_off: list[None] = []


@dataclass(frozen=True)
class Status:
    """Which kernel computes the layers on the CPU, and why. ``str()`` of it is one line."""

    used: bool
    """Whether the native kernel is used; otherwise torch operations."""
    instruction_set: str | None
    """"avx512", "avx2", "neon" or "baseline"."""
    file: str
    """Path of the library, whether it exists or not."""
    reason: str
    threads: str | None
    """The thread pool that it uses."""

    def __str__(self) -> str:
        if not self.used:
            return f"torch operations, no native kernel: {self.reason}"
        return (
            f"native kernel {self.instruction_set} ({self.reason}), on {self.threads}: {self.file}"
        )


@dataclass(frozen=True)
class Loaded:
    """The library, None if it is not used, and the report on it."""

    library: Any
    status: Status


def status() -> Status:
    """Return which kernel is used and why; loads the library on the first call.

    Raises:
        ValueError: if BESSELNET_KERNEL is an instruction set that is not available.
    """
    return load().status


def available() -> bool:
    """Return whether the native kernel can be called."""
    return not _off and load().library is not None


@contextmanager
def switched_off() -> Iterator[None]:
    """Context manager that uses torch operations instead of the native kernel, in all threads."""
    _off.append(None)
    try:
        yield
    finally:
        _off.pop()


# torch.compile calls it instead of following it: what `torch.compiler.assume_constant_result` says, which
# takes seconds to import.
available._dynamo_marked_constant = True  # type: ignore[attr-defined]


@lru_cache(maxsize=1)
def load() -> Loaded:
    """The library, loaded once for the process."""
    if os.environ.get(SWITCHED_OFF, "0") not in ("", "0"):
        return _unused(f"switched off by {SWITCHED_OFF}={os.environ[SWITCHED_OFF]}")
    wanted = os.environ.get(FORCED)
    try:
        library = _open(FILE)
    except _Unusable as error:
        if wanted:
            raise ValueError(
                f"{FORCED}={wanted}: the native kernel is not available, {error}"
            ) from None
        return _unused(str(error))
    names = library.bessel_available().decode().split()
    if wanted and wanted not in names:
        raise ValueError(f"{FORCED}={wanted}: must be one of {', '.join(names)} on this machine")
    chosen = wanted or names[0]
    library.bessel_select(chosen.encode())
    reason = f"set by {FORCED}" if wanted else "the fastest on this processor"
    parallel, owner = find_parallel()
    if parallel is not None:
        library.bessel_use_openmp(parallel)
    return Loaded(library, Status(True, chosen, str(FILE), reason, owner))


def _unused(reason: str) -> Loaded:
    return Loaded(None, Status(False, None, str(FILE), reason, None))


class _Unusable(Exception):
    """Why a library cannot be loaded."""


def _open(file: Path) -> Any:
    if not file.exists():
        raise _Unusable(
            f"it was not built (no C compiler at installation?), {file.name} is missing"
        )
    if _is_cut_short(file):
        raise _Unusable(f"{file} is damaged: truncated")
    try:
        library: Any = ctypes.CDLL(str(file))
    except OSError as error:
        raise _Unusable(f"{file} cannot be loaded: {' '.join(str(error).split())}") from None
    missing = [name for name in SYMBOLS if not hasattr(library, name)]
    if missing:
        raise _Unusable(f"{file} is from another version: {', '.join(missing)} is missing")
    if library.bessel_api_version() != API_VERSION:
        raise _Unusable(
            f"{file} is from another version: its interface is {library.bessel_api_version()}, must be "
            f"{API_VERSION}"
        )
    address = ctypes.c_void_p
    library.bessel_available.argtypes = ()
    library.bessel_available.restype = ctypes.c_char_p
    library.bessel_select.argtypes = (ctypes.c_char_p,)
    library.bessel_use_openmp.argtypes = (address,)
    library.bessel_use_openmp.restype = None
    library.bessel_forward.argtypes = (*[address] * 6, ctypes.c_int)
    library.bessel_backward.argtypes = (*[address] * 8, ctypes.c_int)
    return library


def _is_cut_short(file: Path) -> bool:
    """Whether an ELF file ends before its last table: loading it could end the process."""
    with file.open("rb") as stream:
        head = stream.read(64)
    if len(head) < 64 or head[:5] != b"\x7fELF\x02":
        return False  # no ELF file of 64 bits; the system says what is wrong with it
    (offset,) = struct.unpack_from("<Q", head, 40)
    size, count = struct.unpack_from("<HH", head, 58)
    return offset + size * count > file.stat().st_size
