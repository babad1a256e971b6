"""MNIST rotated and laid on photographs, where the original files are not available.

The recipe, in the spirit of Larochelle et al. (ICML 2007):

1. 62 000 of the 70 000 digits in random order, 12 000 for training and 50 000 for testing;
2. each rotated by an angle uniform in [0, 360) degrees, with cubic interpolation unless said otherwise;
3. each laid on a 28 x 28 patch of a grey photograph, d + (1 - d) p for digit d and patch p in
   [0, 1]. Patches come from random places of random photographs; those with a standard deviation
   under 0.1 (sky, walls) are left out. The digit is rotated, the patch is not.

How digit and patch are blended and the limit of 0.1 are choices made here, and the photographs are
those inside scikit-image: accuracies on a re-creation are not comparable with those on the originals.
"""

import hashlib

import numpy as np
import torch

from besselnet.data._decode import decode_image
from besselnet.data._files import package_folder, prepared_arrays
from besselnet.functional import Interpolation, rotate_images

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


def recreate(
    name: str,
    mnist: dict[str, np.ndarray],
    rows: dict[str, int],
    seed: int,
    interpolation: Interpolation,
) -> dict[str, np.ndarray]:
    """x_train, y_train, x_test, y_test: images (N, 1, 28, 28) uint8; kept in the cache folder.

    The `name` says which of the steps above are done, `rows` how many digits each part gets.
    """
    digits = np.concatenate([mnist["x_train"], mnist["x_test"]])
    labels = np.concatenate([mnist["y_train"], mnist["y_test"]]).astype(np.int64)
    total = sum(rows.values())
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
        train, test = np.split(images, [rows["train"]])
        y_train, y_test = np.split(labels[chosen], [rows["train"]])
        return {"x_train": train, "y_train": y_train, "x_test": test, "y_test": y_test}

    recipe = (rows, seed, interpolation, identity.hexdigest())
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
    where = "the photographs for the background are inside scikit-image"
    folder = package_folder("skimage", f"{where}: pip install 'besselnet[photos]'") / "data"
    return [decode_image(folder / name, channels=1)[0].numpy() for name in _PHOTOGRAPHS]
