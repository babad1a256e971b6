"""`mnist-rot`, `mnist-back`, `mnist-rot-back`: MNIST rotated, on photographs, and both.

The sets of Larochelle et al. (ICML 2007), 12 000 + 50 000 digits: read from the original files, or
re-created from MNIST and then labelled so in `Splits.provenance`.

The recipe of a re-creation, in the spirit of the originals:

1. 62 000 of the 70 000 digits in random order, 12 000 for training and 50 000 for testing;
2. each rotated by an angle uniform in [0, 360) degrees, with cubic interpolation unless said otherwise;
3. each laid on a 28 x 28 patch of a grey photograph, d + (1 - d) p for digit d and patch p in
   [0, 1]. Patches come from random places of random photographs; those with a standard deviation
   under 0.1 (sky, walls) are left out. The digit is rotated, the patch is not.

How digit and patch are blended and the limit of 0.1 are choices made here, and the photographs are
those inside scikit-image: accuracies on a re-creation are not comparable with those on the originals.
"""

import hashlib
import io
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, get_args

import numpy as np
import torch

from besselnet.checks import check_choice
from besselnet.data._decode import decode_image
from besselnet.data._download import Download, fetch_file
from besselnet.data._files import (
    cache_folder,
    check_member,
    file_identity,
    find_file,
    missing,
    open_zip,
    package_folder,
    prepared_arrays,
)
from besselnet.data._imageset import ImageSet, Provenance, Splits
from besselnet.data._registry import register_data
from besselnet.data._sets.mnist import DIGITS, digit_splits, mnist_arrays
from besselnet.functional import Interpolation, rotate_images
from besselnet.untrusted import MOST_BYTES, check_file, reading

ROWS = {"train": 12_000, "test": 50_000}
_INTERPOLATION: Interpolation = "cubic"
_ADDRESS = "http://www.iro.umontreal.ca/~lisa/icml2007data/"
_PHOTOGRAPHS = (
    "astronaut.png",
    "brick.png",
    "camera.png",
    "chelsea.png",
    "coffee.png",
    "coins.png",
    "grass.png",
    "gravel.png",
    "motorcycle_left.png",
    "rocket.jpg",
)
_LOWEST_DEVIATION = 0.1
_PIECE = 100


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
                f"interpolation={interpolation!r}: must be {_INTERPOLATION!r} for {name} with "
                f"version={version!r}; others are for mnist-rot and mnist-rot-back with version='recreated'"
            )
        original = None if version == "recreated" else self._obtain(root, version)
        if original is not None:
            identities = sorted(map(file_identity, original.values()))
            arrays = prepared_arrays(f"{name}-original", identities, lambda: self._read(original))
            return digit_splits(arrays, image_size, Provenance(f"{name}, original files"))
        how = "" if interpolation == _INTERPOLATION else f" and {interpolation} interpolation"
        what = f"{name}, re-creation from MNIST with seed {seed}{how}, not the original files"
        arrays = _recreate(name, mnist_arrays(root), seed, interpolation)
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
            return {"zip": archive or fetch_file(self.download, cache_folder() / self.name)}
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
                # One row more than there must be shows that there are too many.
                table = np.loadtxt(file, dtype=np.float32, ndmin=2, max_rows=ROWS[part] + 1)
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
                check_file(path)
                with path.open() as file:
                    yield part, str(path), file
            return
        with open_zip(original["zip"]) as archive:
            for part, wanted in self.files.items():
                member = next((n for n in archive.namelist() if Path(n).name == wanted), None)
                if member is None:
                    raise ValueError(f"has no {wanted}")
                check_member(archive.getinfo(member), MOST_BYTES)
                with archive.open(member) as binary:
                    text = io.TextIOWrapper(binary, "ascii")
                    yield part, f"{original['zip']}/{member}", text


def _recreate(
    name: str,
    mnist: dict[str, np.ndarray],
    seed: int,
    interpolation: Interpolation,
) -> dict[str, np.ndarray]:
    """x_train, y_train, x_test, y_test: images (N, 1, 28, 28) uint8; kept in the cache folder.

    The `name` says which of the steps above are done.
    """
    digits = np.concatenate([mnist["x_train"], mnist["x_test"]])
    labels = np.concatenate([mnist["y_train"], mnist["y_test"]]).astype(np.int64)
    total = sum(ROWS.values())
    if len(digits) < total:
        raise ValueError(f"{name} needs {total} MNIST digits, got {len(digits)}")
    photographs = _photographs() if "back" in name else []
    identity = hashlib.sha256(digits.tobytes() + labels.tobytes())
    for photograph in photographs:
        identity.update(photograph.tobytes())

    def make() -> dict[str, np.ndarray]:
        generator = np.random.default_rng(seed)
        chosen = generator.permutation(len(digits))[:total]
        images = np.empty((total, 1, 28, 28), dtype=np.uint8)
        for start in range(0, total, _PIECE):
            picked = chosen[start : start + _PIECE]
            piece = torch.from_numpy(digits[picked])[:, None].float() / 255
            if "rot" in name:
                angles = torch.from_numpy(generator.uniform(0, 360, len(picked)))
                piece = rotate_images(piece, angles, interpolation).clamp_(0, 1)
            if photographs:
                piece = piece + (1 - piece) * _patches(photographs, len(picked), generator)
            images[start : start + _PIECE] = (piece * 255).round().to(torch.uint8).numpy()
        train, test = np.split(images, [ROWS["train"]])
        y_train, y_test = np.split(labels[chosen], [ROWS["train"]])
        return {"x_train": train, "y_train": y_train, "x_test": test, "y_test": y_test}

    recipe = (ROWS, seed, interpolation, identity.hexdigest())
    return prepared_arrays(f"{name}-recreated", recipe, make)


def _patches(
    photographs: list[np.ndarray], count: int, generator: np.random.Generator
) -> torch.Tensor:
    """(count, 1, 28, 28) in [0, 1], none of them flat."""
    found: list[np.ndarray] = []
    while len(found) < count:
        photograph = photographs[generator.integers(len(photographs))]
        height, width = photograph.shape
        row, column = generator.integers(height - 27), generator.integers(width - 27)
        patch = photograph[row : row + 28, column : column + 28]
        if patch.std() >= 255 * _LOWEST_DEVIATION:
            found.append(patch)
    return torch.from_numpy(np.stack(found)).float()[:, None] / 255


def _photographs() -> list[np.ndarray]:
    """Grey photographs (H, W) uint8 from the scikit-image wheel."""
    where = "the background photographs are part of scikit-image"
    folder = package_folder("skimage", f"{where}: pip install 'besselnet[photos]'") / "data"
    return [decode_image(folder / name, channels=1)[0].numpy() for name in _PHOTOGRAPHS]


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
