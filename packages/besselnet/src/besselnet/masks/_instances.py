"""Find, compare and measure objects (instances) in masks.

An instance map is (H, W) int32: 0 for no object, otherwise the number of the object, from 1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy import ndimage

from besselnet._pixels import IGNORED, needed
from besselnet.checks import check_choice, check_count, check_number
from besselnet.masks._scores import same_shape

Array = np.ndarray
Method = Literal["components", "watershed"]
METHODS: tuple[str, ...] = get_args(Method)


def label_instances(
    source: ArrayLike,
    *,
    border: int | None = None,
    background: Sequence[int] = (0,),
    method: Method = "components",
    separation: int = 5,
    least_area: int = 1,
) -> Array:
    """Return the instance map (H, W) int32 of a mask or of probabilities.

    Objects are connected pixels (by edges, not corners) of one class. Pixels of the class `border`, which
    separates touching objects, are added to the nearest connected object; without one, they form an object.

    Args:
        source: classes (H, W), or probabilities (K, H, W), of which the most probable class is used.
        border: class of pixels between touching objects, if the network has learned one.
        background: classes that are not objects.
        method: "components", or "watershed", which also splits touching objects at their narrowest point: one
            object per peak of the distance to the outside. It needs scikit-image (the extra `masks`).
        separation: for "watershed", pixels between two peaks, about the radius of the smallest objects.
        least_area: minimum area in pixels; smaller objects are dropped.
    """
    check_choice("method", method, METHODS)
    check_count("separation", separation)
    check_count("least_area", least_area)
    found = np.asarray(source)
    if found.ndim not in (2, 3):
        raise ValueError(f"source has shape {found.shape}: must be (H, W) or (K, H, W)")
    mask = found if found.ndim == 2 else found.argmax(0)
    instances = np.zeros(mask.shape, np.int32)
    number = 0
    for kind in np.unique(mask):
        if kind not in (*background, border, IGNORED):
            parts, count = ndimage.label(mask == kind)
            instances[parts > 0] = parts[parts > 0] + number
            number += count
    if border is not None:
        _grow(instances, mask == border)
    if method == "watershed":
        instances = _divided(instances, separation)
    return _renumbered(instances, least_area)


class Roles(TypedDict):
    """Arguments of `label_instances`."""

    border: int | None
    background: tuple[int, ...]


def roles_of(classes: Sequence[str]) -> Roles:
    """Return the roles of classes for `label_instances`, by their names.

    "background", or else the first class, has no objects; "border", if it exists, separates objects.
    """
    background = classes.index("background") if "background" in classes else 0
    border = classes.index("border") if "border" in classes else None
    return {"border": border, "background": (background,)}


@dataclass(frozen=True)
class InstanceScores:
    """Result of `match_instances`; add the results of several images with ``+``.

    Attributes:
        matched: number of pairs of a predicted and a true object.
        predicted, true: number of objects.
        overlap: sum of the IoU of all pairs.
    """

    matched: int = 0
    predicted: int = 0
    true: int = 0
    overlap: float = 0.0

    def __add__(self, other: "InstanceScores") -> "InstanceScores":
        return InstanceScores(
            self.matched + other.matched,
            self.predicted + other.predicted,
            self.true + other.true,
            self.overlap + other.overlap,
        )

    @property
    def precision(self) -> float:
        """Fraction of the predicted objects that are matched; NaN without any."""
        return _share(self.matched, self.predicted)

    @property
    def recall(self) -> float:
        """Fraction of the true objects that are matched; NaN without any."""
        return _share(self.matched, self.true)

    @property
    def f1(self) -> float:
        """2 matched / (predicted + true), the recognition quality of the panoptic quality."""
        return _share(2 * self.matched, self.predicted + self.true)

    @property
    def segmentation_quality(self) -> float:
        """Mean IoU of the pairs; 0 without any."""
        return self.overlap / self.matched if self.matched else 0.0

    @property
    def panoptic_quality(self) -> float:
        """Segmentation quality times F1 (Kirillov et al., 2019)."""
        return self.segmentation_quality * self.f1

    def to_dict(self) -> dict[str, float | int | None]:
        """Convert to JSON values; NaN becomes None."""
        shares = {
            "f1": self.f1,
            "precision": self.precision,
            "recall": self.recall,
            "segmentation_quality": self.segmentation_quality,
            "panoptic_quality": self.panoptic_quality,
        }
        known = {name: None if math.isnan(share) else share for name, share in shares.items()}
        return {"predicted": self.predicted, "true": self.true, "matched": self.matched, **known}


def match_instances(
    prediction: ArrayLike,
    truth: ArrayLike,
    *,
    threshold: float = 0.5,
    ignored: ArrayLike | None = None,
) -> InstanceScores:
    """Match the objects of two instance maps whose IoU is above `threshold`.

    Args:
        threshold: at least 0.5, so that an object is in at most one pair.
        ignored: (H, W) bool, pixels to ignore in both maps.
    """
    check_number("threshold", threshold, least=0.5, below=1)
    ours, theirs = same_shape(prediction, truth)
    if ignored is not None:
        known = ~np.asarray(ignored, bool)
        ours, theirs = ours[known], theirs[known]
    pairs, pixels = np.unique(np.stack([ours.ravel(), theirs.ravel()]), axis=1, return_counts=True)
    areas = [np.bincount(row, pixels) for row in pairs] if pairs.size else [np.zeros(1)] * 2
    both = (pairs > 0).all(0)
    shared = pixels[both]
    union = areas[0][pairs[0, both]] + areas[1][pairs[1, both]] - shared
    overlaps = shared / union
    good = overlaps > threshold
    predicted, true = (int(np.count_nonzero(area[1:])) for area in areas)
    return InstanceScores(int(good.sum()), predicted, true, float(overlaps[good].sum()))


def measure_instances(
    instances: ArrayLike,
    *,
    mask: ArrayLike | None = None,
    classes: Sequence[str] | None = None,
    probabilities: ArrayLike | None = None,
) -> list[dict[str, Any]]:
    """Return one row of measures per object of an instance map, in pixels and degrees.

    | column | content |
    |---|---|
    | `label` | instance number |
    | `class` | most frequent class of its pixels, with `mask`; its name with `classes` |
    | `area` | number of pixels |
    | `row`, `column` | centre of mass |
    | `top`, `left`, `bottom`, `right` | bounding box; bottom and right are exclusive |
    | `diameter` | diameter of the disc of this area |
    | `major_axis`, `minor_axis`, `eccentricity`, `orientation` | of the ellipse with the same second moments;
      the orientation is that of the major axis, counter-clockwise from the row axis to the right, -90 to 90 |
    | `probability` | mean probability, with `probabilities` (H, W) |
    """
    found = np.asarray(instances)
    if found.ndim != 2:
        raise ValueError(f"instances has shape {found.shape}: must be (H, W)")
    rows = []
    for number, box in enumerate(ndimage.find_objects(found), start=1):
        if box is None:
            continue
        inside = found[box] == number
        row: dict[str, Any] = {"label": number}
        if mask is not None:
            kind = int(np.bincount(np.asarray(mask)[box][inside]).argmax())
            row["class"] = kind if classes is None else classes[kind]
        row |= _shape_of(inside, box[0].start, box[1].start)
        if probabilities is not None:
            row["probability"] = float(np.asarray(probabilities)[box][inside].mean())
        rows.append(row)
    return rows


def _shape_of(inside: Array, top: int, left: int) -> dict[str, float | int]:
    """The measures that depend on the pixels of an object alone, which begins at (top, left)."""
    y, x = np.nonzero(inside)
    area = len(y)
    across, down = x.var(), y.var()
    mixed = float(np.mean((x - x.mean()) * (y - y.mean())))
    half, apart = (across + down) / 2, math.hypot((across - down) / 2, mixed)
    major, minor = half + apart, max(half - apart, 0.0)
    return {
        "area": area,
        "row": float(top + y.mean()),
        "column": float(left + x.mean()),
        "top": top,
        "left": left,
        "bottom": top + inside.shape[0],
        "right": left + inside.shape[1],
        "diameter": 2 * math.sqrt(area / math.pi),
        "major_axis": 4 * math.sqrt(major),
        "minor_axis": 4 * math.sqrt(minor),
        "eccentricity": math.sqrt(1 - minor / major) if major else 0.0,
        # Rows count downwards.
        "orientation": math.degrees(0.5 * math.atan2(-2 * mixed, across - down)),
    }


def _grow(instances: Array, border: Array) -> None:
    """Give pixels of the border to the nearest object of their connected region, in place."""
    regions, _ = ndimage.label((instances > 0) | border)
    for number, box in enumerate(ndimage.find_objects(regions), start=1):
        # By region: a nearer object may lie in another one.
        inside = regions[box] == number
        growing, objects = inside & border[box], np.where(inside, instances[box], 0)
        if growing.any() and objects.any():
            nearest = ndimage.distance_transform_edt(
                objects == 0, return_distances=False, return_indices=True
            )
            instances[box][growing] = objects[tuple(nearest[:, growing])]
    alone, _ = ndimage.label(border & (instances == 0))
    instances[alone > 0] = alone[alone > 0] + instances.max()


def _divided(instances: Array, separation: int) -> Array:
    """Each object cut where the distance to its outside has a valley between two peaks."""
    feature = needed("skimage.feature", "method='watershed'", "masks")
    segmentation = needed("skimage.segmentation", "method='watershed'", "masks")
    divided = np.zeros_like(instances)
    number = 0
    for label, box in enumerate(ndimage.find_objects(instances), start=1):
        if box is None:
            continue
        inside = np.pad(instances[box] == label, 1)
        distance = ndimage.distance_transform_edt(inside)
        # Steps of the pixel grid are no peaks.
        smooth = ndimage.gaussian_filter(distance, 1.0)
        peaks = feature.peak_local_max(
            smooth, min_distance=separation, labels=inside.astype(np.int32), exclude_border=False
        )
        seeds = np.zeros(inside.shape, np.int32)
        seeds[tuple(peaks.T)] = np.arange(1, len(peaks) + 1)
        if len(peaks) < 2:
            seeds = inside.astype(np.int32)
        parts = segmentation.watershed(-smooth, seeds, mask=inside)[1:-1, 1:-1]
        divided[box][parts > 0] = parts[parts > 0] + number
        number += int(parts.max())
    return divided


def _renumbered(instances: Array, least_area: int) -> Array:
    """Numbers from 1 without gaps, in the order of the first pixels; smaller objects are left out."""
    areas = np.bincount(instances.ravel())
    kept = areas >= least_area
    kept[0] = False
    labels, first = np.unique(instances, return_index=True)
    order = labels[np.argsort(first)]
    numbers = np.zeros(len(areas), np.int32)
    chosen = order[kept[order]]
    numbers[chosen] = np.arange(1, len(chosen) + 1)
    return numbers[instances]


def _share(part: float, whole: float) -> float:
    return part / whole if whole else math.nan
