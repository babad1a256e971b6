"""Segmentation masks: scores, instances, prediction by tiles, agreement under rotation.

Masks have the class of each pixel, or `IGNORED`. Names are imported on first use; most functions work on
arrays and do not import torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from besselnet._pixels import IGNORED
    from besselnet.masks._files import (
        mask_columns,
        measure_columns,
        output_names,
        predict_files,
        predict_images,
    )
    from besselnet.masks._instances import (
        METHODS,
        InstanceScores,
        Method,
        label_instances,
        match_instances,
        measure_instances,
        roles_of,
    )
    from besselnet.masks._network import probabilities_of
    from besselnet.masks._overlay import COLOURS, class_colour, overlay_mask
    from besselnet.masks._rotation import MaskAgreement, mask_agreement
    from besselnet.masks._scores import (
        boundary_counts,
        boundary_f1,
        class_mean,
        confusion_of_masks,
        dice,
        f1_of_boundaries,
        iou,
    )
    from besselnet.masks._tiles import (
        Forward,
        count_tiles,
        iter_tiles,
        predict_tiles,
        receptive_field,
    )

__all__ = [
    "COLOURS",
    "IGNORED",
    "METHODS",
    "Forward",
    "InstanceScores",
    "MaskAgreement",
    "Method",
    "boundary_counts",
    "boundary_f1",
    "class_colour",
    "class_mean",
    "confusion_of_masks",
    "count_tiles",
    "dice",
    "f1_of_boundaries",
    "iou",
    "iter_tiles",
    "label_instances",
    "mask_agreement",
    "mask_columns",
    "match_instances",
    "measure_columns",
    "measure_instances",
    "output_names",
    "overlay_mask",
    "predict_files",
    "predict_images",
    "predict_tiles",
    "probabilities_of",
    "receptive_field",
    "roles_of",
]

_PLACES = {
    "_pixels": ("IGNORED",),
    "masks._files": (
        *("mask_columns", "measure_columns", "output_names", "predict_files", "predict_images"),
    ),
    "masks._instances": (
        *("METHODS", "InstanceScores", "Method"),
        *("label_instances", "match_instances", "measure_instances", "roles_of"),
    ),
    "masks._network": ("probabilities_of",),
    "masks._overlay": ("COLOURS", "class_colour", "overlay_mask"),
    "masks._rotation": ("MaskAgreement", "mask_agreement"),
    "masks._scores": (
        *("boundary_counts", "boundary_f1", "class_mean", "confusion_of_masks", "dice"),
        *("f1_of_boundaries", "iou"),
    ),
    "masks._tiles": ("Forward", "count_tiles", "iter_tiles", "predict_tiles", "receptive_field"),
}


def __getattr__(name: str) -> Any:
    for place, names in _PLACES.items():
        if name in names:
            return getattr(importlib.import_module(f"besselnet.{place}"), name)
    raise AttributeError(f"module 'besselnet.masks' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
