"""Find and read the files of data sets, and store them in the cache folder."""

import gzip
import hashlib
import importlib.util
import math
import os
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from besselnet._pixels import needed, option_hint
from besselnet.atomic import atomic_file
from besselnet.untrusted import MOST_BYTES, check_file, reading

VARIABLE = "BESSELNET_DATA"


def cache_folder() -> Path:
    """Return the folder of the environment variable BESSELNET_DATA, or the cache folder of the platform.

    The latter is `pooch.os_cache("besselnet")`, also without pooch.
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
    return FileNotFoundError(f"{root}: has no files of {name} (expected {expected})")


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
    """The archive, to be read in place; refused when a name in it is damaged or leads out of its folder."""
    check_file(path)
    with reading(path), zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            # Compares the name in the directory, which no checksum covers, with that before the content.
            archive.open(member).close()
            name = member.filename
            parts = PurePosixPath(name.replace("\\", "/")).parts
            if ".." in parts or name.startswith(("/", "\\")) or ":" in name.split("/")[0]:
                raise ValueError(f"the archive contains {name!r}, which is outside its folder")
        yield archive


def read_member(archive: zipfile.ZipFile, name: str, most: int = MOST_BYTES) -> bytes:
    """A file of the archive, which says before it is unpacked that it has at most `most` bytes."""
    check_member(archive.getinfo(name), most)
    return archive.read(name)


def check_member(member: zipfile.ZipInfo, most: int) -> None:
    """Refuse a file of an archive that unpacks to more than `most` bytes."""
    if member.file_size > most:
        raise ValueError(
            f"{member.filename!r} unpacks to {member.file_size:,} bytes, must be at most {most:,}"
        )


def read_arrays(path: Path, max_bytes: int = MOST_BYTES) -> dict[str, np.ndarray]:
    """Every array of an .npz file; pickled objects are refused.

    All of them together may take `max_bytes` bytes, or as many as the file has; what the header of an array
    claims must be there. Both are checked before memory is asked for.
    """
    size = check_file(path)
    with reading(path), zipfile.ZipFile(path) as archive:
        members = [m for m in archive.infolist() if m.filename.endswith(".npy")]
        total, most = sum(m.file_size for m in members), max(size, max_bytes)
        if total > most:
            hint = option_hint("max_bytes", total)
            raise ValueError(f"unpacks to {total:,} bytes, more than {most:,}: to read it, {hint}")
        return {m.filename.removesuffix(".npy"): _read_array(archive, m) for m in members}


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    place = f"{archive.filename}: {member.filename}"
    with reading(place), archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, _, kind = read_header(file)
        claimed = math.prod(shape) * kind.itemsize
        if not kind.hasobject and claimed != member.file_size - file.tell():
            raise ValueError(
                f"claims {claimed:,} bytes for shape {shape} of {kind}, but has "
                f"{member.file_size - file.tell():,}"
            )
    # Opened again: the checksum is that of a file read without a step back.
    with reading(place), archive.open(member) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def read_unpacked(path: Path, most: int = MOST_BYTES // 4) -> bytes:
    """The content of a file, of a gzipped one unpacked; at most `most` bytes."""
    check_file(path, most)
    with reading(path), path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        content = gzip.GzipFile(fileobj=file).read(most + 1) if packed else file.read(most + 1)
        if len(content) > most:
            raise ValueError(f"unpacks to more than {most:,} bytes")
        return content


def plain_dataset(group: Any, key: str, where: str = "") -> Any:
    """A data set of an HDF5 file whose values are in that file, and can be as many as it claims.

    Links to other places, external storage and virtual data sets are refused: they read other files.
    """
    found = plain_member(group, key, where)
    if not hasattr(found, "shape") or found.shape is None:
        raise ValueError(f"{where} {key!r} is not an HDF5 data set".strip())
    if found.external or found.is_virtual:
        raise ValueError(f"{where} {key!r} stores its values in another file".strip())
    # Compression beyond this is that of nothing.
    most = max(MOST_BYTES // 10, 100 * found.id.get_storage_size())
    chunk = math.prod(found.chunks or ()) * found.dtype.itemsize
    for what, claimed in (("", found.nbytes), ("in a chunk ", chunk)):
        if claimed > most:
            raise ValueError(
                f"{where} {key!r} claims {claimed:,} bytes {what}for shape {found.shape}, more than "
                f"{most:,}".strip()
            )
    return found


def plain_member(group: Any, key: str, where: str = "") -> Any:
    """What a group of an HDF5 file holds itself under `key`."""
    import h5py

    # `key in group` would follow the link.
    links, name = group.id.links, key.encode()
    if links.exists(name) and links.get_info(name).type != h5py.h5l.TYPE_HARD:
        raise ValueError(f"{where} {key!r} is a link".strip())
    return take(group, key, where)


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
    # Stored as they are, so the file is as large as they are.
    return read_arrays(path)
