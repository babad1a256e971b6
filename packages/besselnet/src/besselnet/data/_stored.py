"""Images on disk with the indexing of a tensor: memory-mapped pieces of a cache."""

import hashlib
import json
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from besselnet.atomic import write_atomically
from besselnet.untrusted import check_file, parse_json

_FORMAT = "1"
# Every map keeps a file open, and systems allow about a thousand.
_MOST_OPEN = 128
_TYPES = {"U8": np.uint8, "F32": np.float32}


@dataclass(frozen=True, eq=False)
class Piece:
    """One file of a cache: images (M, C, H, W), a hash of each, and the places of their files.

    `places` count from the first file of the piece.

    Attributes:
        identity: of the file, so that a map of an earlier file of this name is not taken for it.
        offset: of the first byte of the images in the file.
        failures: why files could not be read.
        largest: value of the 16-bit images, 0 without such.
    """

    path: str
    identity: tuple[int, int]
    offset: int
    shape: tuple[int, int, int, int]
    dtype: torch.dtype
    hashes: Tensor
    places: Tensor
    failures: tuple[str, ...]
    largest: int


class StoredImages:
    """Images (N, C, H, W) on disk: `images[rows]` reads and verifies only those rows.

    Shape, dtype, length and indexing are those of a tensor, and indexing returns a tensor in memory. Every
    image is verified by its hash when it is read. The object can be pickled, and processes share the file
    cache of the operating system.
    """

    def __init__(self, pieces: Sequence[Piece], rows: Tensor | None = None) -> None:
        self._pieces = tuple(pieces)
        counts = [len(piece.places) for piece in self._pieces]
        self._starts = torch.tensor([0, *counts]).cumsum(0)
        self._rows = torch.arange(sum(counts)) if rows is None else rows
        self.dtype = self._pieces[0].dtype if pieces else torch.uint8
        image = self._pieces[0].shape[1:] if pieces else (1, 1, 1)
        self.shape = torch.Size((len(self._rows), *image))

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Tensor:
        first, *others = index if isinstance(index, tuple) else (index,)
        rows = self._rows[first].contiguous()
        found = self._read(rows) if rows.ndim else self._read(rows[None])[0]
        return found[(slice(None), *others) if rows.ndim else tuple(others)] if others else found

    def __repr__(self) -> str:
        return f"StoredImages({tuple(self.shape)}, {self.dtype})"

    def select(self, indices: Any) -> "StoredImages":
        """Return the images at `indices`, in that order, without reading them."""
        return StoredImages(self._pieces, self._rows[indices])

    def hashes(self) -> Tensor:
        """Return the `row_hashes` (N,) int64 of the images, as stored in the cache."""
        return torch.cat([piece.hashes for piece in self._pieces])[self._rows]

    def joined(self, others: Sequence["StoredImages"]) -> "StoredImages | None":
        """Return these images followed by others; None if they belong to other pieces."""
        if any(other._pieces != self._pieces for other in others):
            return None
        return StoredImages(self._pieces, torch.cat([self._rows, *(o._rows for o in others)]))

    def _read(self, rows: Tensor) -> Tensor:
        found = torch.empty((len(rows), *self.shape[1:]), dtype=self.dtype)
        target = found.numpy()
        numbers = torch.searchsorted(self._starts, rows, right=True) - 1
        for number in numbers.unique().tolist():
            piece = self._pieces[number]
            memory, images = _mapped(piece)
            wanted = (numbers == number).nonzero()[:, 0].tolist()
            inside = (rows[wanted] - self._starts[number]).tolist()
            # All at once, so that the disk has many requests to work on.
            for row in inside:
                _expect(memory, piece.offset + row * images[0].nbytes, images[0].nbytes)
            for place, row in zip(wanted, inside):
                target[place] = images[row]
                if _row_hash(target[place]) != int(piece.hashes[row]):
                    raise ValueError(
                        f"{piece.path}: image {row} is damaged: delete the file to rebuild it"
                    )
            _forget(memory)
        return found


# What an `ImageSet` holds.
Pixels: TypeAlias = Tensor | StoredImages


def select_rows(images: Pixels, indices: Any) -> Pixels:
    """The images at `indices`: a copy in memory, or the same images on disk."""
    return images.select(indices) if isinstance(images, StoredImages) else images[indices]


def join_rows(parts: Sequence[Pixels]) -> Pixels:
    """The images of all parts, one part after the other."""
    first, *others = parts
    stored = [part for part in others if isinstance(part, StoredImages)]
    if isinstance(first, StoredImages) and len(stored) == len(others):
        together = first.joined(stored)
        if together is not None:
            return together
    return torch.cat([part[:] for part in parts])


def row_hashes(column: Pixels) -> Tensor:
    """Return hashes (N,) int64 of images or labels (N, ...)."""
    if isinstance(column, StoredImages):
        return column.hashes()
    rows = column.cpu().contiguous().numpy()
    return torch.tensor([_row_hash(row) for row in rows], dtype=torch.int64)


def _row_hash(row: np.ndarray) -> int:
    digest = hashlib.blake2b(row.data, digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def write_piece(
    path: Path, images: Tensor, places: Tensor, failures: Sequence[str], largest: int
) -> None:
    """Write a piece of a cache, whole or not at all."""
    columns = {
        "images": images.contiguous(),
        "hashes": row_hashes(images),
        "places": places,
    }
    about = {"failures": json.dumps(list(failures), allow_nan=False), "largest": str(largest)}
    header = {"format": _FORMAT, **about, "checksum": _checksum(columns, about)}
    write_atomically(path, save(columns, metadata=header))


def read_piece(path: Path) -> Piece:
    """The piece in a file; its images are mapped when they are asked for."""
    check_file(path)
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            # Copies: the map of the file goes with it.
            columns = {name: file.get_tensor(name).clone() for name in ("hashes", "places")}
            shape = tuple(file.get_slice("images").get_shape())
    except SafetensorError as error:
        raise ValueError(f"{path}: is damaged ({error}): delete it to rebuild it") from None
    about = {name: header.get(name, "") for name in ("failures", "largest")}
    if header.get("format") != _FORMAT or header.get("checksum") != _checksum(columns, about):
        raise ValueError(f"{path}: is damaged: delete it to rebuild it")
    with path.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        entry = parse_json(opened.read(length).decode(), path)["images"]
    status = path.stat()
    return Piece(
        path=str(path),
        identity=(status.st_ino, status.st_mtime_ns),
        offset=8 + length + entry["data_offsets"][0],
        shape=shape,
        dtype=torch.from_numpy(np.empty(0, _TYPES[entry["dtype"]])).dtype,
        hashes=columns["hashes"],
        places=columns["places"],
        failures=tuple(parse_json(about["failures"], path)),
        largest=int(about["largest"]),
    )


def _checksum(columns: dict[str, Tensor], about: dict[str, str]) -> str:
    """Of everything but the images, which have a hash each."""
    found = hashlib.blake2b(digest_size=16)
    for name in ("hashes", "places"):
        found.update(columns[name].numpy().tobytes())
    found.update(json.dumps(about, sort_keys=True, allow_nan=False).encode())
    return found.hexdigest()


def _mapped(piece: Piece) -> tuple[mmap.mmap, np.ndarray]:
    """The file in memory, and the images in it."""
    return _open_map(
        piece.path, piece.identity, piece.offset, piece.shape, piece.dtype == torch.uint8
    )


@lru_cache(maxsize=_MOST_OPEN)
def _open_map(
    path: str,
    identity: tuple[int, int],
    offset: int,
    shape: tuple[int, int, int, int],
    whole: bool,
) -> tuple[mmap.mmap, np.ndarray]:
    with open(path, "rb") as file:
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if hasattr(memory, "madvise"):
        # Rows are drawn at random: what lies beside them is not wanted.
        memory.madvise(mmap.MADV_RANDOM)
    count = int(np.prod(shape))
    values = np.frombuffer(memory, np.uint8 if whole else np.float32, count, offset)
    return memory, values.reshape(shape)


def _expect(memory: mmap.mmap, start: int, length: int) -> None:
    """Let the system read these bytes while we go on."""
    if hasattr(memory, "madvise"):
        first = start - start % mmap.PAGESIZE
        memory.madvise(mmap.MADV_WILLNEED, first, start + length - first)


def _forget(memory: mmap.mmap) -> None:
    """Give the pages back: they stay with the system as long as it has room for them."""
    if os.name == "posix" and hasattr(memory, "madvise"):
        memory.madvise(mmap.MADV_DONTNEED)
