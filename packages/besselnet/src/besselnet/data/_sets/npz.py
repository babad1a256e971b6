"""`npz`: arrays of images and labels in one NumPy archive."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from besselnet._pixels import RESIZE, check_reading, option_hint, scale_depth
from besselnet.checks import check_choice, check_count
from besselnet.data._decode import Resize, resize_in_pieces, warn_of_dark_images
from besselnet.data._files import read_arrays, take
from besselnet.data._imageset import ImageSet, Provenance, Splits
from besselnet.data._registry import register_data
from besselnet.data._sizes import choose_size
from besselnet.data._split import divide
from besselnet.untrusted import MOST_BYTES, reading

_GROUP_KEYS = ("groups", "slide")
# Of a file without names of the classes: each number up to the largest label becomes a class.
_LARGEST_LABEL = 9_999
# That are recognised without `layout`.
_MOST_CHANNELS = 32


@register_data(
    "npz",
    summary="your own arrays: x, y (or x_train, y_train, x_test, ...), classes, groups",
    obtain="give the path of your .npz file",
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
    by_group: bool | None = None,
    max_bytes: int = MOST_BYTES,
) -> Splits:
    """Keys: `x`, `y`, or `x_train`, `y_train` and the same with `_val` and `_test`.

    - x: (N, H, W), (N, H, W, C) or (N, C, H, W). The channels are the last or the second axis, if it has
      length 1 or 3, or is at most 32 and less than half of the other two; else `layout` ("NHWC" or
      "NCHW") is needed. uint8, integers in 0..255, uint16 (divided by
      65 535, or by 2^`bits` - 1 where fewer bits are used), bool, or floats in [0, 1].
    - `image_size`, `resize`: as for a folder.
    - y: integers, or names.
    - classes: names, optional.
    - groups or slide: integers or names, optional, with the suffix of their part.
    - `split`, `by_group`: how a file with `x` and `y` is divided; groups stay together by default.
    - `max_bytes`: what a compressed file may unpack to; 1 GB.
    """
    if root is None or root.is_dir():
        raise ValueError(f"npz needs the path of an .npz file, got {root}")
    if layout is not None:
        check_choice("layout", layout, ("NHWC", "NCHW"))
    check_reading(bits=bits)
    arrays = read_arrays(root, check_count("max_bytes", max_bytes))
    with reading(root):
        parts = [part for part in ("train", "val", "test") if f"x_{part}" in arrays]
        if "x" not in arrays and "train" not in parts:
            raise ValueError(f"has neither x nor x_train; its keys are {sorted(arrays)}")
        suffixes = {part: f"_{part}" for part in parts} if "train" in parts else {"all": ""}
        labels = [take(arrays, f"y{suffix}").reshape(-1) for suffix in suffixes.values()]
        classes, numbers = _number(np.concatenate(labels), arrays.get("classes"))
        numbers_of = dict(zip(suffixes, torch.from_numpy(numbers).split([len(y) for y in labels])))
        groups = _number_groups(arrays, suffixes)
        images = {
            part: as_images(arrays[f"x{suffix}"], layout, bits) for part, suffix in suffixes.items()
        }
        fitted = ""
        if image_size is None:
            sizes = ((x.shape[3], x.shape[2]) for x in images.values() for _ in x)
            image_size, fitted = choose_size(sizes, resize)
        sets = {}
        for part, x in images.items():
            resized = resize_in_pieces(x, image_size, resize)
            sets[part] = ImageSet(resized, numbers_of[part], classes, groups.get(part))
    if bits is None:
        stored = (arrays[f"x{suffix}"] for suffix in suffixes.values())
        deep = [int(x.max(initial=0)) for x in stored if x.dtype == np.uint16]
        warn_of_dark_images(max(deep, default=0))
    if "all" in sets:
        splits = divide(sets["all"], root.name, split, seed, by_group)
    else:
        splits = Splits(**sets, provenance=Provenance(f"{root.name}, its own parts"))
    return replace(splits, provenance=replace(splits.provenance, fitted=fitted))


def as_images(
    array: np.ndarray, layout: str | None = None, bits: int | None = None
) -> torch.Tensor:
    """(N, H, W), (N, H, W, C) or (N, C, H, W) of any accepted type -> (N, C, H, W) tensor."""
    if array.ndim not in (3, 4):
        raise ValueError(f"images must have 3 or 4 axes, got shape {array.shape}")
    if array.ndim == 3:
        array = array[:, None]
    else:
        if (layout or _layout(array.shape)) == "NHWC":
            array = array.transpose(0, 3, 1, 2)
    return torch.from_numpy(np.ascontiguousarray(_as_values(array, bits)))


def _layout(shape: tuple[int, ...]) -> str:
    """ "NHWC" or "NCHW", where the lengths of the axes tell."""
    for few in (
        lambda length, _: length in (1, 3),
        lambda length, others: length <= _MOST_CHANNELS and 2 * length < min(others),
    ):
        for layout, axis in (("NHWC", 3), ("NCHW", 1)):
            if few(shape[axis], (shape[2], shape[4 - axis])):
                return layout
    raise ValueError(
        f"cannot tell the channels in shape {shape}: {option_hint('layout', 'NHWC')} or NCHW"
    )


def _as_values(array: np.ndarray, bits: int | None) -> np.ndarray:
    """uint8, or float32 in [0, 1]."""
    kind = array.dtype.kind
    if kind == "b":
        return array.astype(np.uint8) * 255
    if kind == "f":
        return array.astype(np.float32)
    if array.dtype == np.uint8:
        return array
    if array.dtype == np.uint16:
        return scale_depth(array, bits)
    if kind in "iu":
        low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
        if low < 0 or high > 255:
            raise ValueError(f"integer images must lie in 0..255, got {low} to {high}")
        return array.astype(np.uint8)
    raise ValueError(f"images must be numbers, got {array.dtype}")


def _number(labels: np.ndarray, classes: np.ndarray | None) -> tuple[tuple[str, ...], np.ndarray]:
    """Class names, and the labels as indices into them."""
    names = None if classes is None else tuple(str(name) for name in classes.reshape(-1))
    if labels.dtype.kind in "US":
        text = labels.astype(str).tolist()
        names = names or tuple(sorted(set(text)))
        unknown = sorted(set(text) - set(names))
        if unknown:
            raise ValueError(f"label {unknown[0]!r} is not among the classes {names}")
        place = {name: number for number, name in enumerate(names)}
        return names, np.array([place[name] for name in text], dtype=np.int64)
    if labels.dtype.kind not in "iufb" or np.any(labels != np.round(labels)):
        raise ValueError(f"labels must be whole numbers or names, got {labels.dtype}")
    if names is None:
        most = int(labels.max(initial=0))
        if most > _LARGEST_LABEL:
            raise ValueError(f"has the label {most}, must be at most {_LARGEST_LABEL}")
        names = tuple(str(number) for number in range(most + 1))
    return names, labels.astype(np.int64)


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
