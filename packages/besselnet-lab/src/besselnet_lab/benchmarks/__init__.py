"""Speed and memory, measured: entries as data, one runner, reports of plain values."""

from besselnet_lab.benchmarks.cost import Rates, cost_tables
from besselnet_lab.benchmarks.entries import Bound, Entry, choose_entries, read_entries
from besselnet_lab.benchmarks.figure import draw_report
from besselnet_lab.benchmarks.runner import REPORT_FORMAT, run_entry
from besselnet_lab.benchmarks.survey import SurveySettings, simulate, survey_rates
from besselnet_lab.benchmarks.tables import TextTable, markdown_of, notes_of, provenance, tables_of

__all__ = [
    "REPORT_FORMAT",
    "Bound",
    "Entry",
    "Rates",
    "SurveySettings",
    "TextTable",
    "choose_entries",
    "cost_tables",
    "draw_report",
    "markdown_of",
    "notes_of",
    "provenance",
    "read_entries",
    "run_entry",
    "simulate",
    "survey_rates",
    "tables_of",
]
