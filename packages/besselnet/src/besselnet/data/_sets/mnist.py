"""`mnist`: 70 000 handwritten digits, 28 x 28 grey (LeCun, Cortes and Burges)."""

import gzip
import struct
from pathlib import Path

import numpy as np
import torch

from besselnet._pixels import reading
from besselnet.data._decode import resize_in_pieces
from besselnet.data._download import Download, obtain_file
from besselnet.data._files import cache_folder, find_file, read_arrays
from besselnet.data._imageset import ImageSet, Provenance, Splits
from besselnet.data._registry import register_data

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


@register_data(
    "mnist",
    summary="handwritten digits, 28 x 28 grey, 60 000 + 10 000",
    downloads=tuple(_DOWNLOADS.values()),
)
def load_mnist(*, root: Path | None, image_size: int | None = None, seed: int = 0) -> Splits:
    """From `mnist.npz` (keys x_train, y_train, x_test, y_test) or the four IDX files, gzipped or not."""
    return digit_splits(mnist_arrays(root), image_size, Provenance("MNIST, official parts"))


def digit_splits(
    arrays: dict[str, np.ndarray], image_size: int | None, provenance: Provenance
) -> Splits:
    """From x_train, y_train, x_test, y_test, with images (N, 28, 28) or (N, 1, 28, 28)."""
    parts = {}
    for part in ("train", "test"):
        images = torch.from_numpy(arrays[f"x_{part}"]).reshape(-1, 1, 28, 28)
        labels = torch.from_numpy(arrays[f"y_{part}"].astype(np.int64))
        parts[part] = ImageSet(resize_in_pieces(images, image_size), labels, DIGITS)
    return Splits(**parts, provenance=provenance)


def mnist_arrays(root: Path | None) -> dict[str, np.ndarray]:
    """x_train, y_train, x_test, y_test as uint8, images (N, 28, 28)."""
    archive = find_file("mnist", root, ["mnist.npz"])
    if archive is not None:
        arrays = read_arrays(archive)
        with reading(archive):
            lacking = sorted(set(_FILES) - set(arrays))
            if lacking:
                raise ValueError(f"has no {lacking[0]}; its keys are {sorted(arrays)}")
            _check(arrays)
        return {key: arrays[key] for key in _FILES}
    arrays = {}
    for key, (name, _) in _FILES.items():
        plain = name.removesuffix(".gz")
        # The archive is not there: it is named for the message.
        names = [name, plain, plain.replace("-idx", ".idx"), "mnist.npz"]
        arrays[key] = read_idx(obtain_file("mnist", root, names, _DOWNLOADS[key]))
    with reading(root or cache_folder() / "mnist"):
        _check(arrays)
    return arrays


def read_idx(path: Path) -> np.ndarray:
    """An array of bytes in the IDX format: 0, 0, type 8, number of axes, big-endian lengths, data."""
    with reading(path):
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        if len(data) < 4 or data[:3] != b"\0\0\x08":
            raise ValueError("is not an IDX file of bytes")
        axes = data[3]
        shape = struct.unpack_from(f">{axes}I", data, 4)
        body = np.frombuffer(data, dtype=np.uint8, offset=4 + 4 * axes)
        if len(body) != np.prod(shape):
            raise ValueError(f"truncated: {len(body)} of {np.prod(shape)} bytes of data")
        return body.reshape(shape).copy()


def _check(arrays: dict[str, np.ndarray]) -> None:
    for part in ("train", "test"):
        images, labels = arrays[f"x_{part}"], arrays[f"y_{part}"]
        if images.dtype != np.uint8 or images.shape != (len(labels), 28, 28):
            raise ValueError(
                f"x_{part} must be uint8 and ({len(labels)}, 28, 28) like y_{part}, "
                f"got {images.dtype} {images.shape}"
            )
