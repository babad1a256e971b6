"""`mnist-rot`, `mnist-back`, `mnist-rot-back`: MNIST rotated, on photographs, and both.

The sets of Larochelle et al. (ICML 2007), 12 000 + 50 000 digits: read from the original files, or
re-created from MNIST (`recreation.py`) and then labelled so in `Splits.provenance`.
"""

import io
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, get_args

import numpy as np
import torch

from besselnet._pixels import reading
from besselnet.checks import check_choice
from besselnet.data._download import Download, fetch
from besselnet.data._files import (
    cache_folder,
    file_identity,
    find_file,
    missing,
    open_zip,
    prepared_arrays,
)
from besselnet.data._imageset import ImageSet, Provenance, Splits
from besselnet.data._registry import register_data
from besselnet.data._sets.mnist import DIGITS, digit_splits, mnist_arrays
from besselnet.data._sets.recreation import Recipe, recreate
from besselnet.functional import Interpolation

ROWS = {"train": 12_000, "test": 50_000}
VERSIONS = ("auto", "original", "recreated")
_INTERPOLATION: Interpolation = "cubic"
_ADDRESS = "http://www.iro.umontreal.ca/~lisa/icml2007data/"


@dataclass(frozen=True)
class Variation:
    """One of the three sets: its name says what was done to the digits."""

    name: str
    download: Download
    files: dict[str, str]


def load_variation(
    variation: Variation,
    root: Path | None,
    image_size: int | None,
    seed: int,
    version: str,
    interpolation: Interpolation,
) -> Splits:
    """The set in the wanted version.

    - "original": from the archive or the two .amat files, in `root` or downloaded;
    - "recreated": made from MNIST (in `root` or downloaded) with `seed`, kept in the cache folder;
    - "auto": the original where it is given or can be downloaded, else re-created with a warning.

    `interpolation` is how a re-creation rotates its digits.
    """
    check_choice("version", version, VERSIONS)
    check_choice("interpolation", interpolation, get_args(Interpolation))
    name, rotate = variation.name, "rot" in variation.name
    if interpolation != _INTERPOLATION and not (rotate and version == "recreated"):
        raise ValueError(
            f"interpolation={interpolation!r}: must be {_INTERPOLATION!r} unless digits are rotated here, "
            f"in mnist-rot or mnist-rot-back with version='recreated'; this is {name} with "
            f"version={version!r}"
        )
    original = None if version == "recreated" else _obtain_original(variation, root, version)
    if original is not None:
        arrays = _read_original(variation, original)
        return digit_splits(arrays, image_size, Provenance(f"{name}, original files"))
    recipe = Recipe(rotate, "back" in name, ROWS["train"], ROWS["test"], seed, interpolation)
    how = "" if interpolation == _INTERPOLATION else f" and {interpolation} interpolation"
    what = f"{name}, re-creation from MNIST with seed {seed}{how}, not the original files"
    arrays = recreate(name, mnist_arrays(root), recipe)
    return digit_splits(arrays, image_size, Provenance(what, recreated=True))


def _obtain_original(
    variation: Variation, root: Path | None, version: str
) -> dict[str, Path] | None:
    """The original files, given or downloaded; None where "auto" has to do without them."""
    found = _find_original(variation, root)
    if found is not None:
        return found
    try:
        if root is not None:
            raise missing(variation.name, root, f"{variation.download.name} or .amat files")
        return {"zip": fetch(variation.download, cache_folder() / variation.name)}
    except OSError as error:
        if version == "original":
            raise
        # To the caller of load_data.
        warnings.warn(f"{error}; re-creating {variation.name} from MNIST", stacklevel=5)
        return None


def _find_original(variation: Variation, root: Path | None) -> dict[str, Path] | None:
    """{"zip": path}, or {"train": path, "test": path}, or None."""
    archive = find_file(variation.name, root, [variation.download.name])
    if archive is not None:
        return {"zip": archive} if archive.suffix == ".zip" else None
    tables = {
        part: find_file(variation.name, root, [file]) for part, file in variation.files.items()
    }
    return {part: path for part, path in tables.items() if path} if all(tables.values()) else None


def _read_original(variation: Variation, original: dict[str, Path]) -> dict[str, np.ndarray]:
    identities = sorted(file_identity(path) for path in original.values())

    def read() -> dict[str, np.ndarray]:
        arrays: dict[str, np.ndarray] = {}
        for part, rows in ROWS.items():
            with _open_table(variation, original, part) as (name, file), reading(name):
                table = np.loadtxt(file, dtype=np.float32, ndmin=2)
                if table.shape != (rows, 785):
                    raise ValueError(f"must be {rows} rows of 785 numbers, got {table.shape}")
                labels = table[:, -1].astype(np.int64)
                images = table[:, :-1].reshape(-1, 1, 28, 28)
                # The rows of mnist-back run down the columns of the image. scikit-data records this for
                # that set and not for the rotated ones; on rotated digits it would be a reflection.
                sideways = variation.name == "mnist-back"
                images = np.ascontiguousarray(images.swapaxes(2, 3) if sideways else images)
                ImageSet(torch.from_numpy(images), torch.from_numpy(labels), DIGITS)
                arrays |= {f"x_{part}": images, f"y_{part}": labels}
        return arrays

    return prepared_arrays(f"{variation.name}-original", identities, read)


@contextmanager
def _open_table(
    variation: Variation, original: dict[str, Path], part: str
) -> Iterator[tuple[str, IO[str]]]:
    """(name for messages, text) of one .amat file, alone or inside the archive."""
    with ExitStack() as stack:
        if "zip" not in original:
            path = original[part]
            yield str(path), stack.enter_context(path.open())
            return
        archive = stack.enter_context(open_zip(original["zip"]))
        wanted = variation.files[part]
        member = next((n for n in archive.namelist() if Path(n).name == wanted), None)
        if member is None:
            raise ValueError(f"has no {wanted}")
        binary = stack.enter_context(archive.open(member))
        yield f"{original['zip']}/{member}", io.TextIOWrapper(binary, "ascii")


def _register(
    name: str, summary: str, archive: str, checksum: str, stem: str, train: str = "train_valid"
) -> None:
    urls = (_ADDRESS + archive, _ADDRESS.replace("http:", "https:") + archive)
    files = {"train": f"{stem}_{train}.amat", "test": f"{stem}_test.amat"}
    variation = Variation(name, Download(archive, urls, checksum), files)

    @register_data(name, summary=summary, downloads=(variation.download,))
    def load(
        *,
        root: Path | None,
        image_size: int | None = None,
        seed: int = 0,
        version: str = "auto",
        interpolation: Interpolation = _INTERPOLATION,
    ) -> Splits:
        return load_variation(variation, root, image_size, seed, version, interpolation)


# SHA-1 sums as recorded by scikit-data.
_register(
    "mnist-rot",
    "MNIST digits rotated by any angle, 12 000 + 50 000",
    "mnist_rotation_new.zip",
    "sha1:e67f72fa42029f62fd8eb92b0638c1b9761c9a63",
    "mnist_all_rotation_normalized_float",
)
_register(
    "mnist-back",
    "MNIST digits on photographs, 12 000 + 50 000",
    "mnist_background_images.zip",
    "sha1:fb6fce9ed6372e0068ff7cb3e7b9e78dbda7ceae",
    "mnist_background_images",
    "train",
)
_register(
    "mnist-rot-back",
    "MNIST digits rotated, on photographs, 12 000 + 50 000",
    "mnist_rotation_back_image_new.zip",
    "sha1:902bb7e96136dd76e9f2924d7fdb9eb832f7bc33",
    "mnist_all_background_images_rotation_normalized",
)
