"""`besselnet-lab study run | status | report`."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from besselnet.train import in_words
from besselnet_lab.report import write_report
from besselnet_lab.study.cells import Cell, expand, select
from besselnet_lab.study.cluster import run_cluster
from besselnet_lab.study.estimate import Estimate, time_left
from besselnet_lab.study.images import ROOT_VARIABLE
from besselnet_lab.study.local import cores, run_local
from besselnet_lab.study.recipe import read_recipe
from besselnet_lab.study.status import cell_state, study_status
from besselnet_lab.study.store import Store
from besselnet_lab.study.tally import unfinished

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Run the trainings of a study and report the results.")

RecipeFile = Annotated[
    Path, typer.Argument(metavar="RECIPE", help="TOML file with the recipe (see docs/studies.md).")
]
Results = Annotated[Path | None, typer.Option(help="Results folder. Default: results/RECIPE.")]
Only = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FIELD=PATTERN,...",
        help="Select cells, such as 'method=B-CNN*,regime=low'. Can be repeated.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a setting of the recipe."),
]
Jobs = Annotated[int, typer.Option(min=1, help="Number of parallel processes.")]
Threads = Annotated[
    int | None, typer.Option(min=1, help="Threads per process. Default: processors / jobs.")
]


@app.command()
def run(
    recipe: RecipeFile,
    results: Results = None,
    only: Only = None,
    jobs: Jobs = 1,
    threads: Threads = None,
    nice: Annotated[
        int, typer.Option(min=0, max=19, help="Lower the process priority by this amount.")
    ] = 0,
    retries: Annotated[int, typer.Option(min=0, help="Number of retries for a failed cell.")] = 1,
    data_root: Annotated[
        Path | None,
        typer.Option(envvar=ROOT_VARIABLE, help="Folder with the files of the data sets."),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Run on this Ray cluster ('auto' or HOST:6379). --jobs and --nice do not apply, and "
            "each cell uses --threads processors (default: 1).",
        ),
    ] = None,
    gpus: Annotated[
        float, typer.Option(min=0, help="With --cluster: GPUs per cell, such as 0.25.")
    ] = 0.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the cells with their estimated times and exit.")
    ] = False,
    settings: Settings = None,
) -> None:
    """Run the cells of a study that have no result yet.

    A cell is one training. You can stop the command with Ctrl-C or kill it at any time. The next call skips
    finished cells, continues interrupted cells and retries failed cells.

    Examples:

        besselnet-lab study run recipes/paper/mnist.toml --only 'method=B-CNN*,regime=low' --jobs 2

        besselnet-lab study run recipes/paper/malaria.toml --data-root data --nice 10

        besselnet-lab study run recipes/paper/galaxy10.toml --dry-run

        besselnet-lab study run recipes/paper/galaxy10.toml --cluster auto --gpus 0.5
    """
    plan = read_recipe(recipe, settings or [])
    cells = select(expand(plan), only or [])
    store = Store(_folder(results, recipe))
    if dry_run:
        _show_plan(store, cells, jobs, threads or max(1, cores() // jobs))
        return
    if cluster is None:
        summary = run_local(
            cells,
            store,
            study=plan.title,
            jobs=jobs,
            threads=threads,
            nice=nice,
            retries=retries,
            data_root=data_root,
        )
    else:
        summary = run_cluster(
            cells,
            store,
            study=plan.title,
            address=cluster,
            cpus=threads or 1,
            gpus=gpus,
            retries=retries,
            data_root=data_root,
        )
    typer.echo(f"{summary.in_words()}; results in {store.folder}")
    if summary.failed:
        raise typer.Exit(1)


@app.command()
def status(
    recipe: RecipeFile,
    results: Results = None,
    only: Only = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads for the time estimate.")] = 1,
    settings: Settings = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Show finished, running, failed and missing cells, and the work left.

    Examples:

        besselnet-lab study status recipes/paper/mnist.toml

        besselnet-lab study status recipes/paper/mnist.toml --only 'regime=low' --json
    """
    cells = select(expand(read_recipe(recipe, settings or [])), only or [])
    columns = study_status(Store(_folder(results, recipe)), cells, threads)
    if as_json:
        typer.echo(json.dumps([asdict(column) for column in columns], indent=2, allow_nan=False))
        return
    table = Table(box=None)
    table.add_column("column")
    for name in ("done", "running", "failed", "missing", "work left"):
        table.add_column(name, justify="right")
    for column in columns:
        counts = (column.done, column.running, column.failed, column.missing)
        table.add_row(column.column, *(str(count or "") for count in counts), column.left)
    _console().print(table)
    for failure in [line for column in columns for line in column.failures]:
        typer.echo(f"failed  {failure}")


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(metavar="RESULTS", help="Folders with results.")],
    out: Annotated[
        Path | None, typer.Option(help="Output folder. Default: RESULTS/report.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the report.")] = None,
) -> None:
    """Write a report that compares results with the published numbers.

    report.html is a single page with tables to sort and filter. report.md is the same report in Markdown.

    Examples:

        besselnet-lab study report results/mnist

        besselnet-lab study report results/mnist results/malaria --out report
    """
    for folder in folders:
        if not folder.is_dir():
            raise ValueError(f"{folder}: no such results folder")
    results = [result for folder in folders for result in Store(folder).results()]
    if not results:
        names = ", ".join(map(str, folders))
        raise ValueError(f"{names}: no finished cells; run them with `besselnet-lab study run`")
    names = ", ".join(dict.fromkeys(result["study"] for result in results))
    written = write_report(results, out or folders[0] / "report", title or f"Study: {names}")
    typer.echo(f"{len(results)} results; written to {', '.join(map(str, written))}")


def _show_plan(store: Store, cells: Sequence[Cell], jobs: int, threads: int) -> None:
    """The cells with their states and times; measures steps where no time is known."""
    waiting = unfinished(store, cells)
    estimate = Estimate()
    estimate.learn(cells, [store.result(cell.key) for cell in cells])
    estimate.measure(
        waiting,
        threads,
        lambda cell: typer.echo(f"measuring {cell.key.row} on {cell.key.data_set}", err=True),
    )
    for cell in cells:
        state = cell_state(store, cell)
        seconds = None if state == "done" else estimate.seconds(cell)
        typer.echo(
            f"{state:<8} {cell.key}  {'' if seconds is None else in_words(seconds)}".rstrip()
        )
    seconds, _ = time_left(estimate, waiting)
    typer.echo(
        f"{len(cells)} cells, {len(cells) - len(waiting)} done; the rest takes about "
        f"{in_words(seconds / jobs)} with {jobs} {'jobs' if jobs > 1 else 'job'} of {threads} "
        f"{'threads' if threads > 1 else 'thread'}"
    )


def _folder(results: Path | None, recipe: Path) -> Path:
    return results or Path("results") / recipe.stem


def _console() -> Console:
    console = Console()
    # Into a file or a pipe: no line may be cut.
    return console if console.is_terminal else Console(width=250)
