"""`npz`: arrays of images and their labels in one NumPy archive."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from besselnet._pixels import RESIZE, check_reading
from besselnet.checks import check_choice, check_count
from besselnet.data._array_images import as_images
from besselnet.data._array_labels import array_labels, array_masks, array_task
from besselnet.data._decode import Resize, resize_in_pieces, resize_masks, warn_of_dark_images
from besselnet.data._files import read_arrays, take
from besselnet.data._imageset import ImageSet, Splits, Task
from besselnet.data._masks import UNLABELLED, MaskKind, check_ignore, label_masks
from besselnet.data._parts import ALL, assemble
from besselnet.data._registry import register_data
from besselnet.data._sizes import choose_size, pad, padded_size
from besselnet.untrusted import MOST_BYTES, reading

_GROUP_KEYS = ("groups", "slide")


@register_data(
    "npz",
    summary="your own arrays: x, y (or x_train, y_train, x_test, ...), classes, groups",
    obtain="use the path of your .npz file",
)
def load_npz(
    *,
    root: Path | None,
    image_size: int | None = None,
    seed: int = 0,
    layout: str | None = None,
    bits: int | None = None,
    resize: Resize = RESIZE,
    split: Sequence[float] = (0.8, 0.1, 0.1),
    val: float | None = None,
    by_group: bool | None = None,
    task: Task | None = None,
    masks: MaskKind | None = None,
    ignore: int | Sequence[int] = (),
    max_bytes: int = MOST_BYTES,
) -> Splits:
    """Keys: `x`, `y`, or `x_train`, `y_train` and the same with `_val` and `_test`.

    - x: (N, H, W), (N, H, W, C) or (N, C, H, W). The channels are the last or the second axis, if it has
      length 1 or 3, or is at most 32 and less than half of the other two; else `layout` ("NHWC" or
      "NCHW") is needed. uint8, integers in 0..255, uint16 (divided by
      65 535, or by 2^`bits` - 1 where fewer bits are used), bool, or floats in [0, 1].
    - `image_size`, `resize`: as for a folder.
    - y: integers (N,), or names; masks (N, H, W) of integers; values, floats (N,) or (N, K); several labels
      for each image, bool (N, K). `task` ("classify", "segment", "regress", "multilabel") decides where
      numbers can be read in more than one way: whole numbers (N,) are classes without it.
    - fov: (N, H, W), optional, with the suffix of its part: where it is 0, masks have no label.
    - `masks`, `ignore`: as for a folder of images and masks; "instances" for masks of objects. Images with
      masks keep their size.
    - classes: names of classes or values, optional.
    - groups or slide: integers or names, optional, with the suffix of their part.
    - `split`, `by_group`: how a file with `x` and `y` is divided; groups stay together by default. `val`: the
      share of the training images that becomes the validation part of a file with `x_train` and no `x_val`.
    - `max_bytes`: what a compressed file may unpack to; 1 GB.
    """
    if root is None or root.is_dir():
        raise ValueError(f"npz requires the path of an .npz file, got {root}")
    if layout is not None:
        check_choice("layout", layout, ("NHWC", "NCHW"))
    if masks is not None:
        check_choice("masks", masks, ("classes", "instances"))
        task = task or "segment"
    ignored = check_ignore(ignore)
    check_reading(bits=bits)
    arrays = read_arrays(root, check_count("max_bytes", max_bytes))
    with reading(root):
        parts = [part for part in ("train", "val", "test") if f"x_{part}" in arrays]
        if "x" not in arrays and "train" not in parts:
            raise ValueError(f"has neither x nor x_train; its keys are {sorted(arrays)}")
        suffixes = {part: f"_{part}" for part in parts} if "train" in parts else {ALL: ""}
        targets = {f"y{suffix}": take(arrays, f"y{suffix}") for suffix in suffixes.values()}
        groups = _number_groups(arrays, suffixes)
        stored = [arrays[f"x{suffix}"] for suffix in suffixes.values()]
        images = [as_images(x, layout, bits) for x in stored]
        names = _names(arrays.get("classes"))
        kind = array_task(targets, task)
        instances = None
        if kind == "segment":
            fields = [arrays.get(f"fov{suffix}") for suffix in suffixes.values()]
            numbers = [
                array_masks(name, y, field, (len(x), *x.shape[2:]))
                for (name, y), field, x in zip(targets.items(), fields, images)
            ]
            images, numbers, fitted = _with_masks(images, numbers, image_size, resize)
            labels, instances, names = label_masks(
                [mask for part in numbers for mask in part],
                [f"{name}[{i}]" for name, y in targets.items() for i in range(len(y))],
                instances=masks == "instances",
                names=names,
                ignore=ignored,
            )
        else:
            labels, names = array_labels(list(targets.values()), kind, names)
            images, fitted = _of_one_size(images, image_size, resize)
        counts = [len(y) for y in targets.values()]
        objects = [None] * len(counts) if instances is None else instances.split(counts)
        sets = {
            part: ImageSet(x, y, names, groups.get(part), z)
            for part, x, y, z in zip(suffixes, images, labels.split(counts), objects)
        }
    if bits is None:
        deep = [int(x.max(initial=0)) for x in stored if x.dtype == np.uint16]
        warn_of_dark_images(max(deep, default=0))
    return assemble(sets, root.name, split, seed, val=val, by_group=by_group, fitted=fitted)


def _of_one_size(
    images: Sequence[Tensor], size: int | None, resize: Resize
) -> tuple[list[Tensor], str]:
    """The images of all parts at `size`, or at the size that is chosen for them."""
    fitted = ""
    if size is None:
        size, fitted = choose_size(((x.shape[3], x.shape[2]) for x in images for _ in x), resize)
    return [resize_in_pieces(x, size, resize) for x in images], fitted


def _with_masks(
    images: Sequence[Tensor], masks: Sequence[np.ndarray], size: int | None, resize: Resize
) -> tuple[list[Tensor], list[np.ndarray], str]:
    """Images and masks of all parts at `size`, or padded to the largest part."""
    if size is None:
        largest, fitted = padded_size(tuple(x.shape[2:]) for x in images)
        if not fitted:
            return list(images), list(masks), ""
        pixels = [torch.from_numpy(pad(x.numpy(), largest)) for x in images]
        return pixels, [pad(y.astype(np.int32), largest, UNLABELLED) for y in masks], fitted
    resized = [
        torch.cat(
            [
                resize_masks(
                    torch.from_numpy(mask.astype(np.int32))[None], size, resize, UNLABELLED
                )
                for mask in part
            ]
        )
        for part in masks
    ]
    return [resize_in_pieces(x, size, resize) for x in images], [y.numpy() for y in resized], ""


def _names(classes: np.ndarray | None) -> tuple[str, ...] | None:
    return None if classes is None else tuple(str(name) for name in classes.reshape(-1))


def _number_groups(
    arrays: dict[str, np.ndarray], suffixes: dict[str, str]
) -> dict[str, torch.Tensor]:
    """Group numbers of each part that has them, the same number for the same group everywhere."""
    found = {
        part: arrays[key + suffix].reshape(-1)
        for part, suffix in suffixes.items()
        for key in _GROUP_KEYS
        if key + suffix in arrays
    }
    if not found:
        return {}
    _, numbers = np.unique(np.concatenate(list(found.values())), return_inverse=True)
    pieces = torch.from_numpy(numbers.astype(np.int64)).split([len(x) for x in found.values()])
    return dict(zip(found, pieces))
