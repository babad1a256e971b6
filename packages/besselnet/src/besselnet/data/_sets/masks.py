"""`masks`: a folder of images and a folder of masks with the same names."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

import numpy as np
import torch
from torch import Tensor

from besselnet._pixels import RESIZE, SUFFIXES, check_reading, counted, image_files, read_mask
from besselnet.checks import check_choice
from besselnet.data._decode import (
    Resize,
    iter_deep_images,
    resize_images,
    resize_masks,
    stack_alike,
    warn_of_dark_images,
)
from besselnet.data._image_files import header_sizes, report_failures
from besselnet.data._imageset import ImageSet, Splits
from besselnet.data._legend import NAMES, Legend, find_legend, make_legend, read_legend
from besselnet.data._masks import UNLABELLED, MaskKind, check_ignore, label_masks
from besselnet.data._parts import assemble, need_folder, part_folders
from besselnet.data._registry import register_data
from besselnet.data._sizes import pad, padded_size
from besselnet.untrusted import MOST_BYTES, reading

_HOW_TO_NAME = f"name the classes in {' or '.join(NAMES)} (#rrggbb, class)"
# Images decode to fewer bytes than this times their files: more is compression of nothing.
_MOST_PACKED = 100


@register_data(
    "masks",
    summary="your own images with masks: images/ and masks/, optionally in train/ val/ test/",
    obtain="use the path of your folder",
)
def load_masks(
    *,
    root: Path | None,
    image_size: int | None = None,
    seed: int = 0,
    masks: MaskKind | None = None,
    legend: Mapping[str, str] | str | None = None,
    ignore: int | Sequence[int] = (),
    channels: int | None = None,
    resize: Resize = RESIZE,
    bits: int | None = None,
    page: int | None = None,
    max_pixels: int | None = None,
    on_error: str = "raise",
    split: Sequence[float] = (0.8, 0.1, 0.1),
    val: float | None = None,
) -> Splits:
    """Every image below `images/` has a mask of the same name and size below `masks/`.

    - `masks`: what the masks have in each pixel. "classes": the number of a class, 255 for none.
      "colours": a colour of the legend. "instances": the number of an object, 0 for none; the classes are
      then "background", "object" and "border", and `ImageSet.instances` has the numbers. Unset: what the
      legend has, else classes.
    - `legend`: class names by colour or number, or the path of a legend. Unset: `legend.csv` or
      `legend.toml` in the folder, where there is one.
    - `ignore`: numbers in the masks that stand for no label, besides 255.
    - `image_size`: the side that images and masks are brought to, masks by the nearest pixel. Unset: images
      of different sizes are padded to the largest, by reflection; their masks are `IGNORED` there.
    - The other options are those of `folder`.
    """
    root = need_folder("masks", root)
    check_choice("on_error", on_error, ("raise", "skip"))
    how = {"channels": channels, "bits": bits, "page": page, "max_pixels": max_pixels}
    check_reading(**how)
    ignored = check_ignore(ignore)
    known = _legend(root, legend, masks)
    places = part_folders(root)
    listed = [(part, *pair) for part, place in places.items() for pair in _list_pairs(place)]
    if image_size is None:
        _check_memory([path for _, path, _ in listed], page, max_pixels)
    pairs: list[tuple[Tensor, np.ndarray]] = []
    kept, failures, largest = [], [], 0
    found = iter_deep_images([path for _, path, _ in listed], None, resize, **how)
    for (path, image, brightest), (part, _, mask_path) in zip(found, listed):
        try:
            if isinstance(image, Exception):
                raise image
            mask = read_mask(
                mask_path, colours=_has_colours(known), page=page, max_pixels=max_pixels
            )
        except (ValueError, OSError) as error:
            failures.append(str(error))
            continue
        _check_size(path, image, mask_path, mask)
        with reading(mask_path):
            numbers = _numbers(mask, known)
        if image_size is not None:
            with reading(path):
                image, numbers = _resized(image, numbers, image_size, resize)
        largest = max(largest, brightest)
        pairs.append((image, numbers))
        kept.append((part, str(mask_path)))
    report_failures(failures, len(listed), on_error)
    if bits is None:
        warn_of_dark_images(largest)
    images, numbers_of, fitted = _padded(pairs)
    labels, instances, classes = label_masks(
        numbers_of,
        [name for _, name in kept],
        instances=masks == "instances",
        names=None if known is None else known.classes,
        ignore=ignored,
    )
    sets = {}
    for part, place in places.items():
        chosen = [row for row, (name, _) in enumerate(kept) if name == part]
        if not chosen:
            raise ValueError(f"{place}: has no readable image")
        objects = None if instances is None else instances[chosen]
        sets[part] = ImageSet(images[chosen], labels[chosen], classes, instances=objects)
    return assemble(
        sets, f"folder {root.name}, images and masks", split, seed, val=val, fitted=fitted
    )


def _legend(
    root: Path, legend: Mapping[str, str] | str | None, masks: MaskKind | None
) -> Legend | None:
    """The legend of the masks, or None where they have none."""
    if masks is not None:
        check_choice("masks", masks, get_args(MaskKind))
    if legend is None:
        found = find_legend(root)
    else:
        found = read_legend(Path(legend)) if isinstance(legend, str) else make_legend(legend)
    if masks == "instances" and found is not None:
        raise ValueError(f"{root}: masks='instances' cannot be combined with a legend")
    if masks == "colours" and found is None:
        raise ValueError(f"{root}: masks='colours' requires a legend: {_HOW_TO_NAME}")
    if masks is not None and found is not None and found.colours != (masks == "colours"):
        kind = "colours" if found.colours else "numbers"
        raise ValueError(f"{root}: masks={masks!r}, but the legend has {kind}")
    return found


def _list_pairs(folder: Path) -> list[tuple[Path, Path]]:
    """(image, mask) of one part, by the paths below `images/` and `masks/`, without suffixes."""
    images, masks = (_by_name(folder / kind) for kind in ("images", "masks"))
    for name, path in images.items():
        if name not in masks:
            raise ValueError(f"{path}: has no mask {folder / 'masks' / name}.png (or .tif, ...)")
    for name, path in masks.items():
        if name not in images:
            raise ValueError(f"{path}: is a mask without an image {folder / 'images' / name}")
    return [(path, masks[name]) for name, path in images.items()]


def _by_name(folder: Path) -> dict[Path, Path]:
    if not folder.is_dir():
        raise ValueError(f"{folder.parent}: has no folder {folder.name!r}")
    found: dict[Path, Path] = {}
    for path in image_files(folder):
        name = path.relative_to(folder).with_suffix("")
        if name in found:
            raise ValueError(f"{path}: has the same name as {found[name]}")
        found[name] = path
    if not found:
        raise ValueError(f"{folder}: has no images ({', '.join(SUFFIXES)})")
    return found


def _check_memory(paths: Sequence[Path], page: int | None, max_pixels: int | None) -> None:
    """Refuse images that take far more memory than their files, padded to the largest."""
    sizes = list(header_sizes(paths, page, max_pixels))
    if not sizes:
        return
    width, height = (max(sides) for sides in zip(*sizes))
    needed = len(sizes) * width * height
    with_files = sum(path.stat().st_size for path in paths if path.is_file())
    if needed > max(MOST_BYTES, _MOST_PACKED * with_files):
        raise ValueError(
            f"{paths[0].parent}: {counted(len(sizes), 'image')} of up to {width}x{height} pixels take more "
            f"than {needed:,} bytes in total: set image_size (command line: --set data.image_size=256)"
        )


def _has_colours(legend: Legend | None) -> bool:
    return legend is not None and legend.colours


def _check_size(path: Path, image: Tensor, mask_path: Path, mask: np.ndarray) -> None:
    if tuple(image.shape[1:]) != mask.shape[:2]:
        raise ValueError(
            f"{mask_path}: has {mask.shape[1]}x{mask.shape[0]} pixels, but its image {path} has "
            f"{image.shape[2]}x{image.shape[1]}"
        )


def _numbers(mask: np.ndarray, legend: Legend | None) -> np.ndarray:
    """(H, W) whole numbers: classes, or what `label_masks` takes."""
    if legend is not None:
        if not legend.colours and mask.ndim == 3:
            raise ValueError("has colours, but the legend has numbers")
        return legend.apply(mask)
    if mask.ndim == 3:
        colours = np.unique(mask.reshape(-1, 3), axis=0)
        shown = ", ".join("#{:02x}{:02x}{:02x}".format(*colour) for colour in colours[:6])
        more = ", ..." if len(colours) > 6 else ""
        raise ValueError(f"has {len(colours)} colours ({shown}{more}): {_HOW_TO_NAME}")
    return mask


def _resized(image: Tensor, mask: np.ndarray, size: int, how: Resize) -> tuple[Tensor, np.ndarray]:
    """An image and its mask, at one size."""
    numbers = torch.from_numpy(mask.astype(np.int32))
    resized = resize_masks(numbers[None], size, how, fill=UNLABELLED)[0]
    return resize_images(image[None], size, how)[0], resized.numpy()


def _padded(
    pairs: Sequence[tuple[Tensor, np.ndarray]],
) -> tuple[Tensor, list[np.ndarray], str]:
    """Images (N, C, H, W) and masks of one size, and how they came to it."""
    size, fitted = padded_size(mask.shape for _, mask in pairs)
    if not fitted:
        return stack_alike([image for image, _ in pairs]), [mask for _, mask in pairs], ""
    images = [torch.from_numpy(pad(image.numpy(), size)) for image, _ in pairs]
    masks = [pad(mask.astype(np.int32), size, UNLABELLED) for _, mask in pairs]
    return stack_alike(images), masks, fitted
