"""A report as tables of text, for the terminal and as Markdown."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from besselnet_lab.benchmarks.judge import unsteady

TITLES = {
    "training": "training step",
    "forward": "inference",
    "prediction": "files to rows",
    "memory": "peak extra memory",
    "construct": "construction",
    "float32": "difference, float32",
    "float64": "difference, float64",
}


class TextTable(NamedTuple):
    """A title, the column heads and rows of text. The first column is words, the others numbers."""

    title: str
    columns: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        lines = [self.columns, ["---", *["---:"] * (len(self.columns) - 1)], *self.rows]
        body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        return f"**{self.title}**\n\n{body}\n"


def show_value(measure: str, value: float | None) -> str:
    """A measured number with its unit; "-" for none."""
    if value is None:
        return "-"
    if measure == "memory":
        return f"{value / 2**20:.1f} MiB"
    if measure.startswith("float"):
        return f"{value:.1e}"
    return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.3g} ms"


def tables_of(report: Mapping[str, Any]) -> list[TextTable]:
    """The numbers and ratios of a report, its summary, and its bounds."""
    one = len(report["cases"]) == 1
    tables = [_by_candidate(report)] if one else _by_case(report)
    if report["summary"]:
        tables.append(_summary(report))
    if report["bounds"]:
        tables.append(bounds_table(report["bounds"]))
    return tables


def notes_of(report: Mapping[str, Any]) -> list[str]:
    """What was left out and why, and how far to trust the run."""
    notes = []
    for case in report["cases"]:
        for name, result in case["results"].items():
            for what, reason in result["left_out"].items():
                part = "" if what == "all" else f" {TITLES[what]}"
                notes.append(f"left out: {name}{part}, {case['label']}: {reason}")
    disturbed, timings = unsteady(report["cases"])
    if disturbed:
        notes.append(
            f"unsteady: in {disturbed} of {timings} timings the median round took over 1.25 times the "
            "best; the machine was busy"
        )
    if report["quick"]:
        notes.append("quick run: small shapes and few rounds, not figures to quote")
    return notes


def bounds_table(bounds: Iterable[Mapping[str, Any]]) -> TextTable:
    """Each bound beside what was measured."""
    rows = []
    for bound in bounds:
        least = bound["at_least"] is not None
        sign, limit = ("≥", bound["at_least"]) if least else ("≤", bound["at_most"])
        measured = "-" if bound["measured"] is None else f"{bound['measured']:.3g}"
        aim = "-" if bound["aim"] is None else f"{bound['aim']:g}"
        rows.append([bound["text"], measured, f"{sign} {limit:g}", aim, bound["verdict"]])
    return TextTable("bounds", ["measure", "measured", "bound", "aim", "verdict"], rows)


def markdown_of(reports: Sequence[Mapping[str, Any]]) -> str:
    """All reports as one page: the bounds of all first, then each with its tables and notes."""
    parts = [
        "# Benchmark results\n",
        "Written by `besselnet-lab bench` from the JSON files beside it.\n",
    ]
    bounds = [bound for report in reports for bound in report["bounds"]]
    if bounds:
        parts.append(bounds_table(bounds).markdown())
    for report in reports:
        parts.append(f"## {report['entry']}\n\n{report['about']}\n\n{provenance(report)}\n")
        tables = [table for table in tables_of(report) if table.title != "bounds"]
        parts += [table.markdown() for table in tables]
        parts += [f"- {note}" for note in notes_of(report)]
        parts.append("" if parts[-1].endswith("\n") else "\n")
    return "\n".join(parts).rstrip() + "\n"


def provenance(report: Mapping[str, Any]) -> str:
    """On what and with what a report was made, in one line."""
    environment = report.get("environment")
    words = [report["date"][:10], f"{report['threads']} threads"]
    if environment:
        machine, versions = environment["machine"], environment["versions"]
        words.append(f"{machine['processor']}, {machine['cores']} cores")
        words += [f"{name} {versions[name]}" for name in ("torch", "escnn") if versions.get(name)]
    return "; ".join(words)


def _by_candidate(report: Mapping[str, Any]) -> TextTable:
    (case,) = report["cases"]
    measures, baseline = report["measures"], report["baseline"]
    columns = ["candidate", "parameters"]
    for measure in measures:
        columns += [TITLES[measure], *([f"/ {baseline}"] if baseline else [])]
    rows = []
    for name, result in case["results"].items():
        parameters = result["parameters"]
        row = [name, "-" if parameters is None else f"{parameters:,}"]
        for measure in measures:
            row.append(show_value(measure, result["values"].get(measure)))
            if baseline:
                row.append(_show_ratio(result, measure))
        rows.append(row)
    return TextTable(case["label"], columns, rows)


def _by_case(report: Mapping[str, Any]) -> list[TextTable]:
    baseline = report["baseline"]
    names = list(report["cases"][0]["results"])
    columns = ["case"]
    for name in names:
        columns += [name, *([f"/ {baseline}"] if baseline and name != baseline else [])]
    tables = []
    for measure in report["measures"]:
        rows = []
        for case in report["cases"]:
            row = [case["label"]]
            for name in names:
                result = case["results"][name]
                row.append(show_value(measure, result["values"].get(measure)))
                if baseline and name != baseline:
                    row.append(_show_ratio(result, measure))
            rows.append(row)
        tables.append(TextTable(TITLES[measure], columns, rows))
    return tables


def _show_ratio(result: Mapping[str, Any], measure: str) -> str:
    ratio = result.get("ratios", {}).get(measure)
    return "-" if ratio is None else f"{ratio:.2f}"


def _summary(report: Mapping[str, Any]) -> TextTable:
    summary = report["summary"]
    titles = [TITLES[measure] for measure in summary]
    if report["summary_kind"] == "exponents":
        names = dict.fromkeys(name for found in summary.values() for name in found)
        rows = [
            [name, *(f"{found[name]:.2f}" if name in found else "-" for found in summary.values())]
            for name in names
        ]
        return TextTable("time as a power of k: exponent", ["candidate", *titles], rows)
    found = list(summary.values())
    rows = [
        ["took the faster", *(f"{f['faster_taken']} of {f['cases']}" for f in found)],
        [
            "worst loss, times",
            *("-" if f["cases"] == 0 else f"{f['worst_loss']:.2f}" for f in found),
        ],
        ["where", *(f["worst_case"] or "-" for f in found)],
    ]
    return TextTable('choices of algorithm="auto"', ["", *titles], rows)
