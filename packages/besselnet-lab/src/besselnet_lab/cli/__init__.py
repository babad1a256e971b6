"""The command line `besselnet-lab`."""

from besselnet.cli import Command, Program
from besselnet_lab._version import __version__

__all__ = ["main", "program"]

_ROOM = "besselnet_lab.cli"
program = Program(
    "besselnet-lab",
    __version__,
    "Reproduce the studies, benchmarks and figures of besselnet.",
    {
        "study": Command(
            f"{_ROOM}.study", "app", "Run the trainings of a study and report the results."
        ),
        "bench": Command(
            f"{_ROOM}.bench", "bench", "Measure the speed and memory of layers and networks."
        ),
        "survey": Command(
            f"{_ROOM}.survey", "survey", "Estimate the hours and disk space for millions of images."
        ),
        "figure": Command(f"{_ROOM}.figure", "figure", "Draw the figures of the paper and more."),
    },
)
main = program.main
