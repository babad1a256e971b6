"""The command line `besselnet-lab`."""

from besselnet.cli import Command, Program
from besselnet_lab._version import __version__

__all__ = ["main", "program"]

_ROOM = "besselnet_lab.cli"
program = Program(
    "besselnet-lab",
    __version__,
    "The study of the paper, benchmarks and figures of besselnet.",
    {
        "study": Command(
            f"{_ROOM}.study", "app", "Run every training of a study, and read its tables."
        ),
        "bench": Command(
            f"{_ROOM}.bench", "bench", "Measure speed and memory of layers and networks."
        ),
        "survey": Command(
            f"{_ROOM}.survey", "survey", "Tell what millions of images cost in hours and disk."
        ),
        "figure": Command(f"{_ROOM}.figure", "figure", "Draw the figures of the paper, and more."),
    },
)
main = program.main
