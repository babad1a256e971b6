"""The command line `besselnet`, which needs the extra `train`.

Use `Program` and `Command` to build other command lines with the same behaviour.
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from besselnet._version import __version__

if TYPE_CHECKING:
    from besselnet.cli._program import Command, Program

__all__ = ["Command", "Program", "main", "program"]

_COMMANDS = {
    "demo": ("_train", "demo", "Start here: train on upright digits, test on rotated digits."),
    "new": ("_data", "new", "Check your images and preview the training."),
    "train": ("_train", "train", "Train a network on a data set or a folder of images."),
    "evaluate": (
        "_train",
        "evaluate",
        "Test a trained network; also on rotated or corrupted images.",
    ),
    "predict": ("_predict", "predict", "Predict the class of image files."),
    "inspect": ("_train", "inspect", "Show the size, cost and equivariance of a trained network."),
    "play": ("_play", "play", "Rotate images in your browser and watch the predictions."),
    "export": ("_export", "export", "Export a trained network to ONNX or plain PyTorch."),
    "data": ("_data", "app", "List, download and view data sets."),
    "models": ("_models", "models", "List the networks or describe one."),
    "info": ("_info", "info", "Show the native kernel, package versions and devices."),
}


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run `besselnet` and exit the process with its exit code."""
    try:
        besselnet = program()
    except ImportError as error:
        print(
            f"besselnet: the command line needs a missing package ({error}); "
            "install it with: pip install 'besselnet[train]'",
            file=sys.stderr,
        )
        raise SystemExit(2) from None
    besselnet.main(arguments)


def program() -> "Program":
    """Return the program `besselnet` with all its commands."""
    from besselnet.cli._program import Command, Program

    commands = {
        name: Command(f"besselnet.cli.{module}", attribute, text)
        for name, (module, attribute, text) in _COMMANDS.items()
    }
    about = "Rotation-equivariant image recognition with PyTorch."
    return Program("besselnet", __version__, about, commands)


def __getattr__(name: str) -> Any:
    """Import `Command` and `Program` on first use, because they need typer."""
    if name in ("Command", "Program"):
        from besselnet.cli import _program

        return getattr(_program, name)
    raise AttributeError(f"module 'besselnet.cli' has no attribute {name!r}")
