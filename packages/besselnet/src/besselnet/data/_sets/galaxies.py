"""Galaxies in HDF5 files.

- `galaxy10`: Galaxy10 DECaLS, 17 736 galaxies in ten classes of shape, 256 x 256 RGB. Leung and Bovy's
  selection from Galaxy Zoo (Walmsley et al. 2021) with images of the DESI Legacy Imaging Surveys. The paper
  works at 128 x 128.
- `radio-galaxies`: 2 158 radio galaxies of the FIRST survey in four classes, 300 x 300 grey. Griese et al.
  2023, from the files of the package firstgalaxydata, with the official parts. The images themselves are
  (c) 1994 University of California, free for scholarly, educational and private non-commercial use.
"""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from besselnet._pixels import needed
from besselnet.checks import check_count
from besselnet.data._decode import resize_images, resize_in_pieces
from besselnet.data._download import Download, obtain_file
from besselnet.data._files import (
    file_identity,
    open_zip,
    package_folder,
    plain_dataset,
    plain_member,
    prepared_arrays,
    read_member,
)
from besselnet.data._imageset import ImageSet, Provenance, Splits
from besselnet.data._registry import register_data
from besselnet.data._split import divide
from besselnet.untrusted import MOST_BYTES, check_file, reading

_SHAPES = (
    "Disturbed",
    "Merging",
    "Round Smooth",
    "In-between Round Smooth",
    "Cigar Shaped Smooth",
    "Barred Spiral",
    "Unbarred Tight Spiral",
    "Unbarred Loose Spiral",
    "Edge-on without Bulge",
    "Edge-on with Bulge",
)
# SHA-256 as published with the data set, in the documentation of astroNN.
_DOWNLOAD = Download(
    "Galaxy10_DECals.h5",
    (
        "https://zenodo.org/records/10845026/files/Galaxy10_DECals.h5",
        "https://www.astro.utoronto.ca/~hleung/shared/Galaxy10/Galaxy10_DECals.h5",
    ),
    "sha256:19aefc477c41bb7f77ff07599a6b82a038dc042f889a111b0d4d98bb755c1571",
)
_PIECE = 256


@register_data(
    "galaxy10",
    summary="Galaxy10 DECaLS: 17 736 galaxies, RGB, 256 -> 128, ten classes (2.5 GB)",
    downloads=(_DOWNLOAD,),
)
def load_galaxy10(
    *,
    root: Path | None,
    image_size: int | None = None,
    seed: int = 0,
    split: Sequence[float] = (0.8, 0.1, 0.1),
) -> Splits:
    """From the published HDF5 file (keys `images`, `ans`), resized to `image_size` (128).

    The resized images are kept in the cache folder. The set has no official parts: `split` gives the
    shares of train, val and test.
    """
    path = obtain_file("galaxy10", root, [_DOWNLOAD.name], _DOWNLOAD)
    size = image_size or 128
    arrays = prepared_arrays(
        f"galaxy10-{size}", (file_identity(path), size), lambda: _read_galaxy10(path, size)
    )
    galaxies = ImageSet(torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"]), _SHAPES)
    return divide(galaxies, f"Galaxy10 DECaLS at {size} pixels", split, seed)


def _read_galaxy10(path: Path, size: int) -> dict[str, np.ndarray]:
    h5py = needed("h5py", "reading galaxy10", "data")
    most = max(MOST_BYTES, 10 * check_file(path))
    with reading(path), h5py.File(path, "r") as file:
        stored, answers = plain_dataset(file, "images"), plain_dataset(file, "ans")
        if stored.ndim != 4 or stored.shape[3] != 3 or stored.dtype != np.uint8:
            raise ValueError(
                f"images must be uint8 (N, H, W, 3), got {stored.dtype} {stored.shape}"
            )
        if answers.shape != stored.shape[:1]:
            raise ValueError(f"{len(stored)} images, but ans has shape {answers.shape}")
        if len(stored) * 3 * size**2 > most:
            raise ValueError(
                f"claims {len(stored)} images: at {size} pixels they take more than {most:,} bytes"
            )
        labels = answers[()].astype(np.int64)
        images = torch.empty(len(stored), 3, size, size, dtype=torch.uint8)
        # In pieces, because the file does not fit in the memory of a small machine.
        for start in range(0, len(stored), _PIECE):
            piece = torch.from_numpy(stored[start : start + _PIECE]).permute(0, 3, 1, 2)
            images[start : start + _PIECE] = resize_images(piece, size)
        ImageSet(images, torch.from_numpy(labels), _SHAPES)
        return {"x": images.numpy(), "y": labels}


_SOURCES = ("FRI", "FRII", "Compact", "Bent")
_ARCHIVE, _MEMBER = "galaxy_data_h5.zip", "galaxy_data_h5.h5"
_PARTS = {"train": "train", "val": "valid", "test": "test"}
_OBTAIN = (
    "part of the package firstgalaxydata: pip install --no-deps firstgalaxydata "
    "(its code needs torchvision and astropy, its files do not)"
)


@register_data(
    "radio-galaxies",
    summary="2 158 radio galaxies, grey, FRI / FRII / compact / bent, official splits",
    obtain=_OBTAIN,
)
def load_radio_galaxies(
    *, root: Path | None, image_size: int | None = None, seed: int = 0, crop: int = 64
) -> Splits:
    """The central `crop` x `crop` pixels of each image, resized to `image_size` if given.

    The sources are small in their frame: 64 pixels hold nine tenths of the light (of the central
    200, above the noise) for four galaxies of five.
    """
    if check_count("crop", crop) > 300:
        raise ValueError(f"crop={crop!r}: must be at most 300")
    if root is None:
        path = package_folder("firstgalaxydata", f"radio-galaxies: {_OBTAIN}") / _ARCHIVE
    else:
        path = obtain_file("radio-galaxies", root, [_ARCHIVE, _MEMBER])
    content: Path | io.BytesIO = path
    if path.suffix == ".zip":
        with open_zip(path) as archive:
            content = io.BytesIO(read_member(archive, _MEMBER))
    check_file(path)
    h5py = needed("h5py", "reading radio-galaxies", "data")
    with reading(path), h5py.File(content, "r") as file:
        images, labels = _read_radio(file, crop)
        parts = {}
        for part, stored in _PARTS.items():
            if not images[stored]:
                raise ValueError(f"has no images of the part {stored!r}")
            pixels = torch.from_numpy(np.stack(images[stored])[:, None])
            resized = resize_in_pieces(pixels, image_size)
            parts[part] = ImageSet(resized, torch.tensor(labels[stored]), _SOURCES)
    what = f"radio galaxies of FIRST, central {crop} pixels, official parts"
    return Splits(**parts, provenance=Provenance(what))


def _read_radio(file: Any, crop: int) -> tuple[dict[str, list[np.ndarray]], dict[str, list[int]]]:
    """Images and labels of each part; entries are groups data_1, data_2, ..."""
    images: dict[str, list[np.ndarray]] = {part: [] for part in _PARTS.values()}
    labels: dict[str, list[int]] = {part: [] for part in _PARTS.values()}
    start = (300 - crop) // 2
    for name in sorted(file, key=lambda name: (len(name), name)):
        keys = ("Img", "Label_literature", "Split_literature")
        entry = plain_member(file, name)
        image, label, stored = (plain_dataset(entry, key, name) for key in keys)
        if label.shape or stored.shape:
            raise ValueError(f"{name} must have one label and one part")
        part = stored.asstr()[()]
        if part not in images:
            raise ValueError(f"{name} is in an unknown part {part!r}")
        if image.shape != (300, 300) or image.dtype != np.uint8:
            raise ValueError(f"{name} must be uint8 300 x 300, got {image.dtype} {image.shape}")
        images[part].append(image[start : start + crop, start : start + crop])
        labels[part].append(int(label[()]))
    return images, labels
