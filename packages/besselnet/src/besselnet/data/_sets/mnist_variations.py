"""`mnist-rot`, `mnist-back`, `mnist-rot-back`: MNIST rotated, on photographs, and both.

The sets of Larochelle et al. (ICML 2007), 12 000 + 50 000 digits: read from the original files, or
re-created from MNIST (`recreation.py`) and then labelled so in `Splits.provenance`.
"""

import io
import warnings
from collections.abc import Iterator
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
from besselnet.data._sets.recreation import recreate
from besselnet.functional import Interpolation

ROWS = {"train": 12_000, "test": 50_000}
_INTERPOLATION: Interpolation = "cubic"
_ADDRESS = "http://www.iro.umontreal.ca/~lisa/icml2007data/"


@dataclass(frozen=True)
class Variation:
    """One of the three sets: its name says what was done to the digits."""

    name: str
    download: Download
    files: dict[str, str]

    def load(
        self,
        *,
        root: Path | None,
        image_size: int | None = None,
        seed: int = 0,
        version: str = "auto",
        interpolation: Interpolation = _INTERPOLATION,
    ) -> Splits:
        """The set in the wanted version.

        - "original": from the archive or the two .amat files, in `root` or downloaded;
        - "recreated": made from MNIST (in `root` or downloaded) with `seed`, kept in the cache folder;
        - "auto": the original where it is given or can be downloaded, else re-created with a warning.

        `interpolation` is how a re-creation rotates its digits.
        """
        check_choice("version", version, ("auto", "original", "recreated"))
        check_choice("interpolation", interpolation, get_args(Interpolation))
        name, rotated = self.name, "rot" in self.name and version == "recreated"
        if interpolation != _INTERPOLATION and not rotated:
            raise ValueError(
                f"interpolation={interpolation!r}: must be {_INTERPOLATION!r} unless digits are rotated "
                f"here, in mnist-rot or mnist-rot-back with version='recreated'; this is {name} with "
                f"version={version!r}"
            )
        original = None if version == "recreated" else self._obtain(root, version)
        if original is not None:
            identities = sorted(map(file_identity, original.values()))
            arrays = prepared_arrays(f"{name}-original", identities, lambda: self._read(original))
            return digit_splits(arrays, image_size, Provenance(f"{name}, original files"))
        how = "" if interpolation == _INTERPOLATION else f" and {interpolation} interpolation"
        what = f"{name}, re-creation from MNIST with seed {seed}{how}, not the original files"
        arrays = recreate(name, mnist_arrays(root), ROWS, seed, interpolation)
        return digit_splits(arrays, image_size, Provenance(what, recreated=True))

    def _obtain(self, root: Path | None, version: str) -> dict[str, Path] | None:
        """{"zip": path} or {"train": path, "test": path}; None where "auto" has to do without them."""
        archive = find_file(self.name, root, [self.download.name])
        found = {part: find_file(self.name, root, [file]) for part, file in self.files.items()}
        tables = {part: path for part, path in found.items() if path is not None}
        try:
            if archive is None and len(tables) == len(ROWS):
                return tables
            if root is not None and (archive is None or archive.suffix != ".zip"):
                raise missing(self.name, root, f"{self.download.name} or .amat files")
            return {"zip": archive or fetch(self.download, cache_folder() / self.name)}
        except OSError as error:
            if version == "original":
                raise
            # To the caller of load_data.
            warnings.warn(f"{error}; re-creating {self.name} from MNIST", stacklevel=4)
            return None

    def _read(self, original: dict[str, Path]) -> dict[str, np.ndarray]:
        arrays: dict[str, np.ndarray] = {}
        for part, place, file in self._tables(original):
            with reading(place):
                table = np.loadtxt(file, dtype=np.float32, ndmin=2)
                if table.shape != (ROWS[part], 785):
                    raise ValueError(f"must be {ROWS[part]} rows of 785 numbers, got {table.shape}")
                labels = table[:, -1].astype(np.int64)
                images = table[:, :-1].reshape(-1, 1, 28, 28)
                # The rows of mnist-back run down the columns of the image. scikit-data records this for
                # that set and not for the rotated ones; on rotated digits it would be a reflection.
                sideways = self.name == "mnist-back"
                images = np.ascontiguousarray(images.swapaxes(2, 3) if sideways else images)
                ImageSet(torch.from_numpy(images), torch.from_numpy(labels), DIGITS)
                arrays |= {f"x_{part}": images, f"y_{part}": labels}
        return arrays

    def _tables(self, original: dict[str, Path]) -> Iterator[tuple[str, str, IO[str]]]:
        """(part, name for messages, text) of each .amat file, alone or inside the archive."""
        if "zip" not in original:
            for part, path in original.items():
                with path.open() as file:
                    yield part, str(path), file
            return
        with open_zip(original["zip"]) as archive:
            for part, wanted in self.files.items():
                member = next((n for n in archive.namelist() if Path(n).name == wanted), None)
                if member is None:
                    raise ValueError(f"has no {wanted}")
                with archive.open(member) as binary:
                    text = io.TextIOWrapper(binary, "ascii")
                    yield part, f"{original['zip']}/{member}", text


# SHA-1 sums as recorded by scikit-data.
for _name, _summary, _archive, _checksum, _train, _test in (
    (
        "mnist-rot",
        "MNIST digits rotated by any angle, 12 000 + 50 000",
        "mnist_rotation_new.zip",
        "sha1:e67f72fa42029f62fd8eb92b0638c1b9761c9a63",
        "mnist_all_rotation_normalized_float_train_valid.amat",
        "mnist_all_rotation_normalized_float_test.amat",
    ),
    (
        "mnist-back",
        "MNIST digits on photographs, 12 000 + 50 000",
        "mnist_background_images.zip",
        "sha1:fb6fce9ed6372e0068ff7cb3e7b9e78dbda7ceae",
        "mnist_background_images_train.amat",
        "mnist_background_images_test.amat",
    ),
    (
        "mnist-rot-back",
        "MNIST digits rotated, on photographs, 12 000 + 50 000",
        "mnist_rotation_back_image_new.zip",
        "sha1:902bb7e96136dd76e9f2924d7fdb9eb832f7bc33",
        "mnist_all_background_images_rotation_normalized_train_valid.amat",
        "mnist_all_background_images_rotation_normalized_test.amat",
    ),
):
    _urls = (_ADDRESS + _archive, _ADDRESS.replace("http:", "https:") + _archive)
    _download = Download(_archive, _urls, _checksum)
    _variation = Variation(_name, _download, {"train": _train, "test": _test})
    register_data(_name, summary=_summary, downloads=(_download,))(_variation.load)
