"""A cache of decoded images on disk: built once, verified, shared by processes, resumed after a kill.

`cache_folder()/decoded/NAME-HASH` belongs to one folder or table of images. A piece has the images of
consecutive files. Its name is a hash of everything that determines its content: names, sizes and times of its
files, and how they are read. So a piece is either complete, or it is built.
"""

import hashlib
import os
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from besselnet.atomic import remove_leftovers, write_json
from besselnet.data._bar import progress_bar
from besselnet.data._decode import Resize, decode_files
from besselnet.data._files import cache_folder, file_lock
from besselnet.data._imageset import as_floats
from besselnet.data._stored import Piece, StoredImages, read_piece, write_piece
from besselnet.untrusted import check_keys, read_json

Cache = Literal["always", "never"]

# Images that need more than this share of the memory stay on disk: loading them makes copies in passing, and
# training needs the rest.
SHARE = 0.25
# Where the system does not say how much memory it has.
_USUAL_MEMORY = 8 * 2**30
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
# Of a piece of colour images: what a kill loses at most, and what is in memory while it is made.
_PIECE_BYTES = 32 * 2**20
_COLOURS = 3
_FORMAT = 1
# Of warnings: the caller of load_data.
_CALLER = 7
# What is kept of the choice of a size, which needs the header of every file.
_SIZE: dict[str, tuple[Any, str]] = {
    "side": (int, "an integer"),
    "fitted": (str, "a string"),
}


def memory_bytes() -> int:
    """The memory of the machine, or of the control group that this process is in."""
    try:
        found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        found = _USUAL_MEMORY
    for limit in _LIMITS:
        try:
            found = min(found, int(Path(limit).read_text()))
        except (OSError, ValueError):
            # No such system, or "max".
            continue
    return found


def reason_for_disk(
    count: int, side: int, channels: int | None, cache: Cache | None, *, deep: bool = False
) -> str:
    """Why `count` images of `side` pixels are to stay on disk: one line, empty where they are not.

    `deep` images have more than 8 bits: they are grey, and float32 in memory.
    """
    values = 4 * (channels or 1) if deep else channels or _COLOURS
    needed, memory = count * values * side**2, memory_bytes()
    if cache == "never" or (cache is None and needed <= SHARE * memory):
        return ""
    shown = f"{count:,} images of {side} x {side} pixels ({_in_bytes(needed)})"
    if cache == "always":
        return f"{shown} are read from disk (data.cache='always')"
    return (
        f"{shown} take more than {SHARE:.0%} of {_in_bytes(memory)} memory: they are read from disk "
        "(data.cache='never' keeps them in memory)"
    )


def _in_bytes(number: int) -> str:
    return f"{number / 1e9:.3g} GB" if number >= 1e9 else f"{number / 1e6:.3g} MB"


class Contents(NamedTuple):
    """Images of a cache: as `Decoded`, on disk."""

    images: StoredImages
    places: Tensor
    failures: list[str]
    largest: int


class ImageCache:
    """The cache of the image files `paths`, which belong to the folder or table `root`."""

    def __init__(self, root: Path, paths: Sequence[Path | str]) -> None:
        whole = os.path.abspath(root)
        name = hashlib.blake2b(os.fsencode(whole), digest_size=6).hexdigest()
        self.folder = cache_folder() / "decoded" / f"{Path(whole).name}-{name}"
        self._paths = paths

    @cached_property
    def _identities(self) -> np.ndarray:
        """(N, 16) bytes that change when the files do."""
        found = np.empty((len(self._paths), 16), np.uint8)
        for row, path in zip(found, self._paths):
            row[:] = _identity(path)
        return found

    def read_size(self) -> tuple[int, str] | None:
        """What `write_size` kept for the same files."""
        path = self._size_path() if self.folder.exists() else None
        if path is None or not path.exists():
            return None
        found = read_json(path)
        check_keys(path, found, _SIZE)
        return found["side"], found["fitted"]

    def write_size(self, side: int, fitted: str) -> None:
        """Keep the side that was chosen for the images: choosing takes the header of every file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        # Else another process takes the file under way for a leftover.
        with self._lock():
            write_json(self._size_path(), {"side": side, "fitted": fitted})

    def load(self, side: int, resize: Resize, how: Mapping[str, Any], *, retry: bool) -> Contents:
        """The images at `side` pixels; pieces that are missing are made.

        `how` are the other options of `iter_images`. With `retry`, files that could not be read are tried
        again. One process at a time makes pieces; others wait for it, and find them.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        length = max(1, _PIECE_BYTES // (_COLOURS * side**2))
        recipe = repr((_FORMAT, side, resize, sorted(how.items()))).encode()
        pieces, places = [], []
        with self._lock(), progress_bar("images") as show:
            remove_leftovers(self.folder)
            for start in range(0, len(self._paths), length):
                show(f"decoding into {self.folder}", start, len(self._paths))
                chosen = slice(start, start + length)
                name = _hexadecimal(recipe + self._identities[chosen].tobytes())
                path = self.folder / f"{name}.safetensors"
                piece = _existing(path)
                if piece is None or (retry and piece.failures):
                    write_piece(path, *decode_files(self._paths[chosen], side, resize, how))
                    piece = read_piece(path)
                pieces.append(piece)
                places.append(start + piece.places)
            failures = [text for piece in pieces for text in piece.failures]
            # Without any image the caller has only failures to report.
            kept = [piece for piece in pieces if len(piece.places)]
            images = StoredImages(_made_alike(kept))
        largest = max(piece.largest for piece in pieces)
        return Contents(images, torch.cat(places), failures, largest)

    def _lock(self) -> AbstractContextManager[None]:
        return file_lock(self.folder / ".lock")

    def _size_path(self) -> Path:
        return self.folder / f"size-{_hexadecimal(self._identities.tobytes())}.json"


def _identity(path: Path | str) -> np.ndarray:
    whole = os.path.abspath(path)
    try:
        status = os.stat(whole)
        facts = (status.st_size, status.st_mtime_ns)
    except OSError:
        # Whoever decodes it says why.
        facts = (-1, -1)
    content = os.fsencode(whole) + repr(facts).encode()
    return np.frombuffer(hashlib.blake2b(content, digest_size=16).digest(), np.uint8)


def _hexadecimal(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _existing(path: Path) -> Piece | None:
    """The piece at `path`; None where there is none, or a damaged one."""
    try:
        return read_piece(path)
    except FileNotFoundError:
        return None
    except ValueError as error:
        warnings.warn(f"rebuilt: {error}", stacklevel=_CALLER)
        return None


def _made_alike(pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces with the channels and of the type that all of them fit in, as `stack_alike` has them."""
    channels = max((piece.shape[1] for piece in pieces), default=1)
    deep = any(piece.dtype == torch.float32 for piece in pieces)
    kind = torch.float32 if deep else torch.uint8
    return [
        piece
        if (piece.shape[1], piece.dtype) == (channels, kind)
        else _widened(piece, channels, kind)
        for piece in pieces
    ]


def _widened(piece: Piece, channels: int, kind: torch.dtype) -> Piece:
    """A piece with more channels, or of more bits; it is kept beside the other one."""
    old = Path(piece.path)
    path = old.with_name(
        f"{old.stem}-{channels}-{'deep' if kind == torch.float32 else 'flat'}.safetensors"
    )
    found = _existing(path)
    if found is None:
        images = StoredImages([piece])[:]
        wide = (as_floats(images) if kind == torch.float32 else images).expand(-1, channels, -1, -1)
        write_piece(path, wide, piece.places, piece.failures, piece.largest)
        found = read_piece(path)
    return found
