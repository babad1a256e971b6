"""The report as Markdown."""

from collections.abc import Iterable, Sequence

from besselnet.train import in_words
from besselnet.untrusted import markdown_text
from besselnet_lab.report.collect import MISSING, ColumnKey, Entry, Table
from besselnet_lab.report.figures import COLUMNS, EXPLANATIONS, MASKS, OVERVIEW, ROBUST, Figures
from besselnet_lab.report.robustness import RobustEntry, robust_notes, robust_tables
from besselnet_lab.report.segmentation import MaskEntry, mask_tables
from besselnet_lab.report.sizes import by_size
from besselnet_lab.report.summaries import TextTable, about, overview, summaries
from besselnet_lab.report.texts import (
    LEGEND,
    LEGEND_ALONE,
    LEGEND_MASKS,
    LEGEND_ROBUST,
    WORDS,
)
from besselnet_lab.report.variants import variants

__all__ = ["markdown"]

NOTHING = "No results yet."


def markdown(
    tables: Sequence[Table],
    figures: Figures,
    title: str,
    masks: Sequence[MaskEntry] = (),
    robust: Sequence[RobustEntry] = (),
) -> str:
    """The whole report; figures are linked as files of the folder `figures`."""
    trainings = sum(entry.runs for entry in masks)
    parts = [f"# {markdown_text(title)}", about(tables), " ".join(overview(tables, trainings))]
    drawn = figures.sections()
    parts += _pictures(COLUMNS, drawn.pop(COLUMNS))
    first, *texts = [_section(text) for text in summaries(tables)] or [[]]
    parts += first
    parts.append("\n".join(f"- *{word}*: {meaning}" for word, meaning in WORDS))
    parts += _pictures(OVERVIEW, drawn.pop(OVERVIEW))
    parts += _masks(masks, drawn.pop(MASKS))
    parts += _robustness(robust, drawn.pop(ROBUST))
    parts += [part for text in texts[:1] for part in text]
    for table in tables:
        parts.append(f"## {markdown_text(table.name)}")
        if table.is_paper:
            parts += [LEGEND, _main_table(table)]
        else:
            for text in by_size(table).values():
                parts += _section(text, level=3)
            parts.append(LEGEND_ALONE)
            for column in table.columns:
                parts += _section(variants(table, column), level=3)
        parts += _notes(table.notes())
    parts += [part for text in texts[1:] for part in text]
    ran = [e for t in tables if t.is_paper for e in t.entries.values() if e.ours is not None]
    if ran:
        parts += ["## Time and operations", _cost(ran)]
    parts += [part for item in drawn.items() for part in _pictures(*item)]
    return "\n\n".join(parts) + "\n"


def _masks(masks: Sequence[MaskEntry], drawn: Sequence[tuple[str, str]]) -> list[str]:
    """The picture of the masks, and a table for each column; nothing where there are none."""
    if not masks:
        return []
    parts = [*_pictures(MASKS, drawn), LEGEND_MASKS]
    for text in mask_tables(masks).values():
        parts += _section(text, level=3)
    return parts + _notes((entry.column, note) for entry in masks for note in entry.notes)


def _robustness(robust: Sequence[RobustEntry], drawn: Sequence[tuple[str, str]]) -> list[str]:
    """A table and pictures for each column; nothing where there are none."""
    if not robust:
        return []
    heading, explanation, *pictures = _pictures(ROBUST, drawn)
    parts = [heading, LEGEND_ROBUST]
    for text in robust_tables(robust).values():
        parts += _section(text, level=3)
    return [*parts, *_notes(robust_notes(robust)), explanation, *pictures]


def _section(table: TextTable, level: int = 2) -> list[str]:
    lines = _lines([table.head, *(map(markdown_text, line.cells) for line in table.lines)])
    return [f"{'#' * level} {markdown_text(table.heading)}", table.sentence, lines]


def _pictures(heading: str, drawn: Sequence[tuple[str, str]]) -> list[str]:
    """A section of figures, or nothing where there are none."""
    if not drawn:
        return []
    parts = [f"## {heading}", EXPLANATIONS[heading]]
    for name, file in drawn:
        if len(drawn) > 1:
            parts.append(f"**{markdown_text(name)}**")
        parts.append(f"![{markdown_text(name)}](figures/{file})")
    return parts


def _main_table(table: Table) -> str:
    head = ["method", "group", *(_head(table, column) for column in table.columns)]
    body = [
        [*map(markdown_text, row), *(_cell(table.entries.get((row, c))) for c in table.columns)]
        for row in table.rows
    ]
    return _lines([head, *body])


def _head(table: Table, column: ColumnKey) -> str:
    images = table.train_images(column)
    names = "<br>".join(map(markdown_text, (column.data_set, column.title)))
    return names + (f"<br>{images:,} images" if images else "")


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


def _notes(notes: Iterable[tuple[ColumnKey, str]]) -> list[str]:
    """A list of what must be known about columns, each note once, or nothing."""
    lines = [
        f"- {markdown_text(f'{column.full_title}: {note}')}."
        for column, note in dict.fromkeys(notes)
    ]
    return ["\n".join(lines)] if lines else []


def _cost(entries: Sequence[Entry]) -> str:
    rows = [
        [
            "column",
            "method",
            "group",
            "training images",
            "parameters",
            "multiply-adds per image",
            "training",
        ]
    ]
    for entry in entries:
        rows.append(
            [
                *map(markdown_text, (entry.column.full_title, *entry.row)),
                f"{entry.train_images:,}",
                f"{entry.parameters:,}",
                f"{entry.multiply_adds:,}",
                in_words(entry.seconds or 0.0),
            ]
        )
    return _lines(rows)


def _lines(rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table; the first row is its head."""
    head, *body = map(list, rows)
    if not body:
        return NOTHING
    rule = ["---"] * len(head)
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *body))
