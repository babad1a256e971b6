"""Arrays of images in .npz, HDF5 and Zarr files, read row by row."""

import errno
import io
import math
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, BinaryIO

import numpy as np

from besselnet._pixels import needed
from besselnet.data._files import plain_dataset, plain_member, read_member, take
from besselnet.untrusted import MOST_BYTES, check_file, reading

ARRAY_SUFFIXES = (".npz", ".h5", ".hdf5", ".zarr")
# What images are called in the archives that `train` reads.
_USUAL = "x"
# Filters and compressors of numbers; others may execute what is in the file.
_CODECS = frozenset(
    [
        *("blosc", "zstd", "gzip", "zlib", "lz4", "bz2", "lzma", "delta", "shuffle", "packbits"),
        *("fixedscaleoffset", "quantize", "bitround", "astype"),
        *("adler32", "crc32", "crc32c", "fletcher32", "jenkins_lookup3"),
    ]
)


def is_remote(place: str) -> bool:
    """Whether a place is an address such as s3://bucket/shard.tar, for fsspec."""
    return "://" in place


def open_binary(place: str) -> BinaryIO:
    """A local file, or by fsspec a remote one, open for reading."""
    if is_remote(place):
        fsspec = needed("fsspec", f"reading {place}", "remote")
        try:
            opened: BinaryIO = fsspec.open(place, "rb").open()
        except FileNotFoundError as error:
            # With the address alone; the reason, such as a host that does not answer, is its cause.
            reason = " ".join(str(error.__cause__ or "").split()) or os.strerror(errno.ENOENT)
            raise FileNotFoundError(errno.ENOENT, reason, place) from error
        return opened
    check_file(place)
    return open(place, "rb")


@contextmanager
def stored_array(place: str, key: str | None = None) -> Iterator[tuple[str, Any]]:
    """The name of an array of images in a file, and the array, whose slices are numpy arrays.

    Without a `key`: the array `x`, or the only one that has 3 or 4 axes. Pickled objects are refused.
    """
    with reading(place):
        if place.endswith(".npz"):
            with open_binary(place) as file:
                yield _from_npz(place, file, key)
        elif place.endswith(".zarr"):
            yield _from_zarr(place, key)
        else:
            h5py = needed("h5py", f"reading {place}", "data")
            with open_binary(place) as file, h5py.File(file, "r") as opened:
                yield _from_hdf5(opened, key)


def _choose(key: str | None, shapes: dict[str, tuple[int, ...]]) -> str:
    """The key of the images among arrays of these shapes."""
    if key is not None:
        return key
    images = [name for name, shape in shapes.items() if len(shape) in (3, 4)]
    if _USUAL in images:
        return _USUAL
    if len(images) != 1:
        found = f"{len(images)} arrays" if images else "no array"
        which = f": choose one of {', '.join(images)}, as in FILE#{images[0]}" if images else ""
        raise ValueError(f"has {found} of 3 or 4 dimensions that could be images{which}")
    return images[0]


def _from_npz(place: str, file: BinaryIO, key: str | None) -> tuple[str, Any]:
    with zipfile.ZipFile(file) as archive:
        members = {
            m.filename.removesuffix(".npy"): m
            for m in archive.infolist()
            if m.filename.endswith(".npy")
        }
        shapes = {name: _npy_header(archive, member)[0] for name, member in members.items()}
        name = _choose(key, shapes)
        member = take(members, name)
        shape, order, kind, header = _npy_header(archive, member)
        if kind.hasobject:
            raise ValueError(f"{name!r} contains Python objects, which are not read")
        claimed = math.prod(shape) * kind.itemsize
        if claimed != member.file_size - header:
            raise ValueError(f"{name!r} claims {claimed:,} bytes for shape {shape}")
        if member.compress_type == zipfile.ZIP_STORED and not is_remote(place):
            start = _content_start(file, member) + header
            return name, np.memmap(place, kind, "r", start, shape, order)
    status = None if is_remote(place) else os.stat(place).st_mtime_ns
    return name, _unpacked(place, member.filename, status)


def _npy_header(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo
) -> tuple[tuple[int, ...], Any, np.dtype[Any], int]:
    """Shape, order ("C" or "F") and type of an array, and the bytes of its header."""
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, is_fortran, kind = read_header(file)
        return shape, "F" if is_fortran else "C", kind, file.tell()


def _content_start(file: BinaryIO, member: zipfile.ZipInfo) -> int:
    """Where the content of a member begins: after its local header, name and extra field."""
    file.seek(member.header_offset + 26)
    name, extra = (int.from_bytes(file.read(2), "little") for _ in range(2))
    return member.header_offset + 30 + name + extra


@lru_cache(maxsize=1)
def _unpacked(place: str, member: str, changed: int | None) -> np.ndarray:
    """A compressed array, whole: the next rows are of the same one."""

    with open_binary(place) as file, zipfile.ZipFile(file) as archive:
        content = read_member(archive, member, MOST_BYTES)
    return np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)


def _from_hdf5(file: Any, key: str | None) -> tuple[str, Any]:
    shapes = {}
    if key is None:
        members = {name: plain_member(file, name) for name in file}
        shapes = {n: m.shape for n, m in members.items() if getattr(m, "shape", None) is not None}
    name = _choose(key, shapes)
    *groups, last = name.strip("/").split("/")
    for group in groups:
        file = plain_member(file, group)
    return name, plain_dataset(file, last)


def _from_zarr(place: str, key: str | None) -> tuple[str, Any]:
    zarr = needed("zarr", f"reading {place}", "zarr")
    opened = zarr.open(place, mode="r")
    if hasattr(opened, "shape"):
        name, found = "", opened
    else:
        name = _choose(key, {n: array.shape for n, array in opened.arrays()})
        found = take(opened, name)
    if not hasattr(found, "shape"):
        raise ValueError(f"{name!r} is not an array")
    for codec in (*found.filters, *found.compressors):
        known = getattr(codec, "codec_id", type(codec).__name__.removesuffix("Codec").lower())
        if known not in _CODECS:
            raise ValueError(
                f"is stored with {known!r}: must be one of {', '.join(sorted(_CODECS))}"
            )
    if math.prod(found.chunks) * found.dtype.itemsize > MOST_BYTES:
        raise ValueError(f"has chunks of {found.chunks}: must be at most {MOST_BYTES:,} bytes")
    return name, found
