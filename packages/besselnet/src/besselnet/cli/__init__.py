"""The command line `besselnet`, which needs the extra `train`.

`Program` and `Command` are for further programs of the same manners.
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from besselnet._version import __version__

if TYPE_CHECKING:
    from besselnet.cli._program import Command, Program

__all__ = ["Command", "Program", "main", "program"]

_COMMANDS = {
    "demo": ("_train", "demo", "Start here: train on upright digits, test on rotated ones."),
    "new": ("_data", "new", "Look at your images, and at what would be trained."),
    "train": ("_train", "train", "Train a network on a data set or a folder of images."),
    "evaluate": (
        "_train",
        "evaluate",
        "Test a trained network: upright, rotated, corrupted, attacked.",
    ),
    "predict": ("_predict", "predict", "Name the class of image files."),
    "inspect": ("_train", "inspect", "Show what a trained network is, costs and keeps."),
    "play": ("_play", "play", "Rotate images in your browser and watch networks answer."),
    "export": ("_export", "export", "Write a trained network as ONNX or plain PyTorch."),
    "data": ("_data", "app", "List, fetch and look at data sets."),
    "models": ("_models", "models", "List the networks, or describe one."),
    "info": ("_info", "info", "Show the kernel in use and why, versions, devices."),
}


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run `besselnet` and end the process with its exit code."""
    try:
        besselnet = program()
    except ImportError as error:
        print(
            f"besselnet: the command line needs a package that is missing ({error}); "
            "install it with: pip install 'besselnet[train]'",
            file=sys.stderr,
        )
        raise SystemExit(2) from None
    besselnet.main(arguments)


def program() -> "Program":
    """The program `besselnet` with all its commands."""
    from besselnet.cli._program import Command, Program

    commands = {
        name: Command(f"besselnet.cli.{module}", attribute, text)
        for name, (module, attribute, text) in _COMMANDS.items()
    }
    about = "Image recognition that does not depend on how the image is rotated."
    return Program("besselnet", __version__, about, commands)


def __getattr__(name: str) -> Any:
    """`Command` and `Program` when they are first used: they need typer."""
    if name in ("Command", "Program"):
        from besselnet.cli import _program

        return getattr(_program, name)
    raise AttributeError(f"module 'besselnet.cli' has no attribute {name!r}")
