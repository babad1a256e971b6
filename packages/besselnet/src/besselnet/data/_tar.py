"""Read tar archives member by member; in WebDataset layout, several members are one sample."""

import gzip
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, BinaryIO, NamedTuple

from besselnet.data._stored_arrays import is_remote, open_binary
from besselnet.untrusted import MOST_BYTES, reading

TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz")


class Member(NamedTuple):
    """A member of an archive that is no folder; `file` is the archive, unpacked."""

    name: str
    start: int
    size: int
    is_plain: bool
    file: Any

    @property
    def can_read(self) -> bool:
        return self.is_plain and self.size <= MOST_BYTES

    def read(self) -> bytes:
        """The content; a link, a device, a sparse, very large or cut off file ends in one line."""
        if not self.is_plain:
            raise ValueError(
                f"{self.name}: must be a regular file, not a link, device or sparse file"
            )
        if self.size > MOST_BYTES:
            raise ValueError(
                f"{self.name}: has {self.size:,} bytes, must have at most {MOST_BYTES:,}"
            )
        self.file.seek(self.start)
        return whole_member(self.name, self.file.read(self.size), self.size)


def whole_member(name: str, content: bytes, size: int) -> bytes:
    """What was read of an archive, unless that is less than it should have."""
    if len(content) < size:
        raise ValueError(
            f"{name}: the archive is truncated: it has {len(content):,} of {size:,} bytes"
        )
    return content


def can_seek(archive: str) -> bool:
    """Whether other processes can read single members, by their place in the archive."""
    return not archive.endswith("gz") and not is_remote(archive)


def iter_members(archive: str) -> Iterator[Member]:
    """The members of an archive, local or remote, in their order, without folders and hidden files.

    An archive that is damaged or cut off ends in one line that names it, after the members before that.
    """
    with reading(archive), ExitStack() as stack:
        plain = stack.enter_context(open_binary(archive))
        packed = archive.endswith("gz")
        unpacked: Any = stack.enter_context(gzip.GzipFile(fileobj=plain)) if packed else plain
        file: Any = _Remembering(unpacked)
        opened: Any = stack.enter_context(tarfile.open(fileobj=file, mode="r:"))
        while (found := opened.next()) is not None:
            # Else the archive keeps all of them.
            opened.members.clear()
            if not found.isdir() and not found.name.rpartition("/")[2].startswith("."):
                is_plain = found.isfile() and not found.issparse()
                yield Member(found.name, found.offset_data, found.size, is_plain, file)
        if file.last.strip(b"\0") or len(file.last) < tarfile.BLOCKSIZE:
            raise ValueError("the archive is truncated or damaged: its end is missing")


class _Remembering:
    """A file that remembers what was read last: of a complete archive, a block of zeros.

    tarfile takes everything else that is no header for the end, too.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.last, self._file = b"", file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int = -1) -> bytes:
        self.last = self._file.read(size)
        return self.last


class Sample(NamedTuple):
    """The files of a sample by their suffix, in lower case and without the dot; `name` says where it is."""

    name: str
    files: dict[str, bytes]


def iter_samples(archive: str) -> Iterator[Sample]:
    """The samples of an archive: members that follow each other and share a name, up to its first dot."""
    sample: Sample | None = None
    for member in iter_members(archive):
        folder, slash, last = member.name.rpartition("/")
        stem, _, suffix = last.lower().partition(".")
        name = f"{archive}: {folder}{slash}{last[: len(stem)]}"
        if sample is not None and sample.name != name:
            yield sample
            sample = None
        if sample is None:
            sample = Sample(name, {})
        if suffix in sample.files:
            raise ValueError(f"{archive}: contains {member.name!r} twice")
        with reading(archive):
            sample.files[suffix] = member.read()
    if sample is not None:
        yield sample
