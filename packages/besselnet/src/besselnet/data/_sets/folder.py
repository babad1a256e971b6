"""`folder`: a directory of images per class, optionally below `train/`, `val/` and `test/`."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from besselnet._pixels import RESIZE, SUFFIXES, walk_images
from besselnet.data._cache import Cache
from besselnet.data._decode import Resize
from besselnet.data._image_files import read_files
from besselnet.data._imageset import ImageSet, Splits
from besselnet.data._parts import assemble, need_folder, part_folders
from besselnet.data._registry import register_data
from besselnet.data._stored import select_rows


@register_data(
    "folder",
    summary="your own images: one subfolder per class, optionally in train/ val/ test/",
    obtain="use the path of your folder",
)
def load_folder(
    *,
    root: Path | None,
    image_size: int | None = None,
    seed: int = 0,
    channels: int | None = None,
    resize: Resize = RESIZE,
    bits: int | None = None,
    page: int | None = None,
    max_pixels: int | None = None,
    on_error: str = "raise",
    cache: Cache | None = None,
    split: Sequence[float] = (0.8, 0.1, 0.1),
    val: float | None = None,
) -> Splits:
    """PNG, JPEG, TIFF and WebP files at any depth below the class directories.

    - `image_size`: the side that images are brought to; `resize` says how (see `resize_images`). Unset:
      square images of one size, at most 256 pixels, stay as they are. For others the side is the median
      of their shorter sides, at least 16 and at most 224; `Provenance.fitted` says so.
    - `channels`: 1 or 3; by default 3 as soon as one image has colour. One image of more than 8 bits
      makes the whole set float32.
    - `bits`: how many bits the 16-bit files use, 8 to 16; unset: all 16, with a warning where no file
      uses more than 14. `page`: which page of files with several, from 0; unset: such files are refused
      (see `decode_image`). `max_pixels`: images with more are files that cannot be read; unset: 50 million.
    - `on_error`: "raise" at files that cannot be read, or "skip" them with a warning.
    - `cache`: "always" keeps the decoded images on disk, in the cache folder, and reads them from there;
      "never" keeps them in memory. Unset: on disk if they take more than a quarter of the memory;
      `Provenance.stored` says so. Batches are the same.
    - `split`: shares of train, val and test where the folder has no `train/`.
    - `val`: the share of the training images that becomes the validation part, where the folder has `train/`
      and no `val/`; divided as by `split`.
    """
    root = need_folder("folder", root)
    places = part_folders(root)
    classes = _class_names(next(iter(places.values())))
    paths: list[str] = []
    labels: list[Tensor] = []
    for place in places.values():
        files, numbers = _list_files(place, classes)
        paths += files
        labels.append(numbers)
    found = read_files(
        root,
        paths,
        image_size,
        resize,
        on_error,
        cache,
        channels=channels,
        bits=bits,
        page=page,
        max_pixels=max_pixels,
    )
    label_of, part_of = torch.cat(labels), torch.arange(len(places))
    part_of = part_of.repeat_interleave(torch.tensor([len(part) for part in labels]))
    sets = {}
    for number, (part, place) in enumerate(places.items()):
        rows = (part_of[found.places] == number).nonzero()[:, 0]
        if not len(rows):
            raise ValueError(f"{place}: has no readable image")
        images = select_rows(found.images, rows)
        sets[part] = ImageSet(images, label_of[found.places[rows]], classes)
    return assemble(
        sets,
        f"folder {root.name}",
        split,
        seed,
        val=val,
        fitted=found.fitted,
        stored=found.stored,
    )


def _class_names(folder: Path) -> tuple[str, ...]:
    names = tuple(sorted(p.name for p in folder.iterdir() if p.is_dir() and p.name[0] != "."))
    if not names:
        raise ValueError(
            f"{folder}: has no class folders; put the images of each class into its own folder, or make "
            "folders images and masks, or a CSV table with a column 'file'"
        )
    if names == ("images",):
        raise ValueError(f"{folder}: has a folder images, but no folder masks beside it")
    if len(names) == 1:
        raise ValueError(f"{folder}: has only one class ({names[0]}); must have at least two")
    return names


def _list_files(folder: Path, classes: tuple[str, ...]) -> tuple[list[str], Tensor]:
    """The files of one part, and their labels. A part may lack a class of `classes`, but not add one."""
    listed: list[str] = []
    labels = []
    for name in _class_names(folder):
        if name not in classes:
            raise ValueError(f"{folder / name}: is not a class of the training folder {classes}")
        files = list(walk_images(folder / name))
        if not files:
            raise ValueError(
                f"{folder / name}: class folder without images ({', '.join(SUFFIXES)})"
            )
        listed += files
        labels.append(torch.full((len(files),), classes.index(name)))
    return listed, torch.cat(labels)
