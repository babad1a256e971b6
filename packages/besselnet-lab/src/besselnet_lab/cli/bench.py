"""`besselnet-lab bench`."""

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from besselnet.atomic import write_atomically, write_json
from besselnet.train import describe_environment
from besselnet.untrusted import read_json, reading
from besselnet_lab.benchmarks import (
    REPORT_FORMAT,
    choose_entries,
    draw_report,
    markdown_of,
    notes_of,
    provenance,
    read_entries,
    run_entry,
    tables_of,
)

__all__ = ["bench"]

RESULTS = Path("benchmarks/results")


def bench(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAMES", help="Benchmark entries. Default: all.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Rounds; the best one counts. Default: 5.")
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Number of torch threads. Default: as chosen by torch."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Smoke test with small shapes, less than a minute.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help=f"Output folder. Default: {RESULTS}, or {RESULTS}/quick with --quick."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed for weights, images and labels.")] = 0,
    entries: Annotated[
        Path | None, typer.Option(help="TOML file with your own benchmark entries.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Compare the speed and memory of layers and networks.

    The candidates of an entry take turns, and the best round of each counts. Compare their ratios, not the
    seconds of different runs. The output folder gets NAME.json and NAME.png for each entry, and tables.md
    with all results. Do not use the machine for anything else meanwhile.

    Examples:

        besselnet-lab bench

        besselnet-lab bench network growth --rounds 9 --threads 2

        besselnet-lab bench layer --quick --out trial --json
    """
    timing, known = read_entries(entries, quick=quick)
    chosen = choose_entries(known, names or [])
    if rounds is not None:
        timing = replace(timing, rounds=rounds, fewest_rounds=rounds)
    folder = out or (RESULTS / "quick" if quick else RESULTS)
    folder.mkdir(parents=True, exist_ok=True)
    reports = []
    for entry in chosen:
        report = run_entry(
            entry,
            timing,
            threads=threads,
            seed=seed,
            quick=quick,
            on_case=lambda label, name=entry.name: typer.echo(f"{name}: {label}", err=True),  # type: ignore[misc]
        )
        report["environment"] = _environment(report["threads"])
        reports.append(report)
        # At once: an interrupted run keeps what it has measured.
        write_json(folder / f"{entry.name}.json", report)
        _write_figure(folder / f"{entry.name}.png", report)
        if not as_json:
            _print(report)
    write_atomically(folder / "tables.md", markdown_of(_read_reports(folder, list(known))))
    if as_json:
        typer.echo(json.dumps(reports, indent=2, allow_nan=False))
    else:
        typer.echo(f"written to {folder}: {', '.join(e.name for e in chosen)}, tables.md")


def _environment(threads: int) -> dict[str, Any]:
    """Software and machine, with the threads of the run instead of torch's present ones."""
    environment = describe_environment()
    try:
        environment["versions"]["escnn"] = version("escnn")
    except PackageNotFoundError:
        environment["versions"]["escnn"] = None
    environment["machine"]["threads"] = threads
    return environment


def _read_reports(folder: Path, names: list[str]) -> list[dict[str, Any]]:
    """The reports that are in the folder, in the order of the entries."""
    paths = [folder / f"{name}.json" for name in names]
    found = []
    for path in filter(Path.exists, paths):
        report = read_json(path)
        if report.get("format") == REPORT_FORMAT:
            # Alone first: the file whose tables cannot be made is named.
            with reading(path):
                markdown_of([report])
            found.append(report)
    return found


def _write_figure(path: Path, report: Mapping[str, Any]) -> None:
    buffer = io.BytesIO()
    draw_report(report).savefig(buffer, format="png", dpi=120)
    write_atomically(path, buffer.getvalue())


def _print(report: Mapping[str, Any]) -> None:
    console = Console()
    if not console.is_terminal:
        # Into a file or a pipe: no line may be cut.
        console = Console(width=250)
    console.print(Text(f"\n{report['entry']}: {report['about']}", style="bold"))
    console.print(Text(provenance(report)))
    for text in tables_of(report):
        table = Table(title=text.title, title_justify="left", box=None)
        for i, column in enumerate(text.columns):
            table.add_column(column, justify="right" if i else "left")
        for row in text.rows:
            # As Text: brackets in it are not rich's markup.
            cells = [Text(cell) for cell in row]
            table.add_row(*cells, style="red" if row[-1] == "not met" else None)
        console.print(table)
    for note in notes_of(report):
        console.print(Text(note))
