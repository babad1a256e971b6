"""Predict any number of images to a folder of files, which can be resumed and split into jobs.

_predict.json           what determines the rows: network, images, options
rows-00000-000012.csv   image files and arrays: file number 12 of source 0
rows-00001.csv          a tar archive: all of its rows
measures-....csv        with masks: measures of objects in the same images
masks/UNIT/...png       masks and related files, one folder per file of rows
"""

import hashlib
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from besselnet._progress import ProgressLog
from besselnet._rows import FORMATS, Write, check_parquet, row_file
from besselnet.atomic import made_folder, remove_leftovers, write_atomically, write_json
from besselnet.checks import check_choice, check_count, check_number
from besselnet.data import (
    ImageSource,
    check_sources,
    cut_segments,
    list_sources,
    open_sources,
)
from besselnet.locking import LOCK_NAME, hold, hold_folder, is_held
from besselnet.masks import measure_columns
from besselnet.train._answers import Answer, Answers, ImageAnswers, MaskAnswers, Piece
from besselnet.train._cluster import answer_on_cluster, evidence_of
from besselnet.train._in_flight import answer_pieces, default_workers, one_thread
from besselnet.train._predict import warn_of_size
from besselnet.train._run import Run
from besselnet.train._trust import find_limits
from besselnet.untrusted import read_json

# Readers of folders of Parquet files leave out names that begin so.
JOB_FILE = "_predict.json"
_FORMAT = 1
# Of what JOB_FILE has as a hash.
_OTHER = {"network": "another network", "images": "other images"}
ROWS_PER_FILE = 10_000
_MOST_ROWS = 1_000_000
# Answers that wait for being written.
_WAITING = 8
# Seconds that the jobs of a batch system wait for each other when all begin at once.
_PATIENCE = 60


@dataclass(frozen=True)
class ShardsReport:
    """Result of `predict_shards`.

    Attributes:
        images: number of images of this call, including `failures`.
        files: number of files of rows that were written; `skipped`: those that already existed.
    """

    images: int
    failures: int
    files: int
    skipped: int


@dataclass(frozen=True)
class _Unit:
    """What one file of rows is about: a part of a source, or all of an archive."""

    name: str
    images: int | None
    size: int


def predict_shards(
    run: Run,
    places: Sequence[Path | str],
    folder: Path | str,
    *,
    form: str = "csv",
    rows_per_file: int = ROWS_PER_FILE,
    shard: str | None = None,
    resume: bool = False,
    batch_size: int = 64,
    max_pixels: int | None = None,
    coverage: float | None = None,
    error_rate: float | None = None,
    features: bool = False,
    raw_csv: bool = False,
    workers: int | None = None,
    cluster: str | None = None,
    gpus: float = 0.0,
    progress: ProgressLog | None = None,
    **masks: Any,
) -> ShardsReport:
    """Predict any number of images, and write the rows to files in `folder`.

    A file appears when it is complete. Its content depends only on the network, the images and the options:
    it has the same bytes after interruptions, and on any number of machines.

    Args:
        run: the run.
        places: image files, folders, and all other sources of `besselnet.data.open_sources`.
        folder: output folder.
        form: "csv", "jsonl" or "parquet".
        rows_per_file: rows per file, for image files and arrays; an archive has its own file.
        shard: "3/16" processes the third of sixteen parts of the files; other calls process the others.
        resume: continue with the first missing file. Raises `ValueError` if anything has changed.
        batch_size: images per batch.
        max_pixels, coverage, error_rate, features: as in `predict_rows`.
        raw_csv: do not escape text that a spreadsheet would read as a formula.
        workers: processes on this machine, or workers of the cluster. Default: one per core.
        cluster: address of an existing Ray cluster to run on; `gpus` is the number of GPUs per worker.
        progress: updated after every batch.
        masks: for segmentation runs, the options of `besselnet.masks.predict_images`.
    """
    check_choice("form", form, FORMATS)
    if form == "parquet":
        check_parquet()
    check_count("batch_size", batch_size)
    check_count("rows_per_file", rows_per_file, most=_MOST_ROWS)
    if workers is not None:
        check_count("workers", workers, least=0 if cluster is None else 1)
    check_number("gpus", gpus, least=0)
    if gpus and cluster is None:
        raise ValueError(f"gpus={gpus}: must be 0 without a cluster")
    share, shares = read_shard(shard)
    folder = Path(folder)
    check_sources(places)
    options: dict[str, Any] = {"max_pixels": max_pixels}
    answers: Answers
    if run.task == "segment":
        if features:
            raise ValueError("features=True: must be False for a segmentation network")
        find_limits(run.trust, coverage, error_rate)
        warn_of_size(run)
        answers = MaskAnswers(run, folder, **options, **masks)
    else:
        if masks:
            raise ValueError(
                f"{next(iter(masks))}: must be unset, because {run.folder} predicts no masks"
            )
        options |= {"batch_size": batch_size, "features": features}
        options |= {"coverage": coverage, "error_rate": error_rate}
        answers = ImageAnswers(run, **options)
    sources = open_sources(places)
    listing = list_sources(sources)
    units = _plan(sources, rows_per_file)
    mine = [unit for number, unit in enumerate(units) if number % shares == share - 1]
    # As JSON has them, to be compared with those of an earlier call.
    rows = {"form": form, "rows_per_file": rows_per_file, "raw_csv": raw_csv}
    job = {"format": _FORMAT, "network": _digest(run), "images": listing.digest}
    job |= {**rows, **options, **masks}
    files = _RowFiles(folder, answers.columns, form, raw_csv, masks.get("instances") is not None)
    with _held(folder, share, shares, mine):
        _note_job(folder, job, _lock(folder, share, shares))
        wanted = [unit for unit in mine if not files.path(unit.name).exists()]
        if len(wanted) < len(mine) and not resume:
            raise ValueError(f"{folder} already has rows: resume, or choose another folder")
        pieces = _pieces(sources, wanted, rows_per_file, answers.batch_size)
        found: Iterator[Answer]
        if cluster is None:
            if workers is None:
                workers = default_workers(_known(wanted), answers.batch_size)
            found = answer_pieces(answers, pieces, workers)
        else:
            evidence = evidence_of(sources)
            found = answer_on_cluster(
                answers, pieces, cluster, evidence=evidence, workers=workers, gpus=gpus
            )
        tally = _Tally(wanted, progress)
        with one_thread():
            _write_beside(found, files, tally)
    return ShardsReport(tally.images, tally.failures, len(wanted), len(mine) - len(wanted))


def read_shard(shard: str | None) -> tuple[int, int]:
    """(3, 16) of "3/16"."""
    if shard is None:
        return 1, 1
    parts = re.fullmatch(r"(\d{1,6})/(\d{1,6})", shard)
    share, shares = (int(parts[1]), int(parts[2])) if parts else (0, 0)
    if not 1 <= share <= shares:
        raise ValueError(f"shard={shard!r}: must be of the form 3/16, from 1/16 to 16/16")
    return share, shares


def _plan(sources: Sequence[ImageSource], rows_per_file: int) -> list[_Unit]:
    units = []
    for number, source in enumerate(sources):
        if source.count is None:
            units.append(_Unit(f"{number:05d}", None, source.size))
            continue
        for part in range(ceil(source.count / rows_per_file)):
            images = min(rows_per_file, source.count - part * rows_per_file)
            units.append(_Unit(f"{number:05d}-{part:06d}", images, 0))
    if not units:
        raise ValueError("the sources have no images")
    return units


def _pieces(
    sources: Sequence[ImageSource], wanted: Iterable[_Unit], rows_per_file: int, batch_size: int
) -> Iterator[Piece]:
    """The images of the units that are wanted, in batches that end where a unit ends."""
    names = {unit.name for unit in wanted}
    for number, source in enumerate(sources):
        if source.count is None:
            if f"{number:05d}" in names:
                yield from _batches(source.segments(), f"{number:05d}", batch_size)
            continue
        seen = 0
        for part, segments in enumerate(cut_segments(source.segments(), rows_per_file)):
            seen += sum(map(len, segments))
            if f"{number:05d}-{part:06d}" in names:
                yield from _batches(segments, f"{number:05d}-{part:06d}", batch_size)
        if seen != source.count:
            raise ValueError(
                f"{source.name} had {source.count} images and now has {seen}: start again, and do not "
                "change the images meanwhile"
            )


def _batches(segments: Iterable[Any], unit: str, size: int) -> Iterator[Piece]:
    number = 0
    for some in cut_segments(segments, size):
        yield Piece(some, unit, number * size)
        number += 1
    if not number:
        # An archive without images: its file of rows tells that it has been read.
        yield Piece((), unit)


class _RowFiles:
    """The files of a folder, written one after the other."""

    def __init__(
        self, folder: Path, columns: dict[str, type], form: str, raw: bool, objects: bool
    ) -> None:
        self._folder, self._columns, self._form, self._raw = folder, columns, form, raw
        self._objects = measure_columns() if objects else None
        self._open, self._failed = ExitStack(), False
        self._unit: str | None = None
        self._write: Write
        self._write_objects: Write

    def path(self, unit: str, kind: str = "rows") -> Path:
        return self._folder / f"{kind}-{unit}.{self._form}"

    def add(self, answer: Answer) -> None:
        """Write an answer; the file of the unit before it, if it is of another one, is complete."""
        with self._unless_failed():
            self._add(answer)

    def finish(self) -> None:
        """Complete the file that is open."""
        with self._unless_failed():
            self._open.close()

    def abandon(self, error: BaseException) -> None:
        """Remove what is incomplete."""
        self._open.__exit__(type(error), error, None)

    @contextmanager
    def _unless_failed(self) -> Iterator[None]:
        """After a failure nothing is written or completed: a file would miss what failed."""
        if self._failed:
            raise RuntimeError("an earlier row was not written")
        self._failed = True
        yield
        self._failed = False

    def _add(self, answer: Answer) -> None:
        if answer.unit != self._unit:
            self._open.close()
            self._unit = answer.unit
            self._write = self._opened("rows", self._columns)
            if self._objects is not None:
                # Closed first: where the rows are, everything is.
                self._write_objects = self._opened("measures", self._objects)
        for name, content in answer.files.items():
            place = self._folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(place, content)
        self._write(answer.rows)
        if self._objects is not None:
            self._write_objects(answer.objects)

    def _opened(self, kind: str, columns: dict[str, type]) -> Write:
        place = self.path(self._unit or "", kind)
        return self._open.enter_context(row_file(place, columns, self._form, raw=self._raw))


def _write_beside(answers: Iterable[Answer], files: _RowFiles, tally: "_Tally") -> None:
    """Write the answers in a thread, while the next ones are computed."""
    waiting: deque[Future[None]] = deque()
    with ThreadPoolExecutor(1) as writer:
        try:
            for answer in answers:
                waiting.append(writer.submit(files.add, answer))
                if len(waiting) > _WAITING:
                    waiting.popleft().result()
                tally.add(answer)
            waiting.append(writer.submit(files.finish))
            while waiting:
                waiting.popleft().result()
        except BaseException as error:
            for future in waiting:
                future.cancel()
            writer.submit(files.abandon, error).exception()
            raise


class _Tally:
    """Counts, and how many images there may be: archives tell only when they have been read."""

    def __init__(self, units: Sequence[_Unit], progress: ProgressLog | None) -> None:
        self.images = self.failures = 0
        self._progress = progress
        self._known = sum(unit.images or 0 for unit in units)
        self._sizes = {unit.name: unit.size for unit in units if unit.images is None}
        self._counts: dict[str, int] = {}
        self._expect()

    def add(self, answer: Answer) -> None:
        count = len(answer.rows)
        self.images += count
        self.failures += sum(row["error"] is not None for row in answer.rows)
        if answer.unit in self._sizes:
            if answer.unit not in self._counts:
                self._expect()
            self._counts[answer.unit] = self._counts.get(answer.unit, 0) + count
        if self._progress is not None:
            self._progress.advance(count, self._progress.rate())

    def _expect(self) -> None:
        """Say how many images to expect, if the archives so far tell."""
        if self._progress is None:
            return
        read = sum(self._sizes[name] for name in self._counts)
        if self._sizes and not read:
            return
        density = sum(self._counts.values()) / read if read else 0
        self._progress.expect(self._known + round(density * sum(self._sizes.values())))


def _known(units: Iterable[_Unit]) -> int | None:
    counts = [unit.images for unit in units]
    return None if None in counts else sum(c for c in counts if c is not None)


@contextmanager
def _held(folder: Path, share: int, shares: int, units: Iterable[_Unit]) -> Iterator[None]:
    """The folder, for this process alone; of several shares, the share. Leftovers are removed."""
    if shares == 1:
        with hold_folder(folder):
            yield
        return
    lock = _lock(folder, share, shares)
    with made_folder(folder), hold(lock, f"shard {share}/{shares} of {folder}"):
        # Those of other shares may be of processes on other machines.
        names = {unit.name for unit in units}
        for path in folder.glob("*.partial"):
            if path.name.partition("-")[2].partition(".")[0] in names:
                remove_leftovers(folder, re.split(r"\.\d+-", path.name)[0])
        for path in folder.glob("*/*/"):
            if path.name in names:
                remove_leftovers(path)
        yield


def _lock(folder: Path, share: int, shares: int) -> Path:
    return folder / (LOCK_NAME if shares == 1 else f"{LOCK_NAME}-{share}-of-{shares}")


def _note_job(folder: Path, job: dict[str, Any], mine: Path) -> None:
    """Write what determines the rows; refuse a folder with rows of something else, now or soon."""
    path = folder / JOB_FILE
    with hold(folder / f"{LOCK_NAME}-job", folder, _PATIENCE):
        if path.exists():
            locks = (folder / LOCK_NAME, *folder.glob(f"{LOCK_NAME}-*-of-*"))
            others = any(is_held(lock) for lock in locks if lock != mine)
            if others or any(folder.glob("rows-*")):
                _check_job(folder, read_json(path), job)
        write_json(path, job)


def _check_job(folder: Path, earlier: dict[str, Any], job: dict[str, Any]) -> None:
    names = [name for name in sorted({*earlier, *job}) if earlier.get(name) != job.get(name)]
    if names:
        changed = [_OTHER.get(name) or f"{name}={earlier.get(name)!r}" for name in names]
        raise ValueError(
            f"{folder} has rows of a call with {', '.join(changed)}: choose another folder"
        )


def _digest(run: Run) -> str:
    """Of a network and its weights, the sizes that it takes, the names of answers, and the trust in it."""
    facts = (run.task, run.classes, run.image_size, run.in_channels, repr(run.model))
    digest = hashlib.sha256(repr(facts).encode())
    trust = {} if run.trust is None else run.trust.tensors()
    for name, tensor in (*sorted(run.model.state_dict().items()), *sorted(trust.items())):
        digest.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
