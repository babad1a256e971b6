"""A command line that imports a command only when it is called.

A user error prints one line and exits with code 2, Ctrl-C with 130. Anything else is a bug and shows
its traceback.
"""

import errno
import importlib
import io
import os
import signal
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

# Arguments that several commands have.
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder of `besselnet train`.")]
Device = Annotated[str, typer.Option(help="auto (a GPU if available), cpu, cuda, cuda:1 or mps.")]
Coverage = Annotated[
    float | None,
    typer.Option(
        help="Classification: share of images whose prediction set has the true class, and share not "
        'flagged as "unlike". Default: 0.95.'
    ),
]
ErrorRate = Annotated[
    float | None,
    typer.Option(
        help="Classification: maximum error rate of sure predictions. Default: the first of 0.05, 0.1 "
        "and 0.2 that the validation images can guarantee."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


class Command(NamedTuple):
    """Location of a command: a function or a typer app in a module."""

    module: str
    attribute: str
    help: str


# A full disk, a full share of it, a file that is too large, a disk that fails.
_CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
# What typer raises for a wrong command line, in every version of typer.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


@dataclass(frozen=True)
class Program:
    """A program with several commands.

    Attributes:
        name: name of the executable.
        version: version that `--version` shows.
        about: description for `--help`, one sentence.
        commands: commands by name, in the order of `--help`.
        install: requirement that pip installs for all commands.
    """

    name: str
    version: str
    about: str
    commands: Mapping[str, Command]
    install: str = "besselnet[train]"

    def main(self, arguments: Sequence[str] | None = None) -> NoReturn:
        """Run the command line and exit the process with its exit code."""
        raise SystemExit(self.run(list(sys.argv[1:] if arguments is None else arguments)))

    def run(self, arguments: list[str]) -> int:
        """Run the command line and return its exit code."""
        if isinstance(sys.stdout, io.TextIOWrapper):
            # Names of classes and files may hold what the terminal, or UTF-8, cannot.
            sys.stdout.reconfigure(errors="backslashreplace")

        def show_warning(message: Warning | str, *place: Any, **more: Any) -> None:
            print(f"{self.name}: warning: {' '.join(str(message).split())}", file=sys.stderr)

        try:
            with warnings.catch_warnings():
                warnings.showwarning = show_warning
                # Not `command.main(...)`, which has an answer of its own to every exception.
                command = typer.main.get_command(self._app())
                with command.make_context(self.name, list(arguments)) as context:
                    command.invoke(context)
            sys.stdout.flush()
        except typer.Exit as stop:
            return stop.exit_code
        except KeyboardInterrupt as stop:
            print(f"{self.name}: {str(stop) or 'interrupted'}", file=sys.stderr)
            # As of a process ended by the signal: 130 for Ctrl-C.
            return 128 + getattr(stop, "signal_number", signal.SIGINT)
        except BrokenPipeError:
            # The reader of a pipe has had enough. Nothing more can be said to it.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 128 + signal.SIGPIPE
        except (ValueError, OSError, ImportError, MemoryError, RuntimeError, _UsageError) as error:
            if "--traceback" in arguments or _is_defect(error):
                raise
            text = _one_line(error)
            if isinstance(error, ImportError) and "pip install" not in text:
                # A package that is missing; a name of our own that is missing is a defect.
                if (getattr(error, "name", None) or "besselnet").startswith("besselnet"):
                    raise
                text = f"{text}: pip install '{self.install}'"
            if text:
                print(f"{self.name}: {text}", file=sys.stderr)
            return 2
        return 0

    def load(self, name: str) -> Any:
        """Import a command and return it."""
        place = self.commands[name]
        found = getattr(importlib.import_module(place.module), place.attribute)
        # Inside an app of our own, so that commands do not offer to install completion each by itself.
        host = _new_app()
        if isinstance(found, typer.Typer):
            host.add_typer(found, name=name)
            command: Any = typer.main.get_command(host)
            return _reflow(command.commands[name])
        host.command(name)(found)
        return _reflow(typer.main.get_command(host))

    def _app(self) -> typer.Typer:
        program = self

        class LazyGroup(TyperGroup):
            """Lists commands from the table; imports a command's module when it is called."""

            def list_commands(self, ctx: Any) -> list[str]:
                return list(program.commands)

            def get_command(self, ctx: Any, cmd_name: str) -> Any:
                known = program.commands.get(cmd_name)
                return None if known is None else TyperCommand(cmd_name, help=known.help)

            def resolve_command(self, ctx: Any, args: list[str]) -> Any:
                name, command, rest = super().resolve_command(ctx, args)
                return name, command if name is None else program.load(name), rest

        app = _new_app(cls=LazyGroup, help=self.about)

        @app.callback(invoke_without_command=True)
        def start(
            context: typer.Context,
            version: Annotated[
                bool, typer.Option("--version", help="Show the version and exit.")
            ] = False,
            traceback: Annotated[
                bool, typer.Option("--traceback", help="Show the traceback of an error.")
            ] = False,
        ) -> None:
            if version:
                typer.echo(f"{program.name} {program.version}")
            elif context.invoked_subcommand is None:
                typer.echo(context.get_help())

        return app


def _reflow(command: Any) -> Any:
    """The same command; its help fills the lines of any terminal, but for the indented ones, the examples."""
    paragraphs = (command.help or "").split("\n\n")
    # A backspace alone on a line is how a paragraph is kept from being wrapped.
    command.help = "\n\n".join(
        f"\b\n{text}" if text.startswith(" ") else " ".join(text.split()) for text in paragraphs
    )
    for inner in getattr(command, "commands", {}).values():
        _reflow(inner)
    return command


def _new_app(**options: Any) -> typer.Typer:
    # Plain help: as markup, "[demo]" would vanish, and typer's table gives every flag a "<bool>" to take.
    return typer.Typer(add_completion=False, rich_markup_mode=None, **options)


def _is_defect(error: Exception) -> bool:
    """Whether it is neither a mistake of the user nor a want of memory, for which torch has no type."""
    return isinstance(error, RuntimeError) and not any(
        text in str(error) for text in ("can't allocate memory", "out of memory")
    )


def _one_line(error: Exception) -> str:
    """What went wrong; empty for a group called without a command, which has shown its help."""
    if isinstance(error, _UsageError):
        text = error.format_message()  # type: ignore[attr-defined]
    elif isinstance(error, MemoryError | RuntimeError):
        text = f"not enough memory: use smaller images, batches or networks ({error})"
    elif isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    elif isinstance(error, OSError) and error.errno in _CANNOT_WRITE:
        # Whoever writes a file says which.
        text = f"standard output: {error.strerror}"
    else:
        text = str(error) or type(error).__name__
    return " ".join(text.split())
