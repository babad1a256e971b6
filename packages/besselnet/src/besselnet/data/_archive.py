"""Zip files, read in place: nothing is unpacked on disk."""

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from besselnet.data._errors import reading


@contextmanager
def open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """The archive, refused as a whole when a name in it leads out of its folder."""
    with reading(path), zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            parts = PurePosixPath(name.replace("\\", "/")).parts
            if ".." in parts or name.startswith(("/", "\\")) or ":" in name.split("/")[0]:
                raise ValueError(f"the archive holds {name!r}, which leads out of its folder")
        yield archive


def fingerprint(archive: zipfile.ZipFile) -> list[tuple[str, int, int]]:
    """Name, length and checksum of every member: what the archive holds, without reading it."""
    return [(entry.filename, entry.file_size, entry.CRC) for entry in archive.infolist()]
