"""Decode many image files to one tensor, and handle unreadable files."""

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, get_args

from torch import Tensor

from besselnet._pixels import check_reading, counted, is_deep, option_hint, read_size
from besselnet.checks import check_choice
from besselnet.data._cache import Cache, Contents, ImageCache, reason_for_disk
from besselnet.data._decode import Decoded, Resize, decode_files, warn_of_dark_images
from besselnet.data._sizes import choose_size
from besselnet.data._stored import Pixels

# Of warnings in what `read_files` calls: the caller of load_data.
_CALLER = 5


class Loaded(NamedTuple):
    """What `read_files` found.

    Attributes:
        images: (M, C, S, S), in memory or on disk.
        places: (M,) int64, the places of their files among the paths.
        fitted: how they came to their size, where that was chosen for them.
        stored: why they are on disk; empty for images in memory.
    """

    images: Pixels
    places: Tensor
    fitted: str
    stored: str


def read_files(
    root: Path,
    paths: Sequence[Path | str],
    image_size: int | None,
    resize: Resize,
    on_error: str,
    cache: Cache | None,
    **how: Any,
) -> Loaded:
    """The images in the files `paths` of the folder or table `root`.

    `image_size=None` chooses one (`choose_size`). `cache` keeps the decoded images on disk ("always") or in
    memory ("never"); unset, their size decides. `how` are the other options of `iter_images`.
    """
    check_choice("on_error", on_error, ("raise", "skip"))
    if cache is not None:
        check_choice("cache", cache, get_args(Cache))
    check_reading(**how)
    side, fitted = image_size, ""
    store = None if cache == "never" else ImageCache(root, paths)
    known = None if store is None or image_size is not None else store.read_size()
    if known is not None:
        side, fitted = known
    elif image_size is None:
        counts = Counter(header_sizes(paths, how["page"], how["max_pixels"]))
        side, fitted = choose_size(counts.elements(), resize)
        if side is None and counts:
            side = next(iter(counts))[0]
    stored = ""
    if side is not None:
        # Files of one set are of one kind.
        deep = bool(paths) and is_deep(paths[0])
        stored = reason_for_disk(len(paths), side, how["channels"], cache, deep=deep)
    found: Decoded | Contents
    if store is None or side is None or not stored:
        found, stored = decode_files(paths, side, resize, how), ""
    else:
        store.write_size(side, fitted)
        found = store.load(side, resize, how, retry=on_error == "raise")
        stored = f"{stored}: {store.folder}"
    report_failures(found.failures, len(paths), on_error, _CALLER)
    if how["bits"] is None:
        warn_of_dark_images(found.largest, _CALLER)
    return Loaded(found.images, found.places, fitted, stored)


def header_sizes(
    paths: Iterable[Path | str], page: int | None, max_pixels: int | None
) -> Iterator[tuple[int, int]]:
    """Width and height of the files whose headers can be read; the others are reported when decoded.

    EXIF orientations that swap the two are ignored: shorter side and squareness are the same.
    """
    for path in paths:
        with suppress(ValueError, OSError):
            yield read_size(path, page=page, max_pixels=max_pixels)


def report_failures(
    failures: Sequence[str], total: int, on_error: str, stacklevel: int = 4
) -> None:
    """An error, or with `on_error="skip"` a warning, with the first of the files that cannot be read.

    `stacklevel` is that of the caller of `load_data`.
    """
    if not failures:
        return
    message = f"{failures[0]} ({len(failures)} of {counted(total, 'file')} cannot be read)"
    if len(failures) == total:
        raise ValueError(message)
    if on_error == "raise":
        raise ValueError(f"{message}; to skip such files, {option_hint('on_error', 'skip')}")
    warnings.warn(f"skipped: {message}", stacklevel=stacklevel)
