"""The report as one HTML page that needs nothing else: tables to sort and filter, figures, a script."""

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from string import Template

from besselnet.study.report.collect import MISSING, ColumnKey, Entry, RowKey, Table
from besselnet.study.report.figures import SECTIONS, Figures
from besselnet.study.report.summaries import SUMMARIES

__all__ = ["page"]


def page(tables: Sequence[Table], figures: Figures, title: str, legend: str) -> str:
    """The whole page."""
    sections: dict[str, str] = {}
    for number, table in enumerate(tables):
        sections[table.name] = _wide_table(table, f"table{number}")
    for number, (heading, sentence, rows_of) in enumerate(SUMMARIES):
        text = f"<p>{escape(sentence)}</p>" if sentence else ""
        sections[heading] = text + _plain_table(rows_of(tables), f"summary{number}")
    sections["All cells"] = _all_cells(tables)
    for heading in SECTIONS:
        sections[heading] = _figures(figures, heading)
    bodies, links = [], []
    for number, (heading, content) in enumerate(sections.items()):
        links.append(f'<a href="#section{number}">{escape(heading)}</a>')
        bodies.append(
            f'<section id="section{number}"><h2>{escape(heading)}</h2>\n{content}</section>'
        )
    return Template(_file("page.html")).substitute(
        title=escape(title),
        legend=escape(legend),
        style=_file("page.css"),
        script=_file("page.js"),
        contents="".join(links),
        body="\n".join(bodies),
    )


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
        (c.full_title, f"column{i}", _marks(c, ran=ran_columns[c]))
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
    notes = [
        f"<li{_marks(column)}>{escape(column.full_title)}: {escape(note)}.</li>"
        for column in table.columns
        for note in dict.fromkeys(note for e in table.column(column) for note in e.notes)
    ]
    listed = f'<ul class="notes">{"".join(notes)}</ul>' if notes else ""
    return _table(name, heads, rows) + listed


def _wide_cell(entry: Entry | None, marks: str) -> str:
    value: float | str = ""
    paper = ours = f'<span class="missing">{MISSING}</span>'
    if entry is not None and entry.paper is not None:
        value = entry.paper.mean
        paper = _bold(str(entry.paper), entry.paper_rank)
    if entry is not None and entry.ours is not None:
        value = entry.ours.mean
        ours = f"{_bold(str(entry.ours), entry.our_rank)} (n={entry.ours.n})"
        compared = entry.comparison
        if compared is not None:
            ours += f' <span class="{compared.verdict}">{compared.mark} {compared.difference:+.2f}</span>'
    return f'<td data-value="{value}"{marks}><span class="paper">{paper}</span><br>{ours}</td>'


def _bold(text: str, rank: int | None) -> str:
    return f"<b>{escape(text)}</b>" if rank is not None and rank <= 3 else escape(text)


def _plain_table(rows: Sequence[Sequence[str]], name: str) -> str:
    head, *body = rows
    if not body:
        return "<p>No results yet.</p>"
    heads = [(text, f"column{i}", "") for i, text in enumerate(head)]
    lines = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in body]
    return _table(name, heads, [f"<tr>{line}</tr>" for line in lines])


def _table(name: str, heads: Iterable[tuple[str, str, str]], rows: Iterable[str]) -> str:
    """`heads`: (text, name to sort by, attributes)."""
    head = "".join(
        f'<th scope="col" data-sort="{key}"{marks}>{escape(text)}</th>'
        for text, key, marks in heads
    )
    body = "\n".join(rows)
    return (
        f'<div class="scroll"><table id="{name}"><thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def _figures(figures: Figures, heading: str) -> str:
    drawn = [
        f"<figure{_marks(ColumnKey(d.data_set, d.augmentation, d.regime))}>"
        f"<figcaption>{escape(d.title)}</figcaption>{d.svg}</figure>"
        for d in figures.drawings
        if d.section == heading
    ]
    return "\n".join(drawn) or "<p>No results yet.</p>"


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
