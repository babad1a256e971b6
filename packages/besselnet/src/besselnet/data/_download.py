"""Downloads with checksum, progress bar and resumption."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from besselnet._pixels import needed
from besselnet.data._bar import progress_bar
from besselnet.data._files import cache_folder, file_lock, find_file, missing

# What has arrived of an unfinished chunk is lost when the connection breaks.
_CHUNK = 1 << 14
_TIMEOUT = (10, 60)
_PURPOSE = "downloading data sets"


@dataclass(frozen=True)
class Download:
    """A published file: its name, its URLs (mirrors in order) and its checksum.

    `checksum` is "algorithm:hex digits", as in pooch.
    """

    name: str
    urls: tuple[str, ...]
    checksum: str


def fetch_file(download: Download, folder: Path) -> Path:
    """Download a file to `folder` if it is missing, and return its path.

    A file gets its final name only after its checksum was verified. An interrupted download leaves
    `<name>.part`, and the next call continues from it.
    """
    target = folder / download.name
    if target.exists():
        return target
    _, requests = _packages()
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f"{download.name}.part"
    failures = []
    with file_lock(folder / f"{download.name}.lock"):
        for url in () if target.exists() else download.urls:
            try:
                _receive(url, part)
            except (_Broken, requests.RequestException) as error:
                failures.append(f"{url} ({_reason(error)})")
                continue
            if not _is_right(part, download):
                part.unlink()
                raise ValueError(
                    f"{target}: the download from {url} does not match the published checksum "
                    f"{download.checksum}; it was deleted"
                )
            os.replace(part, target)
            break
    if not target.exists():
        raise OSError(f"cannot download {download.name}: {'; '.join(failures)}")
    return target


def obtain_file(
    name: str, root: Path | None, file_names: Sequence[str], download: Download | None = None
) -> Path:
    """The first of `file_names` in `root` or in the cache folder of the set; else downloaded there."""
    path = find_file(name, root, file_names)
    if path is not None:
        return path
    if root is not None or download is None:
        raise missing(name, root or cache_folder() / name, " or ".join(file_names))
    return fetch_file(download, cache_folder() / name)


def verify(download: Download, folder: Path) -> Path:
    """The path of the downloaded file, after its checksum was computed again."""
    target = folder / download.name
    if not _is_right(target, download):
        raise ValueError(f"{target}: does not match the published checksum {download.checksum}")
    return target


def _is_right(path: Path, download: Download) -> bool:
    algorithm, expected = download.checksum.split(":")
    pooch, _ = _packages()
    return bool(pooch.file_hash(str(path), alg=algorithm) == expected)


def _receive(url: str, part: Path, attempts: int = 4) -> None:
    """Receive a file into `part`; a connection that breaks is taken up again, with growing pauses."""
    _, requests = _packages()
    for attempt in range(attempts):
        try:
            _receive_rest(url, part)
            break
        except (_Broken, requests.ConnectionError, requests.Timeout) as error:
            refused = not isinstance(error, _Broken) and not part.exists()
            if refused or attempt + 1 == attempts:
                raise
            _pause(2.0**attempt)


def _receive_rest(url: str, part: Path) -> None:
    """Ask for what is not in `part` by an HTTP `Range`; a server that ignores it starts the file again."""
    _, requests = _packages()
    have = part.stat().st_size if part.exists() else 0
    # "identity": a transparently compressed answer has other offsets than the file.
    headers = {"Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as answer:
        if answer.status_code == requests.codes.requested_range_not_satisfiable:
            # The part is already whole, or longer than the file: a fresh start decides.
            if answer.headers.get("Content-Range") == f"bytes */{have}":
                return
            part.unlink()
            raise _Broken("the partial download is longer than the file")
        answer.raise_for_status()
        resumed = answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        if not (answer.status_code == requests.codes.partial_content and resumed):
            have = 0
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length else None
        with part.open("ab" if have else "wb") as file, progress_bar("bytes") as show:
            show(part.stem, have, total)
            try:
                for chunk in answer.iter_content(_CHUNK):
                    file.write(chunk)
                    have += len(chunk)
                    show(part.stem, have, total)
            except requests.RequestException as error:
                raise _Broken(f"connection lost after {have} bytes") from error
        if total is not None and have < total:
            raise _Broken(f"connection lost after {have} of {total} bytes")


def _packages() -> tuple[Any, Any]:
    return needed("pooch", _PURPOSE, "data"), needed("requests", _PURPOSE, "data")


def _pause(seconds: float) -> None:
    time.sleep(seconds)


class _Broken(OSError):
    """The connection ended before the file did."""


def _reason(error: Exception) -> str:
    """The cause in a few words: requests' own texts nest object addresses."""
    _, requests = _packages()
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"HTTP {error.response.status_code}"
    known = {requests.Timeout: "timeout", requests.ConnectionError: "no connection"}
    otherwise = str(error) if isinstance(error, _Broken) else type(error).__name__
    return next((words for kind, words in known.items() if isinstance(error, kind)), otherwise)
