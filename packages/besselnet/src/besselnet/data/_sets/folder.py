"""`folder`: a directory of images per class, optionally below `train/`, `val/` and `test/`."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from besselnet._pixels import (
    RESIZE,
    SUFFIXES,
    check_reading,
    counted,
    image_files,
    option_hint,
    read_size,
)
from besselnet.checks import check_choice
from besselnet.data._decode import Resize, iter_deep_images, warn_of_dark_images
from besselnet.data._imageset import ImageSet, Provenance, Splits, as_floats
from besselnet.data._registry import register_data
from besselnet.data._sizes import choose_size
from besselnet.data._split import divide

_PART_NAMES = {"train": ("train",), "val": ("val", "valid", "validation"), "test": ("test",)}


@register_data(
    "folder",
    summary="your own images: a directory per class, optionally below train/ val/ test/",
    obtain="give the path of your folder",
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
    split: Sequence[float] = (0.8, 0.1, 0.1),
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
    - `split`: shares of train, val and test where the folder has no `train/`.
    """
    if root is None or not root.is_dir():
        raise ValueError(f"folder needs the path of a directory, got {root}")
    check_choice("on_error", on_error, ("raise", "skip"))
    places = _parts(root)
    classes = _class_names(next(iter(places.values())))
    listed = [
        (part, path, label)
        for part, place in places.items()
        for path, label in _list_files(place, classes)
    ]
    how = {"channels": channels, "bits": bits, "page": page, "max_pixels": max_pixels}
    fitted = ""
    if image_size is None:
        check_reading(**how)
        image_size, fitted = choose_size(
            _sizes((path for _, path, _ in listed), page, max_pixels), resize
        )
    found = iter_deep_images((path for _, path, _ in listed), image_size, resize, **how)
    kept: dict[str, list[tuple[Tensor, int]]] = {part: [] for part in places}
    failures = []
    largest = 0
    for (_, image, brightest), (part, _, label) in zip(found, listed):
        if isinstance(image, Exception):
            failures.append(str(image))
            continue
        largest = max(largest, brightest)
        kept[part].append((image, label))
    _report(failures, len(listed), on_error)
    if bits is None:
        warn_of_dark_images(largest)
    # All parts get the channels and the type that every image fits in.
    everything = [image for pairs in kept.values() for image, _ in pairs]
    most = max(len(image) for image in everything)
    deep = any(image.dtype == torch.float32 for image in everything)
    sets = {}
    for part, pairs in kept.items():
        if not pairs:
            raise ValueError(f"{places[part]}: no image can be read")
        alike = [(as_floats(i) if deep else i).expand(most, -1, -1) for i, _ in pairs]
        numbers = torch.tensor([label for _, label in pairs])
        sets[part] = ImageSet(torch.stack(alike), numbers, classes)
    if "all" in sets:
        splits = divide(sets["all"], f"folder {root.name}", split, seed)
    else:
        splits = Splits(**sets, provenance=Provenance(f"folder {root.name}, its own parts"))
    return replace(splits, provenance=replace(splits.provenance, fitted=fitted))


def _sizes(
    paths: Iterable[Path], page: int | None, max_pixels: int | None
) -> Iterator[tuple[int, int]]:
    """Width and height of the files whose headers can be read; the others are reported when decoded.

    EXIF orientations that swap the two are ignored: shorter side and squareness are the same.
    """
    for path in paths:
        with suppress(ValueError, OSError):
            yield read_size(path, page=page, max_pixels=max_pixels)


def _parts(root: Path) -> dict[str, Path]:
    """train, val and test folders by name, or everything as "all"."""
    found = {
        part: root / name
        for part, names in _PART_NAMES.items()
        for name in names
        if (root / name).is_dir()
    }
    if found and "train" not in found:
        raise ValueError(f"{root}: has {', '.join(found)} but no train folder")
    return found or {"all": root}


def _class_names(folder: Path) -> tuple[str, ...]:
    names = tuple(sorted(p.name for p in folder.iterdir() if p.is_dir() and p.name[0] != "."))
    if not names:
        raise ValueError(f"{folder}: has no class folders; put the images of each class in its own")
    if len(names) == 1:
        raise ValueError(f"{folder}: has one class only ({names[0]}); two are needed to tell apart")
    return names


def _list_files(folder: Path, classes: tuple[str, ...]) -> list[tuple[Path, int]]:
    """(file, label) of one part. A part may lack a class of `classes`, but not add one."""
    listed = []
    for name in _class_names(folder):
        if name not in classes:
            raise ValueError(f"{folder / name}: is no class of the training folder {classes}")
        files = image_files(folder / name)
        if not files:
            raise ValueError(
                f"{folder / name}: class folder without images ({', '.join(SUFFIXES)})"
            )
        listed += [(path, classes.index(name)) for path in files]
    return listed


def _report(failures: list[str], total: int, on_error: str) -> None:
    if not failures:
        return
    message = f"{failures[0]} ({len(failures)} of {counted(total, 'file')} cannot be read)"
    if len(failures) == total:
        raise ValueError(message)
    if on_error == "raise":
        raise ValueError(f"{message}; to leave such files out, {option_hint('on_error', 'skip')}")
    warnings.warn(f"left out: {message}", stacklevel=4)
