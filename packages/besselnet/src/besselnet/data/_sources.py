"""Sources of any number of images, in a fixed order: files, folders, globs, lists, archives, arrays.

| source | means |
|---|---|
| a folder | the image files in it, at any depth, sorted |
| `"photos/*.jpg"` | the files that the pattern matches, sorted; `**` for any depth |
| `"shards/{000..099}.tar"` | one name per number |
| FILE.txt | one source per line |
| FILE.tar, .tar.gz, .tgz | the image files in it, in their order (WebDataset) |
| FILE.npz, .h5, .hdf5, .zarr | the rows of an array; FILE#KEY selects the array |
| PROTOCOL://... | any of these on remote storage, by fsspec |
| anything else | an image file |
"""

import glob
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from typing import Any

from besselnet._pixels import SUFFIXES, needed, walk_images
from besselnet.data._segments import Files, Held, Members, Rows, Segment
from besselnet.data._stored_arrays import ARRAY_SUFFIXES, is_remote, open_binary, stored_array
from besselnet.data._tar import TAR_SUFFIXES, Member, can_seek, iter_members
from besselnet.untrusted import check_file, reading

LIST_SUFFIX = ".txt"
_NUMBERS = re.compile(r"\{(\d+)\.\.(\d+)\}")
# Images of a segment, where a source could have longer ones.
_SEGMENT = 256
_LARGEST_LIST = 10**10


class ImageSource:
    """Images that are read one after the other.

    Attributes:
        name: name of the source, for messages.
        count: number of images; None if it is unknown before they are read.
        size: size in bytes, if only that is known.
    """

    name: str
    count: int | None = None
    size: int = 0

    def segments(self) -> Iterator[Segment]:
        """Yield references to all images, in order."""
        raise NotImplementedError

    def facts(self) -> Iterator[str]:
        """Yield strings that change if the images change, as far as known without reading them."""
        raise NotImplementedError


class FileSource(ImageSource):
    """Image files: `listings` yield their places, each time anew, so that no list is in memory."""

    def __init__(self, listings: Sequence[Callable[[], Iterable[str]]]) -> None:
        self.listings = listings
        self.name = "image files"

    def places(self) -> Iterator[str]:
        for listing in self.listings:
            yield from listing()

    def segments(self) -> Iterator[Segment]:
        places = self.places()
        while some := tuple(islice(places, _SEGMENT)):
            yield Files(some)

    def facts(self) -> Iterator[str]:
        self.count = 0
        for place in self.places():
            self.count += 1
            yield place


class TarSource(ImageSource):
    """The image files of a tar archive, as WebDataset has them; files of other kinds are left out.

    An archive that is damaged or cut off gives the images before that, and an error in its own name.
    """

    def __init__(self, place: str) -> None:
        self.name = self.place = place

    def facts(self) -> Iterator[str]:
        try:
            self.size = _size_of(self.place)
        except (ValueError, OSError) as error:
            # It gets its row when its turn comes.
            yield str(error)
        yield f"{self.place} {self.size}"

    def segments(self) -> Iterator[Segment]:
        members: list[tuple[str, int, int]] = []
        fault = None
        try:
            # Also around what members do: a packed archive may end in any of them.
            with reading(self.place):
                for found in iter_members(self.place):
                    if not _is_image(found.name):
                        continue
                    if not (can_seek(self.place) and found.can_read):
                        yield Held(((f"{self.place}/{found.name}", _content(found)),))
                        continue
                    members.append((found.name, found.start, found.size))
                    if len(members) == _SEGMENT // 4:
                        yield Members(self.place, tuple(members))
                        members.clear()
        except (ValueError, OSError) as error:
            fault = error
        if members:
            yield Members(self.place, tuple(members))
        if fault is not None:
            yield Held(((self.place, fault),))


def _content(member: Member) -> bytes | Exception:
    try:
        return member.read()
    except ValueError as error:
        return error


class ArraySource(ImageSource):
    """The rows of an array in a file."""

    def __init__(self, place: str, key: str | None) -> None:
        self.name = f"{place}#{key}" if key else place
        self.place, self.key = place, key

    def facts(self) -> Iterator[str]:
        found = self._found()
        if isinstance(found, Exception):
            self.count = 1
            yield f"{self.name}: {found}"
        else:
            key, shape, kind = found
            self.count = shape[0]
            yield f"{self.place}#{key} {shape} {kind}"

    def segments(self) -> Iterator[Segment]:
        found = self._found()
        if isinstance(found, Exception):
            yield Held(((self.name, found),))
        else:
            yield Rows(self.place, found[0], 0, found[1][0])

    def _found(self) -> tuple[str, tuple[int, ...], str] | Exception:
        try:
            with stored_array(self.place, self.key) as (key, array):
                if len(array.shape) not in (3, 4):
                    raise ValueError(
                        f"{key!r} has shape {array.shape}: images must have 3 or 4 dimensions"
                    )
                return key, tuple(array.shape), str(array.dtype)
        except (ValueError, OSError) as error:
            return error


@dataclass(frozen=True)
class Listing:
    """Result of `list_sources`.

    Attributes:
        digest: hash of all paths, sizes and shapes.
        count: number of images, if all sources know it.
    """

    digest: str
    count: int | None


def list_sources(sources: Iterable[ImageSource]) -> Listing:
    """List all sources once, which sets their `count` and `size`."""
    digest, counts = hashlib.sha256(), []
    for source in sources:
        for fact in source.facts():
            digest.update(fact.encode(errors="surrogateescape") + b"\0")
        counts.append(source.count)
    known = None if None in counts else sum(c for c in counts if c is not None)
    return Listing(digest.hexdigest(), known)


def open_sources(places: Iterable[Path | str]) -> list[ImageSource]:
    """Return the sources of `places`; consecutive image files are one source."""
    found: list[ImageSource] = []
    for place in map(_tidy, places):
        for source in _sources_of(place):
            if isinstance(source, FileSource) and found and isinstance(found[-1], FileSource):
                found[-1] = FileSource([*found[-1].listings, *source.listings])
            else:
                found.append(source)
    return found


def check_sources(places: Iterable[Path | str]) -> None:
    """Raise `ValueError` for local paths that do not exist."""
    for place in map(_tidy, places):
        whole = is_remote(place) or os.path.exists(_split_key(place)[0])
        for name in () if whole else _names_of(place):
            path, _ = _split_key(name)
            if not os.path.exists(path) and not (glob.has_magic(name) and _matches(name)):
                raise ValueError(f"{name}: no such file or folder")


def _sources_of(place: str) -> Iterator[ImageSource]:
    path, key = _split_key(place)
    there = not is_remote(place) and os.path.lexists(path)
    if not there:
        names = _names_of(place)
        if names != [place]:
            for name in names:
                yield from _sources_of(name)
            return
        if glob.has_magic(place):
            for name in _matches(place):
                yield from _sources_of(name)
            return
    if path.endswith(TAR_SUFFIXES):
        yield TarSource(path)
    elif path.rstrip("/").endswith(ARRAY_SUFFIXES):
        yield ArraySource(path.rstrip("/"), key)
    elif path.endswith(LIST_SUFFIX):
        yield from _listed(path)
    elif is_remote(path):
        yield FileSource([lambda: _remote_files(path)])
    elif os.path.isdir(path):
        yield FileSource([lambda: walk_images(path)])
    else:
        yield FileSource([lambda: (path,)])


def _tidy(place: Path | str) -> str:
    """Local paths as `Path` shows them, addresses as they are."""
    return str(place) if is_remote(str(place)) else str(Path(place))


def _split_key(place: str) -> tuple[str, str | None]:
    """FILE#KEY of an array as (FILE, KEY)."""
    path, mark, key = place.rpartition("#")
    if mark and path.rstrip("/").endswith(ARRAY_SUFFIXES) and not os.path.lexists(place):
        return path, key
    return place, None


def _names_of(place: str) -> list[str]:
    """Names for all numbers of {000..099} in a place."""
    parts = _NUMBERS.split(place)
    choices = [
        [f"{n:0{len(first)}d}" for n in range(int(first), int(last) + 1)]
        for first, last in zip(parts[1::3], parts[2::3])
    ]
    texts = parts[::3]
    return [
        "".join(text + number for text, number in zip(texts, (*numbers, "")))
        for numbers in product(*choices)
    ]


def _matches(pattern: str) -> list[str]:
    if not is_remote(pattern):
        return sorted(glob.glob(pattern, recursive=True))
    system, _ = _file_system(pattern)
    return sorted(map(system.unstrip_protocol, system.glob(pattern)))


def _listed(path: str) -> Iterator[ImageSource]:
    """The sources on the lines of a file; the file is read again where they are image files alone."""
    if all(_is_image(place) and not _is_pattern(place) for place in _lines(path)):
        yield FileSource([lambda: _lines(path)])
        return
    for place in _lines(path):
        if place.endswith(LIST_SUFFIX):
            raise ValueError(f"{path}: contains {place}: a list must not contain lists")
        yield from _sources_of(place)


def _lines(path: str) -> Iterator[str]:
    if not is_remote(path):
        check_file(path, _LARGEST_LIST)
    with open_binary(path) as file:
        for line in file:
            if place := line.decode("utf-8", "surrogateescape").strip():
                yield place


def _is_pattern(place: str) -> bool:
    return glob.has_magic(place) or _NUMBERS.search(place) is not None


def _is_image(place: str) -> bool:
    return place.lower().endswith(SUFFIXES)


def _remote_files(address: str) -> Iterator[str]:
    if _is_image(address):
        yield address
        return
    system, path = _file_system(address)
    for found in sorted(system.find(path)):
        if _is_image(found):
            yield system.unstrip_protocol(found)


def _file_system(address: str) -> tuple[Any, str]:
    fsspec = needed("fsspec", f"reading {address}", "remote")
    system, path = fsspec.core.url_to_fs(address)
    return system, path


def _size_of(place: str) -> int:
    if not is_remote(place):
        return check_file(place)
    with reading(place):
        system, path = _file_system(place)
        return int(system.size(path) or 0)
