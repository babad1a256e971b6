"""Write PNG files row by row, so images of any height need little memory."""

import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np

from besselnet.atomic import atomic_file

Array = np.ndarray


class PngRows:
    """Writes rows of a picture to an open file.

    Args:
        file: open for writing.
        height, width: of the whole picture.
        channels: 1 for grey, 3 for colour.
        bits: of a value, 8 or 16.
    """

    def __init__(
        self, file: BinaryIO, height: int, width: int, *, channels: int = 1, bits: int = 8
    ) -> None:
        self._file, self._left, self._width = file, height, width
        self._channels, self._bits = channels, bits
        self._packer = zlib.compressobj(6)
        self._last = np.zeros((1, width * channels * bits // 8), np.uint8)
        file.write(b"\x89PNG\r\n\x1a\n")
        colour = {1: 0, 3: 2}[channels]
        self._chunk(b"IHDR", struct.pack(">2I5B", width, height, bits, colour, 0, 0, 0))

    def write(self, rows: Array) -> None:
        """Append rows (h, W) or (h, W, 3), cast to 8 or 16 bits."""
        numbers = np.ascontiguousarray(rows, np.uint8 if self._bits == 8 else ">u2")
        lines = numbers.view(np.uint8).reshape(len(numbers), -1)
        if lines.shape[1] != self._last.shape[1] or len(lines) > self._left:
            raise ValueError(
                f"rows has shape {rows.shape}: must be at most {self._left} rows of {self._width} pixels"
            )
        # Filter 2 of the format: each byte minus the one above it.
        differences = lines - np.concatenate([self._last, lines[:-1]])
        filtered = np.pad(differences, ((0, 0), (1, 0)), constant_values=2)
        self._last = lines[-1:].copy()
        self._left -= len(lines)
        if packed := self._packer.compress(filtered.tobytes()):
            self._chunk(b"IDAT", packed)

    def finish(self) -> None:
        """End the file; all rows must have been written."""
        if self._left:
            raise ValueError(f"{self._left} rows are missing")
        self._chunk(b"IDAT", self._packer.flush())
        self._chunk(b"IEND", b"")

    def _chunk(self, kind: bytes, content: bytes) -> None:
        self._file.write(struct.pack(">I", len(content)) + kind + content)
        self._file.write(struct.pack(">I", zlib.crc32(kind + content)))


@contextmanager
def png_file(
    path: Path, height: int, width: int, *, channels: int = 1, bits: int = 8
) -> Iterator[PngRows]:
    """A PNG file to write rows to, which appears at `path` when all of them are in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        rows = PngRows(file, height, width, channels=channels, bits=bits)
        yield rows
        rows.finish()
