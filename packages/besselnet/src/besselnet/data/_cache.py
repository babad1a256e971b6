"""Where downloads and prepared arrays are kept, and how they get there whole or not at all."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pooch
from filelock import FileLock

from besselnet.atomic import atomic_file
from besselnet.data._errors import reading

VARIABLE = "BESSELNET_DATA"


def cache_folder() -> Path:
    """The folder named by the environment variable BESSELNET_DATA, else the platform's cache."""
    chosen = os.environ.get(VARIABLE)
    return Path(chosen).expanduser() if chosen else Path(pooch.os_cache("besselnet"))


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Every array of an .npz file; pickled objects are refused."""
    # Opened here, because np.load forgets to close a file that turns out to be damaged.
    with reading(path), path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        if not isinstance(stored, np.lib.npyio.NpzFile):
            raise ValueError("is a single array, not an .npz archive")
        return {key: stored[key] for key in stored.files}


def prepared_arrays(
    name: str, recipe: object, prepare: Callable[[], dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """`prepare()`, or its result kept from an earlier call with the same `recipe`.

    `recipe` is anything whose `repr` determines the result: the identity of the source, sizes, seeds.
    Of several processes that need the same arrays one prepares them and the others wait.
    """
    digest = hashlib.sha256(repr(recipe).encode()).hexdigest()[:16]
    path = cache_folder() / "prepared" / f"{name}-{digest}.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        if not path.exists():
            arrays = prepare()
            with atomic_file(path) as file:
                np.savez(file, **arrays)
    return read_arrays(path)


def file_identity(path: Path) -> tuple[str, int, int]:
    """Place, size and time of a file: changes when the file does."""
    status = path.stat()
    return str(path.resolve()), status.st_size, status.st_mtime_ns
