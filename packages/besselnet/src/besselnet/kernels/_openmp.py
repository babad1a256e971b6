"""The OpenMP runtime that torch has loaded: a second one beside it would slow both down."""

import ctypes
import os
from pathlib import Path

import torch

OWN_THREADS = "threads of its own"
# What torch's wheels bring. All of them have GOMP_parallel, as code compiled by GCC calls it.
RUNTIMES = ("libgomp*", "libiomp5*", "libomp*")


def find_parallel() -> tuple[int | None, str]:
    """The address of torch's GOMP_parallel, and whose threads will be used; None for the kernel's own."""
    if not torch.backends.openmp.is_available():
        return None, OWN_THREADS
    home = Path(torch.__file__).parent
    found = [
        path
        for folder in (home / "lib", home.with_name("torch.libs"))
        for name in RUNTIMES
        for path in sorted(folder.glob(name))
    ]
    for path in (*found, None):
        try:
            # Only a library that is loaded already; None stands for all that the process shares.
            runtime = ctypes.CDLL(None if path is None else str(path), os.RTLD_NOLOAD | os.RTLD_NOW)
            address = ctypes.cast(runtime.GOMP_parallel, ctypes.c_void_p).value
        except (OSError, AttributeError):
            continue
        return address, f"torch's OpenMP threads ({path.name if path else 'shared runtime'})"
    return None, OWN_THREADS
