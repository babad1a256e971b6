"""Find the published files of a data set: given by the user, or in the cache folder."""

from collections.abc import Sequence
from pathlib import Path

from besselnet.data._cache import cache_folder


def find_file(name: str, root: Path | None, file_names: Sequence[str]) -> Path | None:
    """The first of `file_names` that exists, or None.

    Looked for in `root` and `root/name`, or in the cache folder of the set when `root` is None; a
    `root` that is a file is taken to be the file.
    """
    if root is not None and root.is_file():
        return root
    folders = [cache_folder() / name] if root is None else [root, root / name]
    places = (folder / file_name for file_name in file_names for folder in folders)
    return next((place for place in places if place.exists()), None)


def missing(name: str, root: Path, expected: str) -> FileNotFoundError:
    """The error for a `root` without the files of the set."""
    return FileNotFoundError(f"{root}: holds no files of {name} (looked for {expected})")
