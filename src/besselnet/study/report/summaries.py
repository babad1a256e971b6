"""The smaller tables of a report, as rows of text of which the first is the head."""

from collections.abc import Iterable, Sequence

from besselnet.study.report.collect import MISSING, Entry, RowKey, Table, finishes, readings

__all__ = ["SUMMARIES", "both_readings", "finish_counts", "own_against_paper"]

Rows = list[list[str]]


def own_against_paper(tables: Iterable[Table]) -> Rows:
    """Rows that the paper does not have, against its best row and its best B-CNN in each column."""
    rows = [["column", "network", "here", "best B-CNN of the paper", "best row of the paper"]]
    for table in tables:
        for column in table.columns:
            entries = table.column(column)
            theirs = [e for e in entries if e.paper is not None]
            best = _best(theirs)
            best_bcnn = _best([e for e in theirs if e.row.family == "B-CNN"])
            for entry in entries:
                if entry.paper is None and entry.ours is not None and best and best_bcnn:
                    rows.append(
                        [
                            column.full_title,
                            entry.row.title,
                            f"{entry.ours} (n={entry.ours.n})",
                            _against(entry, best_bcnn),
                            _against(entry, best),
                        ]
                    )
    return rows


def _best(entries: Sequence[Entry]) -> Entry | None:
    return max(entries, key=lambda e: e.paper.mean if e.paper else 0.0, default=None)


def _against(entry: Entry, best: Entry) -> str:
    if entry.ours is None or best.paper is None:
        return MISSING
    difference = entry.ours.mean - best.paper.mean
    return f"{best.paper} ({best.row.title}): {difference:+.2f}"


def finish_counts(tables: Sequence[Table]) -> Rows:
    """How often each row is first, and among the first three, in the paper and here."""
    paper, ours = finishes(tables, "paper"), finishes(tables, "our")
    rows = [
        [
            "method",
            "group",
            "paper: first",
            "first three",
            "here: first",
            "first three",
            "columns run",
        ]
    ]
    for row in dict.fromkeys([*paper, *ours]):
        theirs, own = paper.get(row), ours.get(row)
        rows.append(
            [
                *row,
                *([MISSING] * 2 if theirs is None else map(str, theirs[:2])),
                *([MISSING] * 3 if own is None else map(str, own)),
            ]
        )
    return rows


def both_readings(tables: Sequence[Table]) -> Rows:
    """Models with two readings, against the row of their name and the row they are by the code."""
    rows = [["column", "model", "here", "by name", "by the published code"]]
    for table in tables:
        for entry, by_name, by_code in readings(table.entries.values()):
            shown = [_reading(table, entry, row) for row in (by_name, by_code)]
            rows.append([entry.column.full_title, entry.models[0], str(entry.ours), *shown])
    return rows


def _reading(table: Table, entry: Entry, row: RowKey) -> str:
    other = table.entries.get((row, entry.column))
    if other is None or other.paper is None or entry.ours is None:
        return MISSING
    return f"{row.title}: {other.paper} ({entry.ours.mean - other.paper.mean:+.2f})"


# Heading, sentence, rows.
SUMMARIES = (
    ("Our own networks against the paper", "", own_against_paper),
    ("First places and places among the first three", "", finish_counts),
    (
        "Two readings of HNets and irreps",
        "The published experiment code reaches the kernel spaces under reversed names. A model that "
        "was run here is compared with the row of its name, and with the row that it is by that code.",
        both_readings,
    ),
)
