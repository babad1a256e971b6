"""Where a study stands: done, running, failed and missing cells of each column."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from besselnet.train import in_words
from besselnet_lab.study.cells import Cell
from besselnet_lab.study.estimate import Estimate, time_left
from besselnet_lab.study.store import Store

__all__ = ["ColumnStatus", "cell_state", "study_status"]


@dataclass
class ColumnStatus:
    """Cells of a column by state, and the work left in it.

    Attributes:
        seconds_left: of one process, for the cells that can be estimated.
        unknown: how many cannot, because no cell like them is done and none was measured.
    """

    column: str
    done: int = 0
    running: int = 0
    failed: int = 0
    missing: int = 0
    seconds_left: float = 0.0
    unknown: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def left(self) -> str:
        """The work left, in words."""
        known = [in_words(self.seconds_left)] if self.seconds_left else []
        return " + ".join([*known, *([f"{self.unknown} unknown"] if self.unknown else [])])


def cell_state(store: Store, cell: Cell) -> str:
    """ "done", "running", "failed" or "missing"."""
    if store.result_path(cell.key).exists():
        return "done"
    if store.is_running(cell.key):
        return "running"
    return "failed" if store.failure_path(cell.key).exists() else "missing"


def study_status(store: Store, cells: Sequence[Cell], threads: int) -> list[ColumnStatus]:
    """One entry for each column, in the order of the recipe, then one for all of them."""
    estimate = Estimate()
    estimate.learn(cells, [store.result(cell.key) for cell in cells])
    estimate.recall(cells, threads)
    columns: dict[str, ColumnStatus] = {}
    total = ColumnStatus("all")
    for cell in cells:
        name = cell.key.column
        column = columns.setdefault(name, ColumnStatus(name))
        state = cell_state(store, cell)
        seconds, unknown = (0.0, 0) if state == "done" else time_left(estimate, [cell])
        for entry in (column, total):
            setattr(entry, state, getattr(entry, state) + 1)
            entry.seconds_left += seconds
            entry.unknown += unknown
        if state == "failed":
            failure = store.failure(cell.key) or {}
            column.failures.append(f"{cell.key}: {failure.get('error')}")
    return [*columns.values(), total]
