"""The smaller tables of a report, as text for every kind of report."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from besselnet_lab.report.collect import (
    MISSING,
    ColumnKey,
    Entry,
    RowKey,
    Table,
    finishes,
    readings,
)
from besselnet_lab.report.columns import family_places, standings, standings_in_words
from besselnet_lab.report.texts import ALONE, BESIDE_PAPER

__all__ = ["Line", "TextTable", "about", "overview", "summaries"]


class Line(NamedTuple):
    """A line of a table, and the column and the row that it is about."""

    cells: list[str]
    column: ColumnKey | None = None
    row: RowKey | None = None
    ran: bool = True


@dataclass(frozen=True)
class TextTable:
    """A table of text: its heading, what to know about it, and its lines."""

    heading: str
    sentence: str
    head: tuple[str, ...]
    lines: list[Line]


def about(tables: Sequence[Table]) -> str:
    """What the report is."""
    return BESIDE_PAPER if any(table.is_paper for table in tables) else ALONE


def overview(tables: Sequence[Table], further: int = 0) -> list[str]:
    """Sentences that say what the report holds; `further` trainings are in none of the tables."""
    entries = [entry for table in tables for entry in table.entries.values()]
    ran = [entry for entry in entries if entry.ours is not None]
    paper = [entry for entry in entries if entry.paper is not None]
    trainings = further + sum(entry.ours.n for entry in ran if entry.ours is not None)
    sentences = [f"This report has {trainings} {'training' if trainings == 1 else 'trainings'}."]
    if paper:
        both = [e.comparison.verdict for e in paper if e.comparison is not None]
        columns = {e.column for e in paper}
        begun = {e.column for e in ran} & columns
        sentences.append(
            f"It covers {len(both)} of the paper's {len(paper)} cells, with results in {len(begun)} of "
            f"its {len(columns)} columns."
        )
        if both:
            words = {
                "above": "above the paper",
                "same": "the same within two standard deviations",
                "unclear": "unclear",
                "below": "below the paper",
            }
            counts = [f"{both.count(v)} {word}" for v, word in words.items() if v in both]
            sentences.append(f"Of these cells: {', '.join(counts)}.")
        sentences += filter(None, [standings_in_words(standings(tables))])
        own = sum(e.paper is None and e.column in columns for e in ran)
        if own:
            sentences.append(
                f"{own} more {'cell is of a network' if own == 1 else 'cells are of networks'} that the "
                "paper does not have."
            )
    beyond = sum(not table.is_paper for table in tables for e in table.entries.values() if e.ours)
    if beyond and paper:
        sentences.append(
            f"{beyond} {'cell is' if beyond == 1 else 'cells are'} not compared with the paper, which does "
            "not have their columns, or evaluates them differently."
        )
    return sentences


def summaries(tables: Sequence[Table]) -> list[TextTable]:
    """What is compared with the paper, put together; nothing where nothing is."""
    beside_paper = [table for table in tables if table.is_paper]
    if not beside_paper:
        return []
    return [
        places(tables),
        run_here(beside_paper),
        finish_counts(tables),
        both_readings(beside_paper),
    ]


def places(tables: Sequence[Table]) -> TextTable:
    """How often the families of methods lead the paper's columns, and besselnet with them."""
    lines = [Line([family, *map(str, counts)]) for family, *counts in family_places(tables)]
    return TextTable(
        "Places in the paper's columns",
        "The paper counts in how many columns a family of methods is first, and in how many it is among "
        "the first three. Families of the paper: among its 15 methods. besselnet: its best network of this "
        "study among the same 15 methods, in the columns that it was trained for.",
        ("family", "first", "among the first three", "columns"),
        lines,
    )


def run_here(tables: Sequence[Table]) -> TextTable:
    """Every cell that was run, against its number in the paper, its best B-CNN and its best row."""
    lines = []
    for table in tables:
        for column, best_bcnn, best, _ in standings([table]):
            ran = [e for e in table.column(column) if e.ours is not None]
            for entry in sorted(ran, key=lambda e: -e.ours.mean if e.ours else 0.0):
                compared = entry.comparison
                cells = [
                    column.full_title,
                    entry.row.title,
                    f"{entry.ours} (n={entry.ours.n})" if entry.ours else MISSING,
                    str(entry.paper) if entry.paper else MISSING,
                    f"{compared.difference:+.2f} {compared.mark}" if compared else MISSING,
                    _against(entry, best_bcnn),
                    "the same" if best is best_bcnn else _against(entry, best),
                ]
                lines.append(Line(cells, column, entry.row))
    return TextTable(
        "Results against the paper",
        "The best method of each column comes first. The last two columns show the paper's best numbers "
        "and the difference of this study's result from them.",
        (
            *("column", "method", "here", "same method in the paper", "difference"),
            *("best B-CNN of the paper", "best row of the paper"),
        ),
        lines,
    )


def _against(entry: Entry, best: Entry) -> str:
    if entry.ours is None or best.paper is None:
        return MISSING
    difference = entry.ours.mean - best.paper.mean
    return f"{best.paper} ({best.row.title}): {difference:+.2f}"


def finish_counts(tables: Sequence[Table]) -> TextTable:
    """How often each row is first, and among the first three, in the paper and here."""
    paper, ours = finishes(tables, "paper"), finishes(tables, "our")
    lines = []
    for row in dict.fromkeys([*paper, *ours]):
        theirs, own = paper.get(row), ours.get(row)
        cells = [
            *row,
            *([MISSING] * 3 if theirs is None else map(str, theirs)),
            *([MISSING] * 3 if own is None else map(str, own)),
        ]
        lines.append(Line(cells, row=row, ran=own is not None))
    return TextTable(
        "First places and places among the first three",
        "Paper: among its 15 methods. Here: among the methods of this study in the same column, often "
        "only a few. Columns with a single method do not count. Equal numbers share a place.",
        (
            *("method", "group", "paper: first", "paper: first three", "paper: columns"),
            *("here: first", "here: first three", "here: columns"),
        ),
        lines,
    )


def both_readings(tables: Sequence[Table]) -> TextTable:
    """Models with two readings, against the row of their name and the row they are by the code."""
    lines = []
    for table in tables:
        for entry, by_name, by_code in readings(table.entries.values()):
            if entry.ours is not None:
                shown = [_reading(table, entry, row) for row in (by_name, by_code)]
                cells = [entry.column.full_title, entry.models[0], str(entry.ours), *shown]
                lines.append(Line(cells, entry.column, entry.row))
    return TextTable(
        "Two readings of HNets and irreps",
        "The published experiment code swaps the names of the two kernel spaces. Each model is compared "
        "with the row of its name, and with its row according to that code.",
        ("column", "model", "here", "by name", "by the published code"),
        lines,
    )


def _reading(table: Table, entry: Entry, row: RowKey) -> str:
    other = table.entries.get((row, entry.column))
    if other is None or other.paper is None or entry.ours is None:
        return MISSING
    return f"{other.paper} ({row.title}): {entry.ours.mean - other.paper.mean:+.2f}"
