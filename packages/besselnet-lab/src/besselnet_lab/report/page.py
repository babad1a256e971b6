"""The report as one HTML page that needs nothing else: tables to sort and filter, figures, a script."""

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template

from besselnet_lab.report.collect import MISSING, ColumnKey, Entry, RowKey, Table
from besselnet_lab.report.figures import COLUMNS, EXPLANATIONS, FIRST, MASKS, ROBUST, Figures
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

__all__ = ["page"]

# Letters of a cell that may be broken into lines.
_LONG = 24


def page(
    tables: Sequence[Table],
    figures: Figures,
    title: str,
    masks: Sequence[MaskEntry] = (),
    robust: Sequence[RobustEntry] = (),
) -> str:
    """The whole page."""
    texts = [
        (text.heading, _text_table(text, f"summary{number}"))
        for number, text in enumerate(summaries(tables))
    ]
    drawn = {
        heading: _paragraph(EXPLANATIONS[heading]) + _figures(figures, heading)
        for heading, found in figures.sections().items()
        if found
    }
    if MASKS in drawn:
        drawn[MASKS] += _masks(masks)
    if ROBUST in drawn:
        drawn[ROBUST] = _robustness(robust) + drawn[ROBUST]
    sections = []
    for heading in FIRST:
        sections += [(heading, drawn[heading])] if heading in drawn else []
        sections += texts[:1] if heading == COLUMNS else []
    sections += texts[1:2]
    for number, table in enumerate(tables):
        name = f"table{number}"
        shown = _wide_table(table, name) if table.is_paper else _variants(table, name)
        sections.append((table.name, shown))
    sections += texts[2:]
    sections += [section for section in drawn.items() if section[0] not in FIRST]
    if tables:
        sections.append(("All cells", _all_cells(tables)))
    bodies, links = [], []
    for number, (heading, content) in enumerate(sections):
        links.append(f'<li><a href="#section{number}">{escape(heading)}</a></li>')
        bodies.append(
            f'<section id="section{number}"><h2>{escape(heading)}</h2>\n{content}</section>'
        )
    told = overview(tables, sum(entry.runs for entry in masks))
    return Template(_file("page.html")).substitute(
        title=escape(title),
        about=_paragraph(about(tables)) + _paragraph(" ".join(told), "overview"),
        words="".join(f"<dt>{escape(w)}</dt><dd>{escape(meaning)}</dd>" for w, meaning in WORDS),
        style=_file("page.css"),
        script=_file("page.js"),
        contents="".join(links),
        body="\n".join(bodies),
    )


def _paragraph(text: str, kind: str = "") -> str:
    return f"<p{f' class={kind}' if kind else ''}>{escape(text)}</p>"


def _file(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _all_cells(tables: Iterable[Table]) -> str:
    heads = (
        *("data set", "augmentation", "regime", "method", "group", "paper", "here", "runs"),
        *("difference", "verdict", "training images", "seconds", "multiply-adds", "parameters"),
        "notes",
    )
    rows = []
    for table in tables:
        for column in table.columns:
            for entry in table.column(column):
                cells = "".join(_value_cell(value, text) for value, text in _values(entry))
                rows.append(f"<tr{_marks(column, entry.row, entry.ours is not None)}>{cells}</tr>")
    return _table("cells", [(head, head.replace(" ", "_"), "") for head in heads], rows)


def _values(entry: Entry) -> list[tuple[float | str | None, str]]:
    """(what to sort by, what to show) in each column of the table of all cells."""
    column, paper, ours = entry.column, entry.paper, entry.ours
    compared = entry.comparison

    def number(value: int | None) -> tuple[int | None, str]:
        return value, "" if value is None else f"{value:,}"

    extra = column.title.removeprefix(f"{column.augmentation} {column.regime}")
    return [
        (None, column.data_set),
        (None, column.augmentation),
        (None, column.regime + extra),
        (None, entry.row.method),
        (None, entry.row.group),
        (paper.mean, str(paper)) if paper else ("", ""),
        (ours.mean, str(ours)) if ours else ("", ""),
        number(ours.n if ours else None),
        (compared.difference, f"{compared.difference:+.2f}") if compared else ("", ""),
        (None, compared.verdict if compared else ("" if ours else "missing")),
        number(entry.train_images),
        (entry.seconds, f"{entry.seconds:.0f}") if entry.seconds is not None else ("", ""),
        number(entry.multiply_adds),
        number(entry.parameters),
        (None, "; ".join(entry.notes)),
    ]


def _value_cell(value: float | str | None, text: str) -> str:
    shown = escape(text)
    if text in ("above", "below", "missing"):
        shown = f'<span class="{text}">{text}</span>'
    if value is None:
        return f"<td>{shown}</td>"
    return f'<td data-value="{value}">{shown}</td>'


def _wide_table(table: Table, name: str) -> str:
    heads = [("method", "method", ""), ("group", "group", "")]
    ran_columns = {c: any(e.ours is not None for e in table.column(c)) for c in table.columns}
    heads += [
        (_head(table, c), f"column{i}", _marks(c, ran=ran_columns[c]))
        for i, c in enumerate(table.columns)
    ]
    rows = []
    for row in table.rows:
        cells = [f"<td>{escape(row.method)}</td><td>{escape(row.group)}</td>"]
        cells += [
            _wide_cell(table.entries.get((row, column)), _marks(column, ran=ran_columns[column]))
            for column in table.columns
        ]
        ran = any(entry.ours is not None for (at, _), entry in table.entries.items() if at == row)
        rows.append(f"<tr{_marks(None, row, ran)}>{''.join(cells)}</tr>")
    return _paragraph(LEGEND) + _table(name, heads, rows, "wide") + _notes(table.notes())


def _head(table: Table, column: ColumnKey) -> str:
    images = table.train_images(column)
    return f"{column.data_set}\n{column.title}" + (f"\n{images:,} images" if images else "")


def _variants(table: Table, name: str) -> str:
    """A table for each data set by the number of training images, then one for each column."""
    parts = [
        _headed(text, f"{name}-sizes{number}", _marks(key))
        for number, (key, text) in enumerate(by_size(table).items())
    ]
    parts.append(_paragraph(LEGEND_ALONE))
    for number, column in enumerate(table.columns):
        parts.append(_headed(variants(table, column), f"{name}-{number}", _marks(column)))
    return "".join(parts) + _notes(table.notes())


def _masks(masks: Sequence[MaskEntry]) -> str:
    """A table for each column of masks."""
    tables = _by_column(mask_tables(masks), "masks")
    notes = _notes((e.column, note) for e in masks for note in e.notes)
    return _paragraph(LEGEND_MASKS) + tables + notes


def _robustness(robust: Sequence[RobustEntry]) -> str:
    """A table for each column with robustness."""
    tables = _by_column(robust_tables(robust), "robust")
    return _paragraph(LEGEND_ROBUST) + tables + _notes(robust_notes(robust))


def _by_column(tables: Mapping[ColumnKey, TextTable], name: str) -> str:
    return "".join(
        _headed(text, f"{name}-{number}", _marks(column))
        for number, (column, text) in enumerate(tables.items())
    )


def _headed(table: TextTable, name: str, marks: str) -> str:
    return f"<h3{marks}>{escape(table.heading)}</h3>" + _text_table(table, name, marks)


def _notes(notes: Iterable[tuple[ColumnKey, str]]) -> str:
    """What must be known about columns, each note once, or nothing."""
    items = [
        f"<li{_marks(column)}>{escape(column.full_title)}: {escape(note)}.</li>"
        for column, note in dict.fromkeys(notes)
    ]
    return f'<ul class="notes">{"".join(items)}</ul>' if items else ""


def _wide_cell(entry: Entry | None, marks: str) -> str:
    value: float | str = ""
    if entry is None:
        return f'<td data-value=""{marks}><span class="missing">{MISSING}</span></td>'
    paper = ours = f'<span class="missing">{MISSING}</span>'
    if entry.paper is not None:
        value = entry.paper.mean
        paper = _bold(str(entry.paper), entry.paper_rank)
    if entry.ours is not None:
        value = entry.ours.mean
        ours = f'{_bold(str(entry.ours), entry.our_rank)}<br><span class="runs">n={entry.ours.n}</span>'
        compared = entry.comparison
        if compared is not None:
            ours += f' <span class="{compared.verdict}">{compared.mark} {compared.difference:+.2f}</span>'
    return f'<td data-value="{value}"{marks}><span class="paper">{paper}</span><br>{ours}</td>'


def _bold(text: str, rank: int | None) -> str:
    return f"<b>{escape(text)}</b>" if rank is not None and rank <= 3 else escape(text)


def _text_table(table: TextTable, name: str, marks: str = "") -> str:
    sentence = f"<p{marks}>{escape(table.sentence)}</p>"
    if not table.lines:
        return sentence + "<p>No results yet.</p>"
    heads = [(text, f"column{i}", "") for i, text in enumerate(table.head)]
    rows = [
        f"<tr{_marks(line.column, line.row, line.ran)}>{''.join(map(_text_cell, line.cells))}</tr>"
        for line in table.lines
    ]
    return sentence + _table(name, heads, rows)


def _text_cell(text: str) -> str:
    """A cell that sorts by the number at its beginning, or in words of time, if there is one."""
    shown = escape(text)
    for mark, verdict in (("▲", "above"), ("▼", "below")):
        shown = shown.replace(mark, f'<span class="{verdict}">{mark}</span>')
    if text in ("", MISSING):
        return f'<td data-value=""><span class="missing">{text}</span></td>'
    if duration := re.fullmatch(r"(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?", text):
        hours, minutes, seconds = (int(part or 0) for part in duration.groups())
        return f'<td data-value="{3600 * hours + 60 * minutes + seconds}">{shown}</td>'
    number = re.match(r"[+-]?\d[\d,]*(?:\.\d+)?(?= |$)", text)
    value = f' data-value="{float(number.group().replace(",", ""))}"' if number else ""
    kind = ' class="text"' if len(text) > _LONG else ""
    return f"<td{value}{kind}>{shown}</td>"


def _table(
    name: str, heads: Iterable[tuple[str, str, str]], rows: Iterable[str], kind: str = "long"
) -> str:
    """`heads`: (text, name to sort by, attributes)."""
    head = "".join(
        f'<th scope="col" tabindex="0" data-sort="{key}"{marks}>'
        f"{escape(text).replace(chr(10), '<br>')}</th>"
        for text, key, marks in heads
    )
    body = "\n".join(rows)
    return (
        f'<div class="scroll {kind}"><table id="{name}"><thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def _figures(figures: Figures, heading: str) -> str:
    drawn = [
        f"<figure{_marks(ColumnKey(d.data_set, d.augmentation, d.regime), ran=d.ran)}>"
        f"<figcaption>{escape(d.title)}</figcaption>{d.svg}</figure>"
        for d in figures.drawings
        if d.section == heading
    ]
    return "\n".join(drawn)


def _marks(
    column: ColumnKey | None = None, row: RowKey | None = None, ran: bool | None = None
) -> str:
    """What the filters look at."""
    marks: dict[str, str] = {}
    if column is not None:
        marks |= {
            "data_set": column.data_set,
            "augmentation": column.augmentation,
            "regime": column.regime,
        }
    if row is not None:
        marks["method"] = row.title
    if ran is not None:
        marks["run"] = str(int(ran))
    return "".join(f' data-{name}="{escape(value)}"' for name, value in marks.items() if value)
