"""Choose a size for images that are not square, differ in size, or are too large to train on.

Images with masks are not resized: they are padded to the size of the largest.
"""

from collections import Counter
from collections.abc import Iterable
from statistics import median

import numpy as np

from besselnet._pixels import RESIZE
from besselnet.data._decode import Resize

# Square images of one size are kept up to here.
_LARGEST_KEPT = 256
# What a size that is chosen here lies between.
_LEAST, _MOST = 16, 224

_HOW = {
    "crop": "shorter side scaled to {0}, centre cropped",
    "fit": "longer side scaled to {0}, padded with zeros",
    "stretch": "stretched to {0} x {0}",
}


def choose_size(
    sizes: Iterable[tuple[int, int]], resize: Resize = RESIZE
) -> tuple[int | None, str]:
    """The side for images of these (width, height), and a line that says what happens to them.

    None and "" where the images can stay as they are: square, of one size, at most 256 pixels. Else the
    side is the median of their shorter sides, at least 16 and at most 224.
    """
    counts = Counter(sizes)
    if not counts:
        return None, ""
    (width, height), _ = counts.most_common(1)[0]
    if len(counts) == 1 and width == height <= _LARGEST_KEPT:
        return None, ""
    side = min(max(round(median(map(min, counts.elements()))), _LEAST), _MOST)
    others = " and others" if len(counts) > 1 else ""
    return side, f"{width} x {height} pixels{others}: {_HOW[resize].format(side)}"


def padded_size(sizes: Iterable[tuple[int, ...]]) -> tuple[tuple[int, int], str]:
    """Height and width that images of these heights and widths are padded to, and a line that says so."""
    counts = Counter(sizes)
    height, width = (max(sides) for sides in zip(*counts))
    if len(counts) == 1:
        return (height, width), ""
    rows, columns = counts.most_common(1)[0][0]
    return (
        (height, width),
        f"{columns} x {rows} pixels and others: padded to {width} x {height}, images by reflection, "
        "masks without labels",
    )


def pad(images: np.ndarray, size: tuple[int, int], fill: int | None = None) -> np.ndarray:
    """(..., H, W) in the middle of `size`; around it `fill`, or the reflected image."""
    spare = [wanted - side for wanted, side in zip(size, images.shape[-2:])]
    margins = [(0, 0)] * (images.ndim - 2) + [(rest // 2, rest - rest // 2) for rest in spare]
    if fill is None:
        return np.pad(images, margins, mode="symmetric")
    return np.pad(images, margins, constant_values=fill)
