"""Data sets by name."""

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from besselnet.checks import (
    LARGEST_SIDE,
    check_choice,
    check_count,
    check_finite,
    check_number,
    check_seed,
)
from besselnet.data._decode import Resize
from besselnet.data._download import Download, fetch_file, verify
from besselnet.data._files import cache_folder
from besselnet.data._imageset import Splits
from besselnet.data._split import check_shares
from besselnet.data._table import table_in

_COMMON = ("root", "image_size", "seed")


@dataclass(frozen=True)
class DataSource:
    """A registered data set: its loader and the source of its files.

    `obtain` explains in one line how to get the files of a set without `downloads`.
    """

    name: str
    summary: str
    load: Callable[..., Splits]
    downloads: tuple[Download, ...] = ()
    obtain: str = ""

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the options that `load_data` accepts."""
        return tuple(k for k in inspect.signature(self.load).parameters if k not in _COMMON)


_SOURCES: dict[str, DataSource] = {}


def register_data(
    name: str,
    *,
    summary: str,
    downloads: tuple[Download, ...] = (),
    obtain: str = "",
) -> Callable[[Callable[..., Splits]], Callable[..., Splits]]:
    """Decorator that registers `load(*, root, image_size, seed, ...) -> Splits` as `name`."""
    if name in _SOURCES:
        raise ValueError(f"a data set called {name!r} is already registered")

    def add(load: Callable[..., Splits]) -> Callable[..., Splits]:
        _SOURCES[name] = DataSource(name, summary, load, downloads, obtain)
        return load

    return add


def list_data() -> list[str]:
    """List the names of the data sets, sorted."""
    return sorted(_SOURCES)


def data_source(name: str) -> DataSource:
    """Return the registered data set called `name`."""
    if name not in _SOURCES:
        near = difflib.get_close_matches(name, list_data(), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"{name!r} is neither a data set ({', '.join(list_data())}) "
            f"nor a folder of images, an .npz file or a .csv file{hint}"
        )
    return _SOURCES[name]


def _kind_of(path: Path) -> str:
    """The name of the data set that reads a path of the user's."""
    if path.is_dir():
        tops = (path, path / "train")
        if any((top / "images").is_dir() and (top / "masks").is_dir() for top in tops):
            return "masks"
        return "table" if table_in(path) else "folder"
    kinds = {".npz": "npz", ".csv": "table"}
    if path.suffix.lower() not in kinds:
        raise ValueError(f"{path}: is neither a folder of images nor an .npz or .csv file")
    return kinds[path.suffix.lower()]


def _find(name_or_path: str | Path, root: str | Path | None) -> tuple[DataSource, Path | None]:
    """The data set that `load_data` loads, and where its files are."""
    path = Path(name_or_path).expanduser()
    place: Path | None
    if str(name_or_path) not in _SOURCES and path.exists():
        if root is not None:
            raise ValueError(
                f"root must be unset for a path such as {name_or_path!s}; it is for named data sets"
            )
        source, place = data_source(_kind_of(path)), path
    else:
        source = data_source(str(name_or_path))
        place = None if root is None else Path(root).expanduser()
        if place is not None and not place.exists():
            raise FileNotFoundError(f"{place}: no such file or folder")
    return source, place


def load_data(
    name_or_path: str | Path,
    *,
    root: str | Path | None = None,
    image_size: int | None = None,
    seed: int = 0,
    **options: Any,
) -> Splits:
    """Load a registered data set, a folder of images, an .npz file, or a CSV table of images.

    A folder has one subfolder per class, or `images` and `masks`, or a table.

    - `root`: folder (or file) with the published files; it is only read. Default: the cache folder, where
      missing files are downloaded;
    - `image_size`: resize images to this size (square). Default: published sets keep their size. For your own
      images, a size is chosen if they are not square, differ in size or have more than 256 pixels per side.
      Images with masks are not resized;
    - `seed`: random seed for splitting sets without official splits, and for re-created sets;
    - `options`: options of the data set, see `data_source(name).options` and the documentation.

    A registered name takes precedence over a path of the same name; write "./mnist" for the folder.
    """
    if image_size is not None:
        check_count("image_size", image_size, most=LARGEST_SIDE)
    check_seed(seed)
    source, place = _find(name_or_path, root)
    unknown = sorted(set(options) - set(source.options))
    if unknown:
        raise ValueError(
            f"{source.name} has no option {unknown[0]!r}; its options: {', '.join(source.options) or 'none'}"
        )
    for key, value in options.items():
        check_finite(key, value)
    if "split" in options:
        check_shares("split", options["split"])
    if options.get("val") is not None:
        check_number("val", options["val"], above=0, below=1)
    if "resize" in options:
        check_choice("resize", options["resize"], get_args(Resize))
    return source.load(root=place, image_size=image_size, seed=seed, **options)


def data_options(name_or_path: str | Path) -> tuple[str, ...]:
    """Return the names of the options of a data set or path; empty if there is no such set."""
    try:
        return _find(name_or_path, None)[0].options
    except ValueError:
        return ()


def resolve_reading(name_or_path: str | Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `options` of a data set with its default `resize` if they have none.

    Prediction must resize images like training did. If there is no such set, the options are unchanged, and
    `load_data` explains the error.
    """
    try:
        source, _ = _find(name_or_path, None)
    except ValueError:
        return dict(options)
    resize = inspect.signature(source.load).parameters.get("resize")
    if resize is None or resize.default is resize.empty:
        return dict(options)
    return {"resize": resize.default, **options}


def fetch_data(name: str) -> list[Path]:
    """Download the files of a data set to the cache folder, or verify existing ones."""
    source = data_source(name)
    if not source.downloads:
        raise ValueError(f"{name} has nothing to download: {source.obtain}")
    folder = cache_folder() / name
    paths = []
    for download in source.downloads:
        present = (folder / download.name).exists()
        paths.append(verify(download, folder) if present else fetch_file(download, folder))
    return paths
