"""Load, split, augment and batch labelled images.

Nothing is downloaded on import; `load_data` downloads missing files.
"""

from besselnet._pixels import IGNORED, image_files, reading_options
from besselnet.data import _sets  # noqa: F401  (registers the data sets)
from besselnet.data._augment import (
    Augmentation,
    AugmentName,
    Brightness,
    Colour,
    Compose,
    Contrast,
    Elastic,
    Erase,
    Reflect,
    Rotate,
    Scale,
    Shift,
    Stretch,
    make_augmentation,
)
from besselnet.data._batches import Batches
from besselnet.data._decode import decode_image, iter_images, resize_images, resize_masks
from besselnet.data._download import Download, fetch_file
from besselnet.data._files import cache_folder
from besselnet.data._frame import frames_are_full, ground_colour
from besselnet.data._imageset import ImageSet, Provenance, Splits, Task, as_floats
from besselnet.data._masks import instance_classes
from besselnet.data._registry import (
    DataSource,
    data_options,
    data_source,
    fetch_data,
    list_data,
    load_data,
    register_data,
    resolve_reading,
)
from besselnet.data._segments import (
    Files,
    Held,
    Members,
    Rows,
    Segment,
    cut_segments,
    hold_contents,
    read_contents,
    read_segments,
)
from besselnet.data._shards import ShardBatches
from besselnet.data._sources import (
    ImageSource,
    Listing,
    check_sources,
    list_sources,
    open_sources,
)
from besselnet.data._split import divide, fold_splits, split_indices, strata, stratified_split
from besselnet.data._stored import Pixels, StoredImages, row_hashes

__all__ = [
    "IGNORED",
    "AugmentName",
    "Augmentation",
    "Batches",
    "Brightness",
    "Colour",
    "Compose",
    "Contrast",
    "DataSource",
    "Download",
    "Elastic",
    "Erase",
    "Files",
    "Held",
    "ImageSet",
    "ImageSource",
    "Listing",
    "Members",
    "Pixels",
    "Provenance",
    "Reflect",
    "Rotate",
    "Rows",
    "Scale",
    "Segment",
    "ShardBatches",
    "Shift",
    "Splits",
    "StoredImages",
    "Stretch",
    "Task",
    "as_floats",
    "cache_folder",
    "check_sources",
    "cut_segments",
    "data_options",
    "data_source",
    "decode_image",
    "divide",
    "fetch_data",
    "fetch_file",
    "fold_splits",
    "frames_are_full",
    "ground_colour",
    "hold_contents",
    "image_files",
    "instance_classes",
    "iter_images",
    "list_data",
    "list_sources",
    "load_data",
    "make_augmentation",
    "open_sources",
    "read_contents",
    "read_segments",
    "reading_options",
    "register_data",
    "resize_images",
    "resize_masks",
    "resolve_reading",
    "row_hashes",
    "split_indices",
    "strata",
    "stratified_split",
]
