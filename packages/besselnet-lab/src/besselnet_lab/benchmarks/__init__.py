"""Speed and memory, measured: entries as data, one runner, reports of plain values."""

from besselnet_lab.benchmarks.entries import Bound, Entry, choose_entries, read_entries
from besselnet_lab.benchmarks.figure import draw_report
from besselnet_lab.benchmarks.runner import REPORT_FORMAT, run_entry
from besselnet_lab.benchmarks.tables import TextTable, markdown_of, notes_of, provenance, tables_of

__all__ = [
    "REPORT_FORMAT",
    "Bound",
    "Entry",
    "TextTable",
    "choose_entries",
    "draw_report",
    "markdown_of",
    "notes_of",
    "provenance",
    "read_entries",
    "run_entry",
    "tables_of",
]
