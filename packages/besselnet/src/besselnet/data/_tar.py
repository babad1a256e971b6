"""Tar shards in the layout of WebDataset: files that follow each other and share a name are one sample."""

import re
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from besselnet._pixels import needed
from besselnet.untrusted import check_file, reading

# Zeros that end an archive: two blocks.
_END = 1024
# Bytes of one file in a shard.
_LARGEST = 256_000_000
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")


class Sample(NamedTuple):
    """The files of a sample by their suffix, in lower case and without the dot; `name` says where it is."""

    name: str
    files: dict[str, bytes]


def expand_shards(shards: str | Path | Sequence[str | Path]) -> list[str]:
    """Paths and addresses one by one: ``train-{000..146}.tar`` stands for 147 of them."""
    listed = [shards] if isinstance(shards, str | Path) else shards
    found: list[str] = []
    for shard in map(str, listed):
        numbers = _RANGE.search(shard)
        if numbers is None:
            found.append(shard)
            continue
        first, last = numbers.groups()
        names = (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))
        for name in names:
            found += expand_shards(shard[: numbers.start()] + name + shard[numbers.end() :])
    return found


def read_shard(shard: str) -> Iterator[Sample]:
    """The samples of a shard in their order, read from its start to its end.

    `shard` is a path, or an address (``s3://...``) that fsspec opens. A shard that ends too early, holds
    anything but files and folders, or a file of more than 256 MB ends in one line that names it.
    """
    sample: Sample | None = None
    for path, content in _files(shard):
        stem, suffix = _parted(path)
        name = f"{shard}: {stem}"
        if sample is not None and sample.name != name:
            yield sample
            sample = None
        if sample is None:
            sample = Sample(name, {})
        if suffix in sample.files:
            raise ValueError(f"{shard}: holds {path!r} twice")
        sample.files[suffix] = content
    if sample is not None:
        yield sample


def _files(shard: str) -> Iterator[tuple[str, bytes]]:
    with _opened(shard) as stream, reading(shard):
        watched: Any = _Watched(stream)
        # As a stream: members are read one after the other, and nothing is looked for.
        with tarfile.open(fileobj=watched, mode="r|") as archive:
            while (member := archive.next()) is not None:
                # All that were read are kept otherwise.
                archive.members.clear()  # type: ignore[attr-defined]
                content = _content(archive, member)
                if content is not None:
                    yield member.name, content
        watched.check_end()


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes | None:
    if member.isdir():
        return None
    if not member.isreg():
        raise ValueError(f"{member.name!r} is a link or device, must be a file")
    if member.size > _LARGEST:
        raise ValueError(f"{member.name!r} has {member.size:,} bytes, must be at most {_LARGEST:,}")
    file = archive.extractfile(member)
    assert file is not None  # a regular file
    return file.read()


def _parted(path: str) -> tuple[str, str]:
    """The name of the sample, up to the first dot behind the folders, and the suffix."""
    folder, slash, name = path.rpartition("/")
    stem, _, suffix = name.partition(".")
    return folder + slash + stem, suffix.lower()


@contextmanager
def _opened(shard: str) -> Iterator[IO[bytes]]:
    if "://" in shard:
        with reading(shard):
            opened = needed("fsspec", "reading shards by an address", "remote").open(shard, "rb")
        with opened as file:
            yield file
        return
    check_file(shard)
    with open(shard, "rb") as file:
        yield file


class _Watched:
    """A stream whose last bytes are remembered: those of a whole archive are zeros."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._tail = stream, b""

    def read(self, size: int = -1) -> Any:
        content = self._stream.read(size)
        self._tail = (self._tail + content)[-_END:]
        return content

    def check_end(self) -> None:
        """Refuse an archive that was cut off between two members, which tarfile takes for its end."""
        while self.read(1 << 20):
            pass
        if self._tail != bytes(_END):
            raise ValueError("ends too early: the end of the archive is missing")
