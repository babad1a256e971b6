"""The paper's columns at a glance: besselnet's best network, the paper's best B-CNN and its best method."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from matplotlib.figure import Figure

from besselnet.drawing import line_style, new_figure, plain_text
from besselnet_lab.paper import training_images
from besselnet_lab.report.collect import ColumnKey, Entry, Table

__all__ = ["Places", "Standing", "draw_columns", "family_places", "standings", "standings_in_words"]

_OWN = "besselnet"


class Standing(NamedTuple):
    """A column of the paper: its best B-CNN and method, and the best network of besselnet, if any."""

    column: ColumnKey
    best_bcnn: Entry
    best: Entry
    own: Entry | None

    @property
    def is_ahead(self) -> bool:
        """Whether besselnet's network is above every method of the paper."""
        return self.own is not None and _mean(self.own.ours) > _mean(self.best.paper)


class Places(NamedTuple):
    """How often the best method of a family is first, and among the first three; equal ones share a place."""

    family: str
    first: int
    first_three: int
    columns: int


def standings(tables: Sequence[Table]) -> list[Standing]:
    """Every column of the paper in its order.

    Columns with the paper's images under a name of their own count as the paper's: same data set, same
    augmentation, as many training images.
    """
    own = [
        entry
        for table in tables
        for entry in table.entries.values()
        if entry.ours is not None and entry.models[0].startswith(_OWN)
    ]
    found = []
    for table in tables:
        for column in table.columns:
            if column.is_paper:
                theirs = [entry for entry in table.column(column) if entry.paper is not None]
                bcnns = [entry for entry in theirs if entry.row.family == "B-CNN"]
                same = [entry for entry in own if _is_same(entry, column)]
                found.append(
                    Standing(
                        column,
                        max(bcnns, key=lambda entry: _mean(entry.paper)),
                        max(theirs, key=lambda entry: _mean(entry.paper)),
                        max(same, key=lambda entry: _mean(entry.ours), default=None),
                    )
                )
    return found


def _is_same(entry: Entry, column: ColumnKey) -> bool:
    if entry.column == column:
        return True
    images = training_images()[column.data_set, column.regime]
    renamed = entry.column._replace(regime=column.regime)
    return renamed == column and entry.train_images == images


def _mean(score: tuple[float, float | None, int] | None) -> float:
    return 0.0 if score is None else score[0]


def family_places(tables: Sequence[Table]) -> list[Places]:
    """The paper's families among its methods, then besselnet's best network among the same methods."""
    counts: dict[str, list[int]] = {}
    found = standings(tables)
    for standing in found:
        theirs = [entry for entry in _column_of(tables, standing) if entry.paper is not None]
        for family in dict.fromkeys(entry.row.family for entry in theirs):
            ranks = [e.paper_rank for e in theirs if e.row.family == family and e.paper_rank]
            counts.setdefault(family, []).append(min(ranks))
        if standing.own is not None:
            own = round(_mean(standing.own.ours), 2)
            better = sum(round(_mean(entry.paper), 2) > own for entry in theirs)
            counts.setdefault(_OWN, []).append(1 + better)
    # What is compared with the others follows them.
    ordered = sorted(counts.items(), key=lambda item: item[0] == _OWN)
    return [
        Places(family, ranks.count(1), sum(rank <= 3 for rank in ranks), len(ranks))
        for family, ranks in ordered
    ]


def _column_of(tables: Sequence[Table], standing: Standing) -> list[Entry]:
    (table,) = (table for table in tables if standing.column in table.columns)
    return table.column(standing.column)


def standings_in_words(found: Iterable[Standing]) -> str:
    """In how many columns besselnet has results, and in how many of them it is ahead; empty if in none."""
    ran = [standing for standing in found if standing.own is not None]
    if not ran:
        return ""
    ahead = sum(standing.is_ahead for standing in ran)
    return (
        f"Networks of besselnet have results in {len(ran)} of these columns, and are above every method of "
        f"the paper in {ahead} of them."
    )


def draw_columns(tables: Sequence[Table]) -> dict[str, Figure]:
    """A line for each column, by the title of the picture; none without results of besselnet."""
    found = standings(tables)
    if all(standing.own is None for standing in found):
        return {}
    figure = new_figure(1.0 + 0.21 * len(found))
    axes = figure.subplots()
    drawn = (
        ("best method of the paper", 2, [standing.best.paper for standing in found]),
        ("best B-CNN of the paper", 1, [standing.best_bcnn.paper for standing in found]),
        ("besselnet", 0, [standing.own.ours if standing.own else None for standing in found]),
    )
    for label, number, scores in drawn:
        places = [(score.mean, y, score.std) for y, score in enumerate(scores) if score is not None]
        style = line_style(number)
        axes.errorbar(
            [mean for mean, _, _ in places],
            [y for _, y, _ in places],
            xerr=[std or 0.0 for _, _, std in places],
            fmt=style.marker,
            color=style.color,
            capsize=2,
            markersize=5,
            linewidth=1.0,
            label=label,
        )
    titles = [plain_text(standing.column.full_title, 60) for standing in found]
    axes.set_yticks(range(len(found)), titles)
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.set_xlabel("accuracy, %")
    axes.tick_params(labelsize="small")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower left", fontsize="small")
    return {"the paper's columns": figure}
