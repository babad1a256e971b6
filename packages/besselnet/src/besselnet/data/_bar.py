"""Progress bar for loading images."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

# (name, done so far, in all)
Show = Callable[[str, int, int | None], None]


@contextmanager
def progress_bar(unit: Literal["bytes", "images"]) -> Iterator[Show]:
    """A function that draws a bar, on terminals and with rich only."""
    try:
        from rich import progress
        from rich.console import Console
    except ModuleNotFoundError:
        yield lambda name, have, total: None
        return
    columns: tuple[progress.ProgressColumn, ...] = (
        (progress.DownloadColumn(), progress.TransferSpeedColumn())
        if unit == "bytes"
        else (
            progress.MofNCompleteColumn(),
            progress.TextColumn(unit),
            progress.TimeRemainingColumn(),
        )
    )
    console = Console(stderr=True)
    with progress.Progress(
        "{task.description}",
        progress.BarColumn(),
        *columns,
        console=console,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task("")

        def show(name: str, have: int, total: int | None) -> None:
            bar.update(task, description=name, completed=have, total=total)

        yield show
