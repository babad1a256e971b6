"""Tables on the terminal."""

from collections.abc import Iterable

import typer


def print_table(head: list[str], rows: Iterable[list[str]]) -> None:
    """An empty line, then `head` and `rows`: the first column to the left, the others to the right."""
    lines = [head, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    typer.echo()
    for first, *others in lines:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:])]
        typer.echo("  ".join([first.ljust(widths[0]), *cells]))
