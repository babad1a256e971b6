"""The rates that decide what very many images cost, measured on some, and a rehearsal with a million.

Times are of the processor, not of the clock: other programs on the machine disturb them less.
"""

import csv
import io
import os
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import nn

from besselnet.checks import check_count
from besselnet.data import (
    Batches,
    ImageSet,
    Rotate,
    ShardBatches,
    cut_segments,
    list_sources,
    load_data,
    open_sources,
    read_segments,
)
from besselnet.models import create_model
from besselnet.nn import fold_batch_norm
from besselnet.robust import fit_trust
from besselnet.train import Classify, Run, RunConfig, predict_shards
from besselnet_lab.benchmarks.cost import Rates
from besselnet_lab.benchmarks.prediction import jpeg_files
from besselnet_lab.benchmarks.subjects import training_step

CHANNELS = 3


@dataclass(frozen=True)
class SurveySettings:
    """What is measured.

    Attributes:
        files: that are read, decoded and answered, of `side` pixels.
        steps: of a training.
    """

    model: str = "besselnet_small"
    files: int = 10_000
    side: int = 64
    classes: int = 10
    batch: int = 64
    steps: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("files", "side", "batch", "steps"):
            check_count(name, getattr(self, name))
        check_count("classes", self.classes, least=2, most=self.files)


@dataclass
class _Used:
    """Seconds of the processor: of this process, and of those that it has started and waited for."""

    own: float = 0.0
    others: float = 0.0


@contextmanager
def _processor_time() -> Iterator[_Used]:
    used, own, others = _Used(), time.process_time(), _children_time()
    yield used
    used.own, used.others = time.process_time() - own, _children_time() - others


def _children_time() -> float:
    found = os.times()
    return found.children_user + found.children_system


def survey_rates(settings: SurveySettings, size: int) -> Rates:
    """Measure all rates with one thread, at images of `size` pixels for the network."""
    in_folder = -(-settings.files // settings.classes)
    photos = jpeg_files(settings.files, settings.side, settings.seed, in_folder)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with TemporaryDirectory(prefix="besselnet-survey-") as place:
            return _measure(settings, size, photos, Path(place))
    finally:
        torch.set_num_threads(before)


def _measure(settings: SurveySettings, size: int, photos: Path, place: Path) -> Rates:
    found: dict[str, float] = {}
    with _processor_time() as used:
        list_sources(open_sources([photos]))
    found["walk"] = used.own
    with _processor_time() as used:
        pieces = [
            piece
            for source in open_sources([photos])
            for piece in cut_segments(source.segments(), settings.batch)
        ]
    # Cutting lists the files again.
    found["cut"] = used.own
    with _processor_time() as used:
        for piece in pieces:
            read_segments(piece, image_size=size, channels=CHANNELS)
    found["decode"] = used.own
    archive = place / "photos.tar"
    _write_shard(archive, photos)
    names = tuple(sorted(folder.name for folder in photos.iterdir()))
    with _processor_time() as used:
        ShardBatches(archive, settings.batch, classes=names, image_size=size)
    found["unpack"] = used.own
    with patch.dict(os.environ, BESSELNET_DATA=str(place / "cache")):
        with _processor_time() as used:
            images = load_data(photos, image_size=size, cache="always").merged()
        found["store"] = used.own
        model = create_model(
            settings.model, in_channels=CHANNELS, num_classes=len(names), image_size=size
        )
        step = _step_time(settings, model, images, size)
        run = _run_of(model, images, size)
    for kind, source in (("", photos), ("tar_", archive)):
        rows = place / f"{kind}rows"
        with _processor_time() as used:
            predict_shards(run, [source], rows, batch_size=settings.batch, workers=1)
        found[f"{kind}serve"], found[f"{kind}answer"] = used.own, used.others
    rates = {name: seconds / settings.files for name, seconds in found.items()}
    sizes = {
        "file_bytes": _bytes_below(photos),
        "tar_bytes": archive.stat().st_size,
        "row_bytes": _bytes_below(place / "rows"),
        "cache_bytes": _bytes_below(place / "cache"),
    }
    rates |= {name: number / settings.files for name, number in sizes.items()}
    return Rates(size=size, step=step, **rates)


def _step_time(settings: SurveySettings, model: nn.Module, images: ImageSet, size: int) -> float:
    """Of an image in a step of training with random rotations, read from the cache."""
    batches = Batches(images, settings.batch, shuffle=True, augment=Rotate(), seed=settings.seed)
    about = {"model": settings.model, "num_classes": len(images.classes), "size": size}
    train = training_step(model, {**about, "batch": settings.batch}, settings.seed)
    count = 0
    # The first step is slower than all others.
    train(batches[0][0])
    with _processor_time() as used:
        for number in range(settings.steps):
            pixels, _ = batches[number % len(batches)]
            train(pixels)
            count += len(pixels)
    return used.own / count


def _run_of(model: nn.Module, images: ImageSet, size: int) -> Run:
    """A run with trust in its answers, as users have it; of labels that mean nothing."""
    some = Batches(images.select(torch.arange(0, len(images), -(-len(images) // 500))), 64)
    trust = fit_trust(fold_batch_norm(model.eval()), some, some)
    shape = CHANNELS, size, images.classes
    return Run(Path("run"), RunConfig(), model, *shape, Classify(images.classes), trust)


def _write_shard(path: Path, photos: Path) -> None:
    with tarfile.open(path, "w") as archive:
        for source in sorted(photos.rglob("*.jpg")):
            contents = {".jpg": source.read_bytes(), ".cls": source.parent.name.encode()}
            for suffix, content in contents.items():
                member = tarfile.TarInfo(source.stem + suffix)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))


def _bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def simulate(images: int, *, rows_per_file: int = 10_000) -> dict[str, Any]:
    """Rehearse a survey of so many images without their files: generated names, and generated pixels.

    - Names: a list of places is read, hashed and cut into batches, as `predict` does before it opens a file.
    - Pixels: an array of images of 8 x 8 zeros goes through `predict --to`, with a network of one layer.
      Every image must have exactly one row.

    Returns: seconds of the processor, the files of rows, and the most memory that this process had, in bytes.
    """
    check_count("images", images)
    with TemporaryDirectory(prefix="besselnet-survey-") as place:
        folder = Path(place)
        listed = folder / "list.txt"
        with listed.open("w") as file:
            file.writelines(
                f"survey/{number // 1000:06d}/{number:09d}.jpg\n" for number in range(images)
            )
        with _processor_time() as listing:
            sources = open_sources([listed])
            count = list_sources(sources).count
            pieces = sum(1 for s in sources for _ in cut_segments(s.segments(), 64))
        if (count, pieces) != (images, -(-images // 64)):
            raise RuntimeError(f"{images} names became {count} in {pieces} batches")
        np.savez(folder / "pixels.npz", x=np.zeros((images, 8, 8), np.uint8))
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 2)).eval()
        classes = ("a", "b")
        run = Run(Path("run"), RunConfig(), model, 1, 8, classes, Classify(classes))
        with _processor_time() as answering:
            predict_shards(
                *(run, [folder / "pixels.npz"], folder / "rows"),
                rows_per_file=rows_per_file,
                workers=1,
            )
        files = sorted((folder / "rows").glob("rows-*.csv"))
        _check_rows(files, images)
    return {
        "images": images,
        "listing_seconds": listing.own,
        "first_process_seconds": answering.own,
        "worker_seconds": answering.others,
        "files": len(files),
        "peak_bytes": _peak_bytes(),
    }


def _check_rows(files: list[Path], images: int) -> None:
    seen = 0
    for path in files:
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                if not row["image"].endswith(f"[{seen}]") or row["error"]:
                    raise RuntimeError(f"{path.name}: row {seen} is {row}")
                seen += 1
    if seen != images:
        raise RuntimeError(f"{images} images have {seen} rows")


def _peak_bytes() -> int | None:
    """The most memory that this process had; None where the system does not tell."""
    try:
        import resource
    except ImportError:
        return None
    # In KiB on Linux.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
