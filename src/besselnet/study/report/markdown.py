"""The report as Markdown."""

from collections.abc import Sequence

from besselnet.engine.progress import in_words
from besselnet.study.report.collect import MISSING, Entry, Table
from besselnet.study.report.figures import Figures
from besselnet.study.report.summaries import SUMMARIES

__all__ = ["LEGEND", "markdown"]

LEGEND = (
    "Accuracy in per cent, mean ± standard deviation over runs (the sample standard deviation for "
    "ours). First line of a cell: the paper; second line: here, with the number of runs and the "
    "difference. ▲ above and ▼ below the paper by more than two standard deviations of both, = within "
    "two of both, ~ within two of one of them only. Bold: the best three of the column among the "
    "paper's methods, and among those run here. –: missing."
)


def markdown(tables: Sequence[Table], figures: Figures, title: str) -> str:
    """The whole report; figures are linked as files of the folder `figures`."""
    parts = [f"# {title}", LEGEND]
    for table in tables:
        parts += [f"## {table.name}", _main_table(table), *_notes(table)]
    ran = [e for table in tables for e in table.entries.values() if e.ours is not None]
    for heading, sentence, rows_of in SUMMARIES:
        parts += [f"## {heading}", *([sentence] if sentence else []), _lines(rows_of(tables))]
    parts += ["## Time and operations", _cost(ran)]
    for heading, drawn in figures.sections().items():
        parts.append(f"## {heading}")
        parts += [f"![{name}](figures/{file})" for name, file in drawn] or ["No results yet."]
    return "\n\n".join(parts) + "\n"


def _main_table(table: Table) -> str:
    head = ["method", "group", *(c.full_title for c in table.columns)]
    body = [
        [row.method, row.group, *(_cell(table.entries.get((row, c))) for c in table.columns)]
        for row in table.rows
    ]
    return _lines([head, *body])


def _cell(entry: Entry | None) -> str:
    if entry is None:
        return MISSING
    paper = _bold(str(entry.paper), entry.paper_rank) if entry.paper else MISSING
    if entry.ours is None:
        return f"{paper}<br>{MISSING}"
    ours = f"{_bold(str(entry.ours), entry.our_rank)} (n={entry.ours.n})"
    compared = entry.comparison
    if compared is not None:
        ours += f" {compared.mark} {compared.difference:+.2f}"
    return f"{paper}<br>{ours}"


def _bold(text: str, rank: int | None) -> str:
    return f"**{text}**" if rank is not None and rank <= 3 else text


def _notes(table: Table) -> list[str]:
    """A list of what must be known about the columns, or nothing."""
    lines = []
    for column in table.columns:
        notes = dict.fromkeys(note for e in table.column(column) for note in e.notes)
        lines += [f"- {column.full_title}: {note}." for note in notes]
    return ["\n".join(lines)] if lines else []


def _cost(entries: Sequence[Entry]) -> str:
    rows = [
        [
            "column",
            "method",
            "group",
            "training images",
            "parameters",
            "multiply-adds an image",
            "training",
        ]
    ]
    for entry in entries:
        rows.append(
            [
                entry.column.full_title,
                *entry.row,
                f"{entry.train_images:,}",
                f"{entry.parameters:,}",
                f"{entry.multiply_adds:,}",
                in_words(entry.seconds or 0.0),
            ]
        )
    return _lines(rows) if entries else "No results yet."


def _lines(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first row is its head."""
    head, *body = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    if not body:
        return "No results yet."
    rule = ["---"] * len(head)
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *body))
