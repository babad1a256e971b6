"""Labelled images: loading, dividing, turning, batching.

Nothing is downloaded on import; `load_data` downloads what is missing when it is called.
"""

from . import sets as _sets  # noqa: F401  (registers the data sets)
from .augment import Augmentation, Compose, Reflect, Rotate
from .batches import Batches
from .cache import cache_folder
from .contact_sheet import contact_sheet
from .decode import decode_image, image_files, iter_images
from .download import Download
from .imageset import ImageSet, Splits
from .registry import DataSource, data_source, fetch_data, list_data, load_data, register_data
from .resize import resize_images
from .rotation import rotate_images
from .split import divide, stratified_split, take_regime

__all__ = [
    "Augmentation",
    "Batches",
    "Compose",
    "DataSource",
    "Download",
    "ImageSet",
    "Reflect",
    "Rotate",
    "Splits",
    "cache_folder",
    "contact_sheet",
    "data_source",
    "decode_image",
    "divide",
    "fetch_data",
    "image_files",
    "iter_images",
    "list_data",
    "load_data",
    "register_data",
    "resize_images",
    "rotate_images",
    "stratified_split",
    "take_regime",
]
