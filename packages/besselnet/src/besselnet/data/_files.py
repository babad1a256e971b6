"""Files of data sets: found, read, and kept in the cache folder, whole or not at all."""

import hashlib
import importlib.util
import os
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from besselnet._pixels import needed, reading
from besselnet.atomic import atomic_file

VARIABLE = "BESSELNET_DATA"


def cache_folder() -> Path:
    """The folder named by the environment variable BESSELNET_DATA, else the platform's cache.

    That is `pooch.os_cache("besselnet")`, also for installations without pooch.
    """
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        base = Path(local) if local else Path.home() / "AppData" / "Local"
        return base / "besselnet" / "besselnet" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "besselnet"
    general = os.environ.get("XDG_CACHE_HOME", "").strip()
    return (Path(general) if general else Path.home() / ".cache") / "besselnet"


def file_lock(path: Path) -> Any:
    """A context that one process at a time is in."""
    return needed("filelock", "keeping files in the cache folder", "train").FileLock(path)


def find_file(name: str, root: Path | None, file_names: Sequence[str]) -> Path | None:
    """The first of `file_names` that exists, or None.

    Looked for in `root` and `root/name`, or in the cache folder of the set when `root` is None; a
    `root` that is a file is taken to be the file.
    """
    if root is not None and root.is_file():
        return root
    folders = [cache_folder() / name] if root is None else [root, root / name]
    places = (folder / file_name for file_name in file_names for folder in folders)
    return next((place for place in places if place.exists()), None)


def missing(name: str, root: Path, expected: str) -> FileNotFoundError:
    """The error for a `root` without the files of the set."""
    return FileNotFoundError(f"{root}: holds no files of {name} (looked for {expected})")


def package_folder(package: str, otherwise: str) -> Path:
    """The folder of an installed package that has data in it; it is found, not imported."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(otherwise)
    return Path(spec.origin).parent


def file_identity(path: Path) -> tuple[str, int, int]:
    """Place, size and time of a file: changes when the file does."""
    status = path.stat()
    return str(path.resolve()), status.st_size, status.st_mtime_ns


@contextmanager
def open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """The archive, to be read in place; refused when a name in it leads out of its folder."""
    with reading(path), zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            parts = PurePosixPath(name.replace("\\", "/")).parts
            if ".." in parts or name.startswith(("/", "\\")) or ":" in name.split("/")[0]:
                raise ValueError(f"the archive holds {name!r}, which leads out of its folder")
        yield archive


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Every array of an .npz file; pickled objects are refused."""
    # Opened here, because np.load forgets to close a file that turns out to be damaged.
    with reading(path), path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        if not isinstance(stored, np.lib.npyio.NpzFile):
            raise ValueError("is a single array, not an .npz archive")
        return {key: stored[key] for key in stored.files}


def take(stored: Mapping[str, Any], key: str, where: str = "") -> Any:
    """What a file, or `where` in it, holds under `key`; inside of `reading`, which names the file."""
    if key not in stored:
        raise ValueError(f"{where} has no {key!r}; its keys are {sorted(stored)}".strip())
    return stored[key]


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
    with file_lock(path.with_suffix(".lock")):
        if not path.exists():
            arrays = prepare()
            with atomic_file(path) as file:
                np.savez(file, **arrays)
    return read_arrays(path)
