"""What is left to do, what became of it, and what the user sees of that; for every kind of runner."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TextIO

from besselnet.train import ProgressLog, in_words
from besselnet_lab.study.cells import Cell
from besselnet_lab.study.store import Store

__all__ = ["Summary", "Tally", "unfinished"]


@dataclass
class Summary:
    """What became of the cells of one call."""

    done_before: int = 0
    done: int = 0
    failed: list[Cell] = field(default_factory=list)
    elsewhere: int = 0

    def in_words(self) -> str:
        parts = [f"{self.done} cells finished now, {self.done_before} earlier"]
        if self.elsewhere:
            parts.append(f"{self.elsewhere} running in other processes")
        if self.failed:
            parts.append(f"{len(self.failed)} failed")
        return ", ".join(parts)


def unfinished(store: Store, cells: Sequence[Cell]) -> list[Cell]:
    """The cells without a result; every result there is must have the settings of its cell."""
    for cell in cells:
        store.check_settings(cell)
    return [cell for cell in cells if not store.result_path(cell.key).exists()]


class Tally:
    """Context: hands out the cells that have no result, and keeps count.

    Args:
        retries: how often a cell that fails is handed out again.
        stream: where to show the progress; standard output by default.
    """

    def __init__(
        self, store: Store, cells: Sequence[Cell], *, retries: int, stream: TextIO | None = None
    ) -> None:
        store.prepare()
        self._store, self._retries = store, retries
        self._waiting = deque(unfinished(store, cells))
        self._tries: dict[str, int] = {}
        self._elsewhere: list[Cell] = []
        self.summary = Summary(done_before=len(cells) - len(self._waiting))
        for cell in cells:
            if store.run_folder(cell.key).exists() and store.result_path(cell.key).exists():
                store.clean(cell.key)  # what a kill between writing and cleaning left over
        self._progress = ProgressLog(
            len(cells), unit="cells", done=self.summary.done_before, stream=stream
        )

    def __enter__(self) -> "Tally":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.__exit__(kind, error, trace)
        paths = (self._store.result_path(cell.key) for cell in self._elsewhere)
        self.summary.elsewhere = sum(not path.exists() for path in paths)

    def next(self) -> Cell | None:
        """A cell to run, or None if there is none just now."""
        if not self._waiting:
            # Cells that another runner held, and holds no more without having finished them.
            dropped = [
                cell
                for cell in self._elsewhere
                if not self._store.result_path(cell.key).exists()
                and not self._store.is_running(cell.key)
            ]
            self._elsewhere = [cell for cell in self._elsewhere if cell not in dropped]
            self._waiting.extend(dropped)
        return self._waiting.popleft() if self._waiting else None

    def done(self, cell: Cell, accuracy: float, seconds: float) -> None:
        self.summary.done += 1
        self._progress.line(f"done    {cell.key}: {100 * accuracy:.2f}%  {in_words(seconds)}")
        self._progress.advance()

    def busy(self, cell: Cell) -> None:
        """Another runner has the cell."""
        self._elsewhere.append(cell)

    def failed(self, cell: Cell, error: str) -> None:
        """Its failure has been recorded."""
        identity = cell.key.identity
        self._tries[identity] = self._tries.get(identity, 0) + 1
        self._progress.line(f"failed  {cell.key}: {error}")
        if self._tries[identity] <= self._retries:
            self._waiting.append(cell)
        else:
            self.summary.failed.append(cell)
            self._progress.advance()
