"""The command line: one function per command, loaded only when it is called.

A user's mistake ends in one line and exit code 2, Ctrl-C in 130; anything else is a defect and shows
its traceback.
"""

import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

__all__ = ["main"]


class _Command(NamedTuple):
    """Where a command lives: a function, or a typer app, in a module of this room."""

    module: str
    attribute: str
    help: str


COMMANDS = {
    "demo": _Command("demo", "demo", "Train on upright digits, test on turned ones. Start here."),
    "train": _Command("train", "train", "Train a network on a data set or a folder of images."),
    "evaluate": _Command("train", "evaluate", "Test a trained network, upright and turned."),
    "predict": _Command("predict", "predict", "Name the class of image files."),
    "inspect": _Command("train", "inspect", "Show what a trained network is, costs and keeps."),
    "export": _Command("export", "export", "Write a trained network as ONNX or plain PyTorch."),
    "data": _Command("data", "app", "List, fetch and look at data sets."),
    "models": _Command("models", "models", "List the networks, or describe one."),
    "study": _Command("study", "app", "Run every training of a study, and read its tables."),
    "figure": _Command("figure", "figure", "Draw the figures of the paper, and more."),
    "bench": _Command("bench", "bench", "Measure speed and memory of layers and networks."),
}

# What typer raises for a wrong command line, in every version of typer.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


class _LazyGroup(TyperGroup):
    """Lists commands from the table above; imports a command's module when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        known = COMMANDS.get(cmd_name)
        return None if known is None else TyperCommand(cmd_name, help=known.help)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if name is None else _load(name), rest


def _load(name: str) -> Any:
    """The command itself."""
    place = COMMANDS[name]
    found = getattr(importlib.import_module(f"besselnet.cli.{place.module}"), place.attribute)
    # Inside an app of our own, so that commands do not offer to install completion each by itself.
    host = _new_app()
    if isinstance(found, typer.Typer):
        host.add_typer(found, name=name)
        command: Any = typer.main.get_command(host)
        return _reflow(command.commands[name])
    host.command(name)(found)
    return _reflow(typer.main.get_command(host))


def _reflow(command: Any) -> Any:
    """The same command; its help fills the lines of any terminal, where typer keeps those of the source."""
    paragraphs = (command.help or "").split("\n\n")
    command.help = "\n\n".join(
        text if text.startswith(" ") else " ".join(text.split()) for text in paragraphs
    )
    for inner in getattr(command, "commands", {}).values():
        _reflow(inner)
    return command


def _new_app(**options: Any) -> typer.Typer:
    return typer.Typer(add_completion=False, pretty_exceptions_enable=False, **options)


app = _new_app(cls=_LazyGroup)


@app.callback(invoke_without_command=True)
def _besselnet(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Show where in the program an error arose.")
    ] = False,
) -> None:
    """Image recognition that does not care how the image is turned."""
    if version:
        from besselnet._version import __version__

        typer.echo(f"besselnet {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and end the process with its exit code."""
    raise SystemExit(_run(list(sys.argv[1:] if arguments is None else arguments)))


def _run(arguments: list[str]) -> int:
    try:
        # Not `command.main(...)`, which has an answer of its own to every exception.
        command = typer.main.get_command(app)
        with command.make_context("besselnet", list(arguments)) as context:
            command.invoke(context)
        sys.stdout.flush()
    except typer.Exit as stop:
        return stop.exit_code
    except KeyboardInterrupt as stop:
        print(f"besselnet: {str(stop) or 'interrupted'}", file=sys.stderr)
        # As of a process ended by the signal: 130 for Ctrl-C.
        return 128 + getattr(stop, "signal_number", signal.SIGINT)
    except BrokenPipeError:
        # The reader of a pipe has had enough. Nothing more can be said to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except (ValueError, OSError, _UsageError) as error:
        if "--traceback" in arguments:
            raise
        text = _one_line(error)
        if text:
            print(f"besselnet: {text}", file=sys.stderr)
        return 2
    return 0


def _one_line(error: Exception) -> str:
    """What went wrong; empty for a group called without a command, which has shown its help."""
    if isinstance(error, _UsageError):
        text = error.format_message()  # type: ignore[attr-defined]
    elif isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    else:
        text = str(error) or type(error).__name__
    return " ".join(text.split())
