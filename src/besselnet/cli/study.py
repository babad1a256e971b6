"""`besselnet study run | status | report`."""

from pathlib import Path
from typing import Annotated

import typer

from besselnet.study.cells import expand, select
from besselnet.study.local import run_local
from besselnet.study.recipe import read_recipe
from besselnet.study.store import Store

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Run every training of a study, and read its tables.")

RecipeFile = Annotated[Path, typer.Argument(metavar="RECIPE", help="A TOML file, see docs/studies.md.")]
Results = Annotated[
    Path | None, typer.Option(help="Folder of the results; results/NAME-OF-THE-RECIPE unless given.")
]
Only = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FIELD=PATTERN,...",
        help="Only these cells, such as 'method=B-CNN*,regime=low'; may be given many times.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="In place of what the recipe says."),
]


@app.command()
def run(
    recipe: RecipeFile,
    results: Results = None,
    only: Only = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes at a time.")] = 1,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of each; processors / jobs unless given.")
    ] = None,
    nice: Annotated[int, typer.Option(min=0, max=19, help="Lower the priority by this.")] = 0,
    retries: Annotated[
        int, typer.Option(min=0, help="How often a cell that fails is tried again.")
    ] = 1,
    data_root: Annotated[
        Path | None,
        typer.Option(
            envvar="BESSELNET_DATA_ROOT", help="Folder with the files of the data sets."
        ),
    ] = None,
    settings: Settings = None,
) -> None:
    """Run the cells of a study that have no result yet.

    Stop it with Ctrl-C, or kill it; called again, it skips what is done, goes on with what was cut off
    and tries again what failed.

    Examples:

        besselnet study run recipes/paper/mnist.toml --only 'method=B-CNN*,regime=low' --jobs 2

        besselnet study run recipes/paper/malaria.toml --data-root data --nice 10
    """
    plan = read_recipe(recipe, settings or [])
    cells = select(expand(plan), only or [])
    store = Store(_folder(results, recipe))
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
    typer.echo(f"{summary.in_words()}; results in {store.folder}")
    if summary.failed:
        raise typer.Exit(1)


def _folder(results: Path | None, recipe: Path) -> Path:
    return results or Path("results") / recipe.stem
