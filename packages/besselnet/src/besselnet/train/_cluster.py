"""Predict on a Ray cluster: a network in each worker, results in order."""

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from besselnet.cluster import connected
from besselnet.data import ImageSource, hold_contents
from besselnet.train._answers import Answer, Answers, Piece

# Pieces that each worker has ahead.
_AHEAD = 3
# How often a worker may be lost, and a piece be asked for again.
_LOSSES = 100
_TRIES = 5
# Sources of which the first file is looked for by the workers.
_EVIDENCE = 16

# Path, bytes and time of files that a machine must have to see the disks of another.
Evidence = Sequence[tuple[str, int, int]]


def answer_on_cluster(
    answers: Answers,
    pieces: Iterable[Piece],
    address: str,
    *,
    evidence: Evidence = (),
    workers: int | None = None,
    gpus: float = 0.0,
) -> Iterator[Answer]:
    """Yield the answer to each piece, in order, from workers of an existing Ray cluster.

    Every worker has the network, and computes with one thread or with its share of a GPU. A worker that sees
    the same files (`evidence`) reads images itself; to others their bytes are sent. The pieces of a worker
    that is lost go to another one.

    Args:
        address: of the cluster, as `ray.init` takes it: "auto", "HOST:6379", "ray://HOST:10001".
        workers: how many; as many as the cluster has idle CPUs (or GPUs, divided by `gpus`) unless given.
        gpus: of each worker.
    """
    with connected(address, "besselnet[cluster]") as ray:
        having = ray.available_resources()
        room = having.get("GPU", 0) / gpus if gpus else having.get("CPU", 1)
        options = {"num_cpus": 1, "num_gpus": gpus, "max_restarts": _LOSSES}
        worker = ray.remote(**options, max_task_retries=_TRIES)(_Worker)
        # In a list it stays a reference, which a worker that starts again follows again.
        shipped, here = [ray.put(answers)], os.getcwd()
        crew = [worker.remote(shipped, here, evidence) for _ in range(workers or max(1, int(room)))]
        waiting: deque[tuple[int, Piece, Any]] = deque()
        blind: set[int] = set()

        def ask(number: int, piece: Piece) -> Any:
            if number in blind:
                piece = piece._replace(segments=hold_contents(piece.segments))
            return crew[number].answer.remote(piece)

        def next_answer() -> Answer:
            number, piece, reference = waiting.popleft()
            answer: Answer | None = ray.get(reference)
            if answer is None:
                blind.add(number)
                answer = ray.get(ask(number, piece))
            assert answer is not None  # it has been sent all that it does not see
            return answer

        try:
            for number, piece in zip(cycle(range(len(crew))), pieces):
                waiting.append((number, piece, ask(number, piece)))
                if len(waiting) == _AHEAD * len(crew):
                    yield next_answer()
            while waiting:
                yield next_answer()
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, ValueError | OSError):
                raise error.cause from None
            raise
        except ray.exceptions.RayError as error:
            reason = " ".join(str(error).split())
            raise ValueError(f"the cluster at {address!r} lost its workers: {reason}") from None


def evidence_of(sources: Sequence[ImageSource]) -> list[tuple[str, int, int]]:
    """The first file of this machine in each of some sources."""
    found = []
    for source in sources[:_EVIDENCE]:
        segment = next(source.segments(), None)
        path = None if segment is None else segment.here
        if path is not None and os.path.exists(path):
            status = os.stat(path)
            found.append((os.path.abspath(path), status.st_size, status.st_mtime_ns))
    return found


class _Worker:
    """A process somewhere in the cluster."""

    def __init__(self, answers: list[Any], place: str, evidence: Evidence) -> None:
        import ray

        torch.set_num_threads(1)
        self._answers: Answers = ray.get(answers[0])
        self._answers.network.to("cuda" if torch.cuda.is_available() else "cpu")
        self._sees_files = os.path.isdir(place) and all(map(_is_there, evidence))
        if self._sees_files:
            # Paths may be relative to where the command was called.
            os.chdir(place)

    def answer(self, piece: Piece) -> Answer | None:
        """The answer; None if the images must be sent with the piece."""
        if not self._sees_files and any(segment.here is not None for segment in piece.segments):
            return None
        read = self._answers.read(piece)
        with TemporaryDirectory() as folder:
            return self._answers.answer(read, Path(folder))


def _is_there(file: tuple[str, int, int]) -> bool:
    path, size, changed = file
    try:
        status = os.stat(path)
    except OSError:
        return False
    return (status.st_size, status.st_mtime_ns) == (size, changed)
