"""Read and predict one piece of a set of images, in any process and on any machine."""

from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from besselnet.data import Segment, as_floats, read_contents, read_segments, reading_options
from besselnet.masks import mask_columns, predict_images, probabilities_of
from besselnet.nn import fold_batch_norm
from besselnet.train._evaluate import device_of
from besselnet.train._run import Run
from besselnet.train._trust import TRUST_COLUMNS, find_limits, trust_rows

Row = dict[str, Any]


class Piece(NamedTuple):
    """A few images that are read and answered together.

    Attributes:
        segments: references to them.
        unit: name of the file that their rows belong to.
        first: how many images of the unit come before.
    """

    segments: tuple[Segment, ...]
    unit: str = ""
    first: int = 0


class Answer(NamedTuple):
    """Of a piece: its rows, in order, measures of objects, and files by their place in the folder."""

    unit: str
    rows: list[Row]
    objects: list[Row]
    files: dict[str, bytes]


class Answers(Protocol):
    """A network with all that it needs for pieces of images.

    Attributes:
        columns: of the rows, with the type of each.
        network: moved to where it is to compute.
        batch_size: images of a piece.
    """

    columns: dict[str, type]
    network: nn.Module
    batch_size: int

    def read(self, piece: Piece) -> Any:
        """The images, on the CPU."""

    def answer(self, read: Any, folder: Path | None = None) -> Answer:
        """The answer to what `read` gave. Files go to `folder`; unset: where they belong."""


class ImageAnswers:
    """Rows for whole images: classes, values or labels, and with `features` what the last layer takes.

    Where the run has a `Run.trust`, classes come with how sure they are; `coverage` and `error_rate` as in
    `predict`.
    """

    def __init__(
        self,
        run: Run,
        *,
        batch_size: int = 64,
        max_pixels: int | None = None,
        features: bool = False,
        coverage: float | None = None,
        error_rate: float | None = None,
    ) -> None:
        self.learned, self.batch_size = run.learned, batch_size
        self._trust, self._classes = run.trust, run.classes
        self._limits = find_limits(run.trust, coverage, error_rate)
        self._how: dict[str, Any] = {"image_size": run.image_size, "channels": run.in_channels}
        self._how |= how_read(run, max_pixels)
        # The same answers with fewer steps.
        self.network = fold_batch_norm(run.model)
        self._features = _FeatureTap(self.network, feature_columns(run)) if features else None
        self.columns: dict[str, type] = {"image": str}
        if run.trust is not None:
            self.columns |= TRUST_COLUMNS
        else:
            example = self.learned.rows(torch.zeros(1, len(run.classes)))[0]
            self.columns |= {name: type(example[name]) for name in self.learned.columns}
        if self._features is not None:
            self.columns |= dict.fromkeys(self._features.columns, float)
        self.columns["error"] = str

    def read(self, piece: Piece) -> tuple[str, list[str], np.ndarray | None, list[str | None]]:
        """Unit, names, the images that could be read, (M, C, S, S), and why others could not."""
        names, found = read_segments(piece.segments, **self._how)
        images = [image for image in found if isinstance(image, Tensor)]
        pixels = None
        if images:
            if any(image.dtype != torch.uint8 for image in images):
                images = [as_floats(image) for image in images]
            pixels = torch.stack(images).numpy()
        errors = [_reason(image) if isinstance(image, Exception) else None for image in found]
        return piece.unit, names, pixels, errors

    def answer(self, read: Any, folder: Path | None = None) -> Answer:
        unit, names, pixels, errors = read
        answers = iter(() if pixels is None else self._rows(torch.from_numpy(pixels)))
        nothing, rows = dict.fromkeys(self.columns), []
        for name, error in zip(names, errors):
            row: Mapping[str, Any] = {}
            if error is None:
                answer = next(answers)
                if all(isfinite(v) for v in answer.values() if isinstance(v, float)):
                    row = answer
                else:
                    error = "the outputs of the network are infinite or NaN"
            rows.append({**nothing, "image": name, **row, "error": error})
        return Answer(unit, rows, [], {})

    def _rows(self, pixels: Tensor) -> list[Row]:
        """`Run.columns` for each image, and its features."""
        images = as_floats(pixels)
        images = images.to(device_of(self.network))
        if self._trust is not None:
            judged = self._trust.judge(self.network, images, self._limits)
            rows = list(trust_rows(judged, self._classes))
        else:
            with torch.no_grad():
                rows = self.learned.rows(self.network(images).cpu())
        if self._features is None:
            return rows
        return [{**row, **features} for row, features in zip(rows, self._features.rows())]


def feature_columns(run: Run) -> tuple[str, ...]:
    """Return the columns of `features`; raise `ValueError` if the network does not define its last layer."""
    count = getattr(run.model, "num_features", None)
    if count is None or not hasattr(run.model, "get_classifier"):
        raise ValueError(
            f"{run.folder}: its network does not define its last layer (get_classifier)"
        )
    return tuple(f"feature_{number}" for number in range(count))


class _FeatureTap:
    """What the last layer of a network took in its last forward pass, (N, num_features)."""

    def __init__(self, network: nn.Module, columns: tuple[str, ...]) -> None:
        self.columns = columns
        last: nn.Module = network.get_classifier()  # type: ignore[operator]
        last.register_forward_pre_hook(self._take)

    def _take(self, layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._taken = inputs[0].float().cpu()

    def rows(self) -> list[Row]:
        return [dict(zip(self.columns, values)) for values in self._taken.tolist()]


class MaskAnswers:
    """A row and files for each image: its mask, and what `options` ask for (`predict_images`).

    The files of image number i of a unit are in `folder`/masks/UNIT/i-NAME.png, say.
    """

    batch_size = 1

    def __init__(
        self, run: Run, folder: Path, *, max_pixels: int | None = None, **options: Any
    ) -> None:
        self.network = fold_batch_norm(run.model)
        self._folder, self._classes, self._options = folder, run.classes, options
        self._how = {"channels": run.in_channels, **how_read(run, max_pixels)}
        self._how.pop("resize", None)
        objects = options.get("instances") is not None
        kinds = {"image": str, "mask": str, "objects": int, "error": str}
        columns = mask_columns(run.classes, objects=objects)
        self.columns = {name: kinds.get(name, float) for name in columns}

    def read(self, piece: Piece) -> tuple[Piece, list[tuple[str, np.ndarray | Exception]]]:
        """The piece without its segments, and its images."""
        return piece._replace(segments=()), list(read_contents(piece.segments, **self._how))

    def answer(self, read: Any, folder: Path | None = None) -> Answer:
        piece, images = read
        place = folder or self._folder
        named = (
            (name, Path(piece.unit) / f"{number:06d}-{_stem(name)}", pixels)
            for number, (name, pixels) in enumerate(images, start=piece.first)
        )
        rows, objects = [], []
        for row, found in predict_images(
            probabilities_of(self.network),
            named,
            place,
            classes=self._classes,
            channels=self._how["channels"],
            bits=self._how.get("bits"),
            **self._options,
        ):
            if row["mask"] is not None:
                row["mask"] = str(self._folder / Path(row["mask"]).relative_to(place))
            rows.append(row)
            objects += found
        files = {} if folder is None else {str(p.relative_to(folder)): p for p in _files(folder)}
        return Answer(
            piece.unit, rows, objects, {name: p.read_bytes() for name, p in files.items()}
        )


def how_read(run: Run, max_pixels: int | None) -> dict[str, Any]:
    """How files are read: as in the training."""
    options = reading_options(run.config.data.options)
    return {**options, "max_pixels": max_pixels or options.get("max_pixels")}


def _stem(name: str) -> str:
    """The name of an image for files of its own: photos/a.png -> a, cells.h5#images[3] -> images[3]."""
    return Path(name.replace("#", "/").replace("\\", "/")).stem


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
