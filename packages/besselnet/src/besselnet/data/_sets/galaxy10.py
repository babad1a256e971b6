"""`galaxy10`: Galaxy10 DECaLS, 17 736 galaxies in ten classes of shape, 256 x 256 RGB.

Leung and Bovy's selection from Galaxy Zoo (Walmsley et al. 2021) with images of the DESI Legacy
Imaging Surveys. The paper works at 128 x 128.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from besselnet._pixels import needed, reading
from besselnet.data._decode import resize_images
from besselnet.data._download import Download, obtain_file
from besselnet.data._files import file_identity, prepared_arrays, take
from besselnet.data._imageset import ImageSet, Splits
from besselnet.data._registry import register_data
from besselnet.data._split import divide

CLASSES = (
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
        f"galaxy10-{size}", (file_identity(path), size), lambda: _read(path, size)
    )
    galaxies = ImageSet(torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"]), CLASSES)
    return divide(galaxies, f"Galaxy10 DECaLS at {size} pixels", split, seed)


def _read(path: Path, size: int) -> dict[str, np.ndarray]:
    h5py = needed("h5py", "reading galaxy10", "data")
    with reading(path), h5py.File(path, "r") as file:
        stored, labels = take(file, "images"), take(file, "ans")[()].astype(np.int64)
        if stored.ndim != 4 or stored.shape[3] != 3 or stored.dtype != np.uint8:
            raise ValueError(
                f"images must be uint8 (N, H, W, 3), got {stored.dtype} {stored.shape}"
            )
        if labels.shape != stored.shape[:1]:
            raise ValueError(f"{len(stored)} images, but ans has shape {labels.shape}")
        images = torch.empty(len(stored), 3, size, size, dtype=torch.uint8)
        # In pieces, because the file does not fit in the memory of a small machine.
        for start in range(0, len(stored), _PIECE):
            piece = torch.from_numpy(stored[start : start + _PIECE]).permute(0, 3, 1, 2)
            images[start : start + _PIECE] = resize_images(piece, size)
        ImageSet(images, torch.from_numpy(labels), CLASSES)
        return {"x": images.numpy(), "y": labels}
