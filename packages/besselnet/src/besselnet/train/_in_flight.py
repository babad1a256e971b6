"""Predict in parallel on one machine: worker processes read and, on CPUs, predict ahead."""

import ctypes
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import ceil
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from besselnet.checks import check_count
from besselnet.train._answers import Answer, Answers, Piece
from besselnet.train._evaluate import device_of

# Pieces that each worker has ahead.
_AHEAD = 4
# Below so many pieces, starting workers takes longer than they save.
_WORTH_WORKERS = 8
_MOST_WORKERS = 64
# Of Linux's prctl.
_PR_SET_PDEATHSIG = 1


def default_workers(images: int | None, batch_size: int = 64) -> int:
    """Return the default number of worker processes for a number of images; None if it is unknown."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:
        cores = os.cpu_count() or 1
    check_count("batch_size", batch_size)
    batches = _MOST_WORKERS if images is None else ceil(images / batch_size)
    few = batches < _WORTH_WORKERS
    return 0 if few or cores == 1 else min(cores, batches, _MOST_WORKERS)


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread, as worker processes do: several may change the last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def answer_pieces(answers: Answers, pieces: Iterable[Piece], workers: int = 0) -> Iterator[Answer]:
    """Yield the answer to each piece, in order.

    With `workers`, that many processes read the pieces ahead. A network on the CPU is in each of them, with
    one thread: small networks gain more from images at the same time than from threads. A network on a GPU
    stays in this process.
    """
    if not workers:
        for piece in pieces:
            yield answers.answer(answers.read(piece))
        return
    in_workers = device_of(answers.network).type == "cpu"
    loader = DataLoader(
        _Work(answers, in_workers),
        batch_size=None,
        sampler=pieces,
        num_workers=workers,
        prefetch_factor=_AHEAD if answers.batch_size > 1 else 1,
        collate_fn=_as_it_is,
        worker_init_fn=_end_with_parent,
    )
    for done in _without_loss(iter(loader)):
        if isinstance(done, Exception):
            raise done
        yield done if in_workers else answers.answer(done)


class _Work(Dataset[Any]):
    """What a worker does with a piece, which takes the place of an index."""

    def __init__(self, answers: Answers, in_workers: bool) -> None:
        self.answers, self.in_workers = answers, in_workers

    def __getitem__(self, piece: Any) -> Any:
        try:
            read = self.answers.read(piece)
            return self.answers.answer(read) if self.in_workers else read
        except (ValueError, OSError, MemoryError) as error:
            # As it is: the loader would make a traceback of it.
            return error


def _end_with_parent(number: int) -> None:
    """End at once when the parent is killed: a worker shares its locks. Elsewhere than on Linux, soon."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _as_it_is(done: Any) -> Any:
    # Arrays stay arrays, which go through a pipe: tensors would need shared memory, of which containers
    # have little.
    return done


def _without_loss(results: Iterator[Any]) -> Iterator[Any]:
    """The results; a worker that is gone is one line."""
    while True:
        try:
            yield next(results)
        except StopIteration:
            return
        except RuntimeError as error:
            if "DataLoader worker" not in str(error):
                raise
            raise ValueError(
                "a worker process was killed, perhaps because of too little memory: use fewer workers "
                "(command line: --workers)"
            ) from error
