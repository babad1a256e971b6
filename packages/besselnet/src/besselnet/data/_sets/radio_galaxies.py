"""`radio-galaxies`: 2 158 radio galaxies of the FIRST survey in four classes, 300 x 300 grey.

Griese et al. 2023, from the files of the package firstgalaxydata, with the official parts. The
images themselves are (c) 1994 University of California, free for scholarly, educational and private
non-commercial use.
"""

import io
from pathlib import Path
from typing import Any

import numpy as np
import torch

from besselnet._pixels import needed, reading
from besselnet.checks import check_count
from besselnet.data._decode import resize_in_pieces
from besselnet.data._download import obtain_file
from besselnet.data._files import open_zip, package_folder, take
from besselnet.data._imageset import ImageSet, Provenance, Splits
from besselnet.data._registry import register_data

CLASSES = ("FRI", "FRII", "Compact", "Bent")
_ARCHIVE, _MEMBER = "galaxy_data_h5.zip", "galaxy_data_h5.h5"
_PARTS = {"train": "train", "val": "valid", "test": "test"}
_OBTAIN = (
    "it is inside the package firstgalaxydata: pip install --no-deps firstgalaxydata "
    "(its code needs torchvision and astropy, its files do not)"
)


@register_data(
    "radio-galaxies",
    summary="2 158 radio galaxies, grey, FRI / FRII / compact / bent, official parts",
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
            content = io.BytesIO(archive.read(_MEMBER))
    h5py = needed("h5py", "reading radio-galaxies", "data")
    with reading(path), h5py.File(content, "r") as file:
        images, labels = _read(file, crop)
        parts = {}
        for part, stored in _PARTS.items():
            if not images[stored]:
                raise ValueError(f"has no images of the part {stored!r}")
            pixels = torch.from_numpy(np.stack(images[stored])[:, None])
            resized = resize_in_pieces(pixels, image_size)
            parts[part] = ImageSet(resized, torch.tensor(labels[stored]), CLASSES)
    what = f"radio galaxies of FIRST, central {crop} pixels, official parts"
    return Splits(**parts, provenance=Provenance(what))


def _read(file: Any, crop: int) -> tuple[dict[str, list[np.ndarray]], dict[str, list[int]]]:
    """Images and labels of each part; entries are groups data_1, data_2, ..."""
    images: dict[str, list[np.ndarray]] = {part: [] for part in _PARTS.values()}
    labels: dict[str, list[int]] = {part: [] for part in _PARTS.values()}
    start = (300 - crop) // 2
    for name in sorted(file, key=lambda name: (len(name), name)):
        keys = ("Img", "Label_literature", "Split_literature")
        image, label, stored = (take(file[name], key, name) for key in keys)
        part = stored.asstr()[()]
        if part not in images:
            raise ValueError(f"{name} is in an unknown part {part!r}")
        if image.shape != (300, 300) or image.dtype != np.uint8:
            raise ValueError(f"{name} must be uint8 300 x 300, got {image.dtype} {image.shape}")
        images[part].append(image[start : start + crop, start : start + crop])
        labels[part].append(int(label[()]))
    return images, labels
