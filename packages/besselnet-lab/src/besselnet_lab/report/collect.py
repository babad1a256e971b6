"""Results and published numbers side by side: the entries of the tables, ranked and compared."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from besselnet.untrusted import printable_text
from besselnet_lab.paper import paper_models, published, training_images, varied_model

__all__ = [
    "ColumnKey",
    "Comparison",
    "Entry",
    "RowKey",
    "Score",
    "Table",
    "by_place",
    "collect",
    "finishes",
    "readings",
    "undisturbed_seconds",
]

MISSING = "–"
# How far apart, in standard deviations, two numbers may lie and still count as the same.
DEVIATIONS = 2.0
ROTATIONS = {
    "black_corners": "black corners",
    "reflected_borders": "reflected borders",
    "quarter_turns": "quarter turns",
}
_MARKS = {"above": "▲", "below": "▼", "same": "=", "unclear": "~", "unknown": "?"}


class ColumnKey(NamedTuple):
    """A column of a table. `judge` is "test" or "val": which images decided."""

    data_set: str
    augmentation: str
    regime: str
    protocol: str = "paper"
    judge: str = "test"

    @property
    def title(self) -> str:
        extra = [] if self.protocol == "paper" else [self.protocol]
        extra += [] if self.judge == "test" else ["validation"]
        return f"{self.augmentation} {self.regime}" + (f" ({', '.join(extra)})" if extra else "")

    @property
    def full_title(self) -> str:
        return f"{self.data_set} {self.title}"

    @property
    def is_paper(self) -> bool:
        """Whether the paper has this column."""
        known = {(n.data_set, n.augmentation, n.regime) for n in published()}
        return self[:3] in known and self[3:] == ("paper", "test")


class RowKey(NamedTuple):
    """A row of a table."""

    method: str
    group: str

    @property
    def title(self) -> str:
        return f"{self.method} {self.group}".strip()

    @property
    def family(self) -> str:
        """The first word: B-CNN, E(2)-CNN, HNet, ..."""
        return self.method.partition(" ")[0]


class Score(NamedTuple):
    """Accuracy in per cent: mean and sample standard deviation over `n` runs; no deviation for one."""

    mean: float
    std: float | None
    n: int

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + ("" if self.std is None else f" ± {self.std:.2f}")


class Comparison(NamedTuple):
    """A result here minus the paper's, in points, judged by the standard deviations that are known.

    `verdict`: "above" or "below" if beyond `DEVIATIONS` of both deviations, "same" if within both,
    "unclear" if beyond one of them only, "unknown" if no deviation is known.
    """

    difference: float
    verdict: str

    @property
    def mark(self) -> str:
        return _MARKS[self.verdict]


@dataclass
class Entry:
    """A cell of a table.

    Attributes:
        ours, paper: the score here and that of the paper, None where missing.
        seconds: of a training, see `undisturbed_seconds`.
        our_rank, paper_rank: 1 for the best of the column; equal numbers share a rank. A method that
            was run alone has none.
        curves: learning curve of each run.
        models: names of the models that were run.
        settings: of the images, the model and the training, of the first run.
        options: of the model, those that the recipe names.
        rotation: share of rotated images with the answer of the image as it is, in per cent: means over
            the runs, by the names in `ROTATIONS`; empty where it was not measured.
    """

    column: ColumnKey
    row: RowKey
    paper: Score | None = None
    ours: Score | None = None
    our_rank: int | None = None
    paper_rank: int | None = None
    seconds: float | None = None
    multiply_adds: int | None = None
    parameters: int | None = None
    train_images: int | None = None
    models: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    curves: list[Mapping[str, list[float]]] = field(default_factory=list)
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    rotation: Mapping[str, float] = field(default_factory=dict)

    @property
    def comparison(self) -> Comparison | None:
        if self.ours is None or self.paper is None:
            return None
        return compare(self.ours, self.paper)


@dataclass
class Table:
    """A table of the paper, or of the columns that the paper does not have."""

    name: str
    columns: list[ColumnKey]
    rows: list[RowKey]
    entries: dict[tuple[RowKey, ColumnKey], Entry]

    @property
    def is_paper(self) -> bool:
        """Whether the paper has numbers in it."""
        return any(entry.paper is not None for entry in self.entries.values())

    def train_images(self, key: ColumnKey) -> int | None:
        """How many images train in a column; of those run, if some were, else as in the paper."""
        counts = [e.train_images for e in self.column(key) if e.train_images is not None]
        return counts[0] if counts else training_images().get((key.data_set, key.regime))

    def growing(self) -> dict[ColumnKey, list[ColumnKey]]:
        """`by_size`, only where there are several columns."""
        return {key: columns for key, columns in self.by_size().items() if len(columns) > 1}

    def by_size(self) -> dict[ColumnKey, list[ColumnKey]]:
        """Columns that differ in the number of training images alone, from few to many, by what they share.

        Only those that were judged on test images.
        """
        found: dict[ColumnKey, list[ColumnKey]] = {}
        for column in self.columns:
            if column.judge == "test":
                found.setdefault(column._replace(regime=""), []).append(column)
        return {
            key: sorted(columns, key=lambda column: self.train_images(column) or 0)
            for key, columns in found.items()
        }

    def notes(self) -> list[tuple[ColumnKey, str]]:
        """What must be known about its columns."""
        return [(c, note) for c in self.columns for e in self.column(c) for note in e.notes]

    def column(self, key: ColumnKey) -> list[Entry]:
        """Its entries, from the first row to the last."""
        return [self.entries[row, key] for row in self.rows if (row, key) in self.entries]


def compare(ours: Score, theirs: Score) -> Comparison:
    """See `Comparison`."""
    difference = ours.mean - theirs.mean
    known = [std for std in (ours.std, theirs.std) if std is not None]
    beyond = [abs(difference) > DEVIATIONS * std for std in known]
    if not known:
        verdict = "unknown"
    elif all(beyond):
        verdict = "above" if difference > 0 else "below"
    else:
        verdict = "unclear" if any(beyond) else "same"
    return Comparison(difference, verdict)


def collect(results: Iterable[Mapping[str, Any]]) -> list[Table]:
    """The tables of the paper, and one more for each data set with columns that it does not have.

    Methods that the paper does not have follow its rows. Where there are results and none belongs in a
    table of the paper, those tables are left out.
    """
    places = by_place(results)
    beside_paper = not places or any(column.is_paper for _, column in places)
    entries: dict[tuple[RowKey, ColumnKey], Entry] = {}
    table_of: dict[ColumnKey, str] = {}
    rows: list[RowKey] = [RowKey(*row) for row in _paper_rows()]
    titles = {
        table: ", ".join(dict.fromkeys(n.data_set for n in published() if n.table == table))
        for table in dict.fromkeys(number.table for number in published())
    }
    for number in published() if beside_paper else ():
        column = ColumnKey(number.data_set, number.augmentation, number.regime)
        row = RowKey(number.method, number.group)
        table_of.setdefault(column, titles[number.table])
        score = Score(number.accuracy, number.std, 3)
        entries[row, column] = Entry(column, row, paper=score)
    paper_rows = set(rows)
    for (row, column), runs in places.items():
        if row not in rows:
            rows.append(row)
        table_of.setdefault(column, f"{column.data_set}, beyond the paper")
        entry = entries.setdefault((row, column), Entry(column, row))
        _fill(entry, runs)
    tables = []
    for name in dict.fromkeys(table_of.values()):
        columns = [column for column, table in table_of.items() if table == name]
        own = {row for row, column in entries if column in columns}
        beside = any(column.is_paper for column in columns)
        there = [row for row in rows if row in own or (row in paper_rows and beside)]
        chosen = {
            (row, column): entries[row, column]
            for column in columns
            for row in there
            if (row, column) in entries
        }
        tables.append(Table(name, columns, there, chosen))
    for table in tables:
        for column in table.columns:
            _rank(table.column(column))
    return tables


def _paper_rows() -> list[tuple[str, str]]:
    """The rows of the paper in its order."""
    return list(dict.fromkeys((number.method, number.group) for number in published()))


def by_place(
    results: Iterable[Mapping[str, Any]],
) -> dict[tuple[RowKey, ColumnKey], list[Mapping[str, Any]]]:
    """The results of each row and column, by their seeds; one of the same seed twice is refused."""
    found: dict[tuple[RowKey, ColumnKey], dict[int, Mapping[str, Any]]] = {}
    for result in results:
        cell = result["cell"]
        names = (cell[key] for key in ("data_set", "augmentation", "regime", "protocol"))
        column = ColumnKey(*map(printable_text, (*names, result["judged"]["part"])))
        row = RowKey(printable_text(cell["method"]), printable_text(cell["group"]))
        runs = found.setdefault((row, column), {})
        if cell["seed"] in runs:
            raise ValueError(
                f"two results for {column.full_title}, {row.title}, seed {cell['seed']}: "
                "report their folders one at a time"
            )
        runs[cell["seed"]] = result
    return {place: [runs[seed] for seed in sorted(runs)] for place, runs in found.items()}


def _fill(entry: Entry, runs: Sequence[Mapping[str, Any]]) -> None:
    accuracies = [100 * run["accuracy"] for run in runs]
    std = statistics.stdev(accuracies) if len(runs) > 1 else None
    entry.ours = Score(statistics.fmean(accuracies), std, len(runs))
    entry.seconds = min(undisturbed_seconds(run["curve"]["seconds"]) for run in runs)
    entry.multiply_adds = runs[0]["model"]["multiply_adds"]
    entry.parameters = runs[0]["model"]["parameters"]
    entry.train_images = runs[0]["train_images"]
    entry.models = tuple(dict.fromkeys(run["model"]["name"] for run in runs))
    entry.notes = tuple(dict.fromkeys(note for run in runs for note in run["notes"]))
    entry.curves = [run["curve"] for run in runs]
    entry.settings = _settings(runs[0])
    entry.options = runs[0].get("config", {}).get("model", {}).get("options", {})
    measured = [run["rotation"] for run in runs if "rotation" in run]
    if measured:
        entry.rotation = {
            name: 100 * statistics.fmean(shares[name] for shares in measured) for name in ROTATIONS
        }


def _settings(run: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of images, model and training; a variant of a model has the name of that model."""
    config, recommended = run.get("config", {}), run.get("recommendation", {})
    found = {
        part: {**config.get(part, {}), **recommended.get(part, {})}
        for part in ("images", "model", "train")
    }
    if "name" in found["model"]:
        found["model"]["name"] = varied_model(found["model"]["name"])
    return found


def undisturbed_seconds(epochs: Sequence[float]) -> float:
    """Seconds of a training on a machine that does nothing else, from those of its epochs.

    A quarter of the epochs were faster than the one that counts for all: other work slows many of
    them down, and one that was cut off and continued may seem short.
    """
    return len(epochs) * sorted(epochs)[len(epochs) // 4]


def _rank(entries: Sequence[Entry]) -> None:
    def ranks(score_of: Callable[[Entry], Score | None]) -> dict[int, int]:
        # Rounded as printed: numbers that read alike rank alike.
        means = {i: round(score.mean, 2) for i, e in enumerate(entries) if (score := score_of(e))}
        if len(means) < 2:
            return {}
        return {i: 1 + sum(other > mean for other in means.values()) for i, mean in means.items()}

    for i, rank in ranks(lambda entry: entry.ours).items():
        entries[i].our_rank = rank
    for i, rank in ranks(lambda entry: entry.paper).items():
        entries[i].paper_rank = rank


def finishes(tables: Iterable[Table], whose: str) -> dict[RowKey, tuple[int, int, int]]:
    """(first places, places among the first three, columns) of each row, `whose` = "paper" or "our".

    Columns with one method only, and those that were judged on validation images, do not count.
    """
    counts: dict[RowKey, tuple[int, int, int]] = {}
    for table in tables:
        for entry in table.entries.values():
            rank = entry.paper_rank if whose == "paper" else entry.our_rank
            if rank is not None and entry.column.judge == "test":
                first, three, columns = counts.get(entry.row, (0, 0, 0))
                counts[entry.row] = (first + (rank == 1), three + (rank <= 3), columns + 1)
    return counts


def readings(entries: Iterable[Entry]) -> list[tuple[Entry, RowKey, RowKey]]:
    """(entry, the row of the paper that its model is by name, and by the published code).

    Only for models that have two readings, run as a row of the paper.
    """
    by_name = {models.by_name: RowKey(*row) for row, models in paper_models().items()}
    by_code = {
        models.by_code: RowKey(*row) for row, models in paper_models().items() if models.by_code
    }
    found = []
    for entry in entries:
        if entry.paper is None:
            continue
        for model in entry.models:
            if model in by_code:
                name_row = by_name.get(model, RowKey("none", ""))
                found.append((entry, name_row, by_code[model]))
    return found
