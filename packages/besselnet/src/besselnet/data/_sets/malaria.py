"""`malaria`: 27 558 red blood cells of thin smears, infected or not (NIH, Rajaraman et al. 2018)."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

import numpy as np
import torch

from besselnet._pixels import SUFFIXES, check_reading, image_files, inner_size
from besselnet.data._decode import Resize, decode_image, resize_images
from besselnet.data._download import Download, obtain_file
from besselnet.data._files import file_identity, missing, open_zip, prepared_arrays, read_member
from besselnet.data._imageset import ImageSet, Splits
from besselnet.data._registry import register_data
from besselnet.data._split import divide
from besselnet.untrusted import reading

CLASSES = ("Uninfected", "Parasitized")
# SHA-256 of the archive at the publisher's address, as recorded by TensorFlow Datasets.
_DOWNLOAD = Download(
    "cell_images.zip",
    (
        "https://data.lhncbc.nlm.nih.gov/public/Malaria/cell_images.zip",
        "https://ceb.nlm.nih.gov/proj/malaria/cell_images.zip",
    ),
    "sha256:0a949556b2414159b5100192609805376654c4266d8d187be9b1922fad43c668",
)
# C100P61ThinF_IMG_20150918_144104_cell_162.png: case 100, patient 61. Some names have no patient.
_SLIDE = re.compile(r"C\d+(P\d+)?", re.IGNORECASE)


@register_data(
    "malaria",
    summary="NIH malaria: 27 558 blood cells, RGB, resized to 64, infected or not (353 MB)",
    downloads=(_DOWNLOAD,),
)
def load_malaria(
    *,
    root: Path | None,
    image_size: int | None = None,
    seed: int = 0,
    resize: Resize = "fit",
    max_pixels: int | None = None,
    split: Sequence[float] = (0.8, 0.1, 0.1),
    by_group: bool | None = None,
) -> Splits:
    """From `cell_images.zip`, or its folder with Parasitized and Uninfected; at `image_size` (64).

    Cells have all sizes; see `resize_images` for `resize`. The group of a cell is its slide, from
    the file name, and slides stay together unless `by_group=False` (the paper's image-level split,
    where cells of one slide are on both sides). Decoded images are kept in the cache folder. Images of
    more than `max_pixels` pixels (50 million) are refused.
    """
    size = image_size or 64
    inner_size(1, 1, size, resize)
    check_reading(max_pixels=max_pixels)
    if root is not None and _class_folders(root):
        path = root
    else:
        path = obtain_file("malaria", root, [_DOWNLOAD.name, "cell_images"], _DOWNLOAD)
    if path.is_dir():
        recipe: object = sorted(map(file_identity, _cells_in_folder(path)))
    else:
        with open_zip(path) as archive:
            # What the archive holds, without reading it.
            recipe = [(file.filename, file.file_size, file.CRC) for file in archive.infolist()]
    arrays = prepared_arrays(
        f"malaria-{size}", (recipe, size, resize), lambda: _decode(path, size, resize, max_pixels)
    )
    x, y, group = (torch.from_numpy(arrays[key]) for key in ("x", "y", "group"))
    cells = ImageSet(x, y, CLASSES, group)
    return divide(cells, f"NIH malaria at {size} pixels", split, seed, by_group)


def slide_of(name: str) -> str:
    """The slide that a cell was cut from: case and patient at the start of its file name."""
    found = _SLIDE.match(name)
    if found is None:
        raise ValueError(f"{name}: the name must begin with a slide such as C100P61")
    return found.group().upper()


def _class_folders(path: Path) -> list[Path]:
    """The folders Uninfected and Parasitized in `path` or in a `cell_images` below it, or none."""
    for place in (path, path / "cell_images", path / "cell_images" / "cell_images"):
        folders = [place / name for name in CLASSES]
        if all(folder.is_dir() for folder in folders):
            return folders
    return []


def _cells_in_folder(path: Path) -> list[Path]:
    folders = _class_folders(path)
    if not folders:
        raise missing("malaria", path, f"folders {' and '.join(CLASSES)}")
    return [file for folder in folders for file in image_files(folder)]


def _files(path: Path) -> Iterator[tuple[PurePosixPath, Path | bytes]]:
    """(name within the archive or folder, its path or content) of every cell, sorted."""
    if path.is_dir():
        for file in _cells_in_folder(path):
            yield PurePosixPath(file.as_posix()), file
        return
    with open_zip(path) as archive:
        for name in sorted(archive.namelist()):
            place = PurePosixPath(name)
            if place.suffix.lower() in SUFFIXES and place.parent.name in CLASSES:
                yield place, read_member(archive, name)


def _decode(path: Path, size: int, resize: Resize, max_pixels: int | None) -> dict[str, np.ndarray]:
    images, labels, slides = [], [], []
    for place, content in _files(path):
        name = f"{path}/{place}"
        cell = decode_image(content, channels=3, max_pixels=max_pixels, name=name)
        with reading(name):
            images.append(resize_images(cell[None], size, resize))
        labels.append(CLASSES.index(place.parent.name))
        slides.append(slide_of(place.name))
    if set(labels) != {0, 1}:
        raise ValueError(f"{path}: must have images in both {' and '.join(CLASSES)}")
    _, groups = np.unique(slides, return_inverse=True)
    return {
        "x": torch.cat(images).numpy(),
        "y": np.array(labels, dtype=np.int64),
        "group": groups.astype(np.int64),
    }
