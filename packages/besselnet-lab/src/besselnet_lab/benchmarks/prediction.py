"""A folder of JPEG files from disk to rows: what `besselnet predict` does, and what limits it."""

import atexit
import shutil
import tempfile
from collections.abc import Callable
from functools import lru_cache
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from besselnet.data import cut_segments, iter_images, open_sources, read_segments
from besselnet.nn import fold_batch_norm
from besselnet.train import Classify, Run, RunConfig, predict_rows
from besselnet_lab.benchmarks.entries import Settings

# Files in a folder.
_FOLDER = 1000


def prediction_of_files(module: nn.Module, settings: Settings, seed: int) -> Callable[[], object]:
    """A function that goes through all files once.

    `reader` is "workers": `predict_rows` with so many `workers`; "one by one": one file is read and decoded
    after the other, and the network waits; "alone": files are read and decoded, and no network answers.
    """
    folder = _jpeg_files(settings["files"], settings["side"], seed)
    classes = tuple(map(str, range(settings["num_classes"])))
    shape = settings["in_channels"], settings["size"]
    run = Run(Path("run"), RunConfig(), module.eval(), *shape, classes, Classify(classes))
    how = {"channels": shape[0], "image_size": shape[1]}
    batch = settings["batch"]

    def by_workers() -> None:
        for _ in predict_rows(run, [folder], batch_size=batch, workers=settings.get("workers", 0)):
            pass

    def one_by_one() -> None:
        network, found = fold_batch_norm(module), iter_images([folder], **how)
        while some := list(islice(found, batch)):
            images = [image.float() / 255 for _, image in some if isinstance(image, Tensor)]
            with torch.no_grad():
                run.learned.rows(network(torch.stack(images)))

    def alone() -> None:
        for source in open_sources([folder]):
            for segments in cut_segments(source.segments(), batch):
                read_segments(segments, **how)

    return {"workers": by_workers, "one by one": one_by_one, "alone": alone}[settings["reader"]]


@lru_cache(maxsize=4)
def _jpeg_files(count: int, side: int, seed: int) -> Path:
    """A folder of so many colour photographs of waves and noise, until the process ends."""
    place = Path(tempfile.mkdtemp(prefix="besselnet-bench-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    chance = np.random.default_rng(seed)
    rows, columns = np.mgrid[:side, :side]
    for number in range(count):
        folder = place / f"{number // _FOLDER:05d}"
        folder.mkdir(exist_ok=True)
        slopes = chance.uniform(-0.4, 0.4, (3, 2, 1, 1))
        waves = 128 + 80 * np.sin(slopes[:, 0] * rows + slopes[:, 1] * columns)
        pixels = (waves + chance.normal(0, 10, waves.shape)).clip(0, 255).astype(np.uint8)
        photo = Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0)))
        photo.save(folder / f"{number:07d}.jpg", quality=90)
    return place
