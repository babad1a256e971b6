"""Prepare a run for the page: its network, and the images that it is least sure of or got wrong."""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from besselnet.data import as_floats, ground_colour, iter_images, reading_options
from besselnet.export import RANDOM_IMAGES, export_model
from besselnet.models import count_parameters
from besselnet.nn import evaluating, fold_batch_norm
from besselnet.play._page import kernels_of
from besselnet.train import Run

# Images of each kind.
MOST = 48
BATCH = 64
# Of the exported network: several scales can differ by more than rounding, see `export_model`.
BOUND = 1e-3
# A ground of at most this share of white is black.
BLACK = 0.02


@dataclass(frozen=True)
class _Shown:
    """Images to look at.

    Attributes:
        images: (N, C, S, S), uint8 or float32 in [0, 1].
        logits: (N, classes), of these images.
        labels: their classes, or None where they are not known.
        names, files: what they are called, and their paths below the folder that all are in, if known.
        unsure, wrong: which of them are least sure and wrong, in the order to look at them.
        source: where they are from, in words.
    """

    images: Tensor
    logits: Tensor
    labels: list[int | None]
    names: list[str]
    files: list[str | None]
    unsure: list[int]
    wrong: list[int]
    source: str


def run_files(run: Run, paths: Sequence[Path] = ()) -> dict[str, bytes]:
    """Return the files of a run for the page, by URL: ``model.onnx``, ``run.json`` and ``images.bin``.

    The images are the test (or validation) images of the run, or the files in `paths`. There are none if the
    images of the run are not available.
    """
    if run.task != "classify":
        raise ValueError(
            f"{run.folder} predicts {run.learned.labels}: must predict classes for the playground"
        )
    shown = _from_files(run, paths) if paths else _from_run(run)
    images = shown.images if len(shown.images) else _random_images(run)
    ground = ground_colour(images)
    rows = zip(shown.names, shown.files, shown.labels, shown.logits.softmax(1))
    about = {
        "name": run.folder.name,
        "parameters": count_parameters(run.model),
        "classes": list(run.classes),
        "channels": run.in_channels,
        "image_size": run.image_size,
        "border": "zeros" if ground is not None and ground.max() <= BLACK else "reflect",
        "kernels": kernels_of(run.model),
        "dtype": str(images.dtype).removeprefix("torch."),
        "source": shown.source,
        "images": [_row(*row) for row in rows],
        "unsure": shown.unsure,
        "wrong": shown.wrong,
    }
    return {
        "model.onnx": _exported(run, images, bool(len(shown.images))),
        "run.json": json.dumps(about, allow_nan=False).encode(),
        "images.bin": shown.images.contiguous().numpy().tobytes(),
    }


def _row(name: str, file: str | None, label: int | None, shares: Tensor) -> dict[str, Any]:
    best = int(shares.argmax())
    row = {"name": name, "file": file, "label": label}
    return {**row, "answer": best, "probability": shares[best].item()}


def _exported(run: Run, images: Tensor, real: bool) -> bytes:
    reading = reading_options(run.config.data.options)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        how: dict[str, Any] = {"classes": run.classes, "real": real, "maps": True, **reading}
        export_model(run.model, path, to="onnx", images=as_floats(images), bound=BOUND, **how)
        return path.read_bytes()


def _random_images(run: Run) -> Tensor:
    shape = (RANDOM_IMAGES, run.in_channels, run.image_size, run.image_size)
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


def _logits(run: Run, batches: Iterable[Tensor]) -> Tensor:
    network = fold_batch_norm(run.model)
    with evaluating(network):
        found = [network(as_floats(batch)).cpu() for batch in batches]
    return torch.cat(found) if found else torch.empty(0, len(run.classes))


def _least_sure(logits: Tensor) -> Tensor:
    """Places of the images whose two best answers are closest, the closest first."""
    best = logits.softmax(1).topk(min(2, logits.shape[1]), dim=1).values
    return (best[:, 0] - best[:, -1]).argsort(stable=True)[:MOST]


def _from_run(run: Run) -> _Shown:
    try:
        splits = run.load_images()
    except (ValueError, OSError) as error:
        nothing = torch.empty(0, run.in_channels, run.image_size, run.image_size)
        source = f"The images of the run are not available ({error})"
        return _Shown(nothing, _logits(run, ()), [], [], [], [], [], source)
    name, part = next(
        (name, part) for name in ("test", "val", "train") if (part := splits.parts().get(name))
    )
    # Slice by slice: the images may be on disk.
    logits = _logits(run, (part.images[i : i + BATCH] for i in range(0, len(part), BATCH)))
    answers, sure = logits.argmax(1), logits.softmax(1).amax(1)
    wrong = (answers != part.labels).nonzero()[:, 0]
    wrong = wrong[sure[wrong].argsort(descending=True, stable=True)][:MOST]
    unsure = _least_sure(logits)
    chosen = torch.cat([unsure, wrong]).unique()
    place = {number: i for i, number in enumerate(chosen.tolist())}
    images = part.images[chosen]
    return _Shown(
        images,
        logits[chosen],
        part.labels[chosen].tolist(),
        [f"{name} image {number}" for number in place],
        _file_names(run, images),
        [place[number] for number in unsure.tolist()],
        [place[number] for number in wrong.tolist()],
        f"{len(part)} {name} images of {Path(run.config.data.source).name}",
    )


def _reading(run: Run) -> dict[str, Any]:
    options = reading_options(run.config.data.options)
    return {"image_size": run.image_size, "channels": run.in_channels, **options}


def _file_names(run: Run, images: Tensor) -> list[str | None]:
    """Paths of images in the folder that the run learned from, found by their pixels."""
    folder = Path(run.config.data.source)
    names: list[str | None] = [None] * len(images)
    if not folder.is_dir() or run.in_channels not in (1, 3):
        return names
    wanted = {_digest(image): place for place, image in enumerate(images)}
    for path, image in iter_images([folder], **_reading(run)):
        if isinstance(image, Tensor):
            same = image if image.dtype == images.dtype else as_floats(image)
            place = wanted.get(_digest(same))
            if place is not None:
                names[place] = path.relative_to(folder).as_posix()
    return names


def _digest(image: Tensor) -> bytes:
    return hashlib.sha256(image.contiguous().numpy().tobytes()).digest()


def _from_files(run: Run, paths: Sequence[Path]) -> _Shown:
    found: list[Path] = []
    logits = _logits(run, _file_batches(run, paths, found))
    if not found:
        raise ValueError(f"no images in {', '.join(map(str, paths))}")
    chosen = _least_sure(logits)
    files = [found[number] for number in chosen.tolist()]
    # Only now, and only these: all of them might not fit in memory.
    again = [image for _, image in iter_images(files, **_reading(run)) if isinstance(image, Tensor)]
    same = len({image.dtype for image in again}) == 1
    places = [(path if path.is_dir() else path.parent).absolute() for path in paths]
    folder = os.path.commonpath(places)
    return _Shown(
        torch.stack([image if same else as_floats(image) for image in again]),
        logits[chosen],
        [None] * len(files),
        [path.name for path in files],
        [path.absolute().relative_to(folder).as_posix() for path in files],
        list(range(len(files))),
        [],
        f"{len(found)} images in {', '.join(path.name for path in paths)}",
    )


def _file_batches(run: Run, paths: Sequence[Path], found: list[Path]) -> Iterable[Tensor]:
    """Batches of the images that can be read, whose paths are put into `found`."""
    read = iter_images(paths, **_reading(run))
    while batch := list(islice(read, BATCH)):
        good = [(path, image) for path, image in batch if isinstance(image, Tensor)]
        found += [path for path, _ in good]
        if good:
            yield torch.stack([as_floats(image) for _, image in good])
