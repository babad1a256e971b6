"""Progress output: a bar on a terminal, plain lines elsewhere."""

import sys
import time
from datetime import datetime
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

# Seconds between two plain lines of progress: often enough to see it lives, rare enough to read.
LINE_EVERY = 30.0


class ProgressLog:
    """Show progress through `total` units of work, and append lines to a log file.

    Args:
        total: units of work; None if unknown.
        unit: name of the units, in the plural.
        done: units that are already done, if work is resumed.
        log: file to append the lines to.
        stream: output stream. Default: standard output.
        quiet: show nothing (the log file is still written).
    """

    def __init__(
        self,
        total: int | None,
        *,
        unit: str,
        done: int = 0,
        log: Path | None = None,
        stream: TextIO | None = None,
        quiet: bool = False,
    ) -> None:
        self._total, self._unit, self._done, self._log = total, unit, done, log
        self._console = Console(file=stream or sys.stdout, quiet=quiet, highlight=False)
        self._bar: Progress | None = None
        self._started = self._last_line = time.monotonic()
        self._done_before = done
        if self._console.is_terminal and not quiet:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn(unit),
                TimeRemainingColumn(),
                console=self._console,
                transient=True,
            )
            self._task = self._bar.add_task("", total=total, completed=done)
            self._bar.start()

    def __enter__(self) -> "ProgressLog":
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, units: int = 1, text: str = "") -> None:
        """Advance by `units`; `text` describes the current state."""
        self._done += units
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, description=text)
        elif time.monotonic() - self._last_line > LINE_EVERY:
            total = "" if self._total is None else f"/{self._total}"
            self.line(f"{self._unit} {self._done}{total}  {text}  {self.time_left()}")

    def expect(self, total: int) -> None:
        """Update the total number of units."""
        self._total = total
        if self._bar is not None:
            self._bar.update(self._task, total=total)

    def rate(self) -> str:
        """Return the rate since the start, such as "310/s"; empty while unknown."""
        seconds = time.monotonic() - self._started
        fresh = self._done - self._done_before
        return f"{fresh / seconds:.0f}/s" if fresh > 0 and seconds > 0 else ""

    def line(self, text: str) -> None:
        """Print a line and append it to the log."""
        self._last_line = time.monotonic()
        if self._bar is not None:
            self._console.print(text, markup=False, soft_wrap=True)
        elif not self._console.quiet:
            print(text, file=self._console.file, flush=True)
        if self._log is not None:
            stamped = f"{datetime.now().isoformat(' ', 'seconds')}  {text}\n"
            try:
                with self._log.open("a", encoding="utf-8") as file:
                    file.write(stamped)
            except OSError as error:
                # What a full disk raises does not say which file it was.
                error.filename = str(self._log)
                raise

    def time_left(self) -> str:
        """Return the estimated time left, such as "1m40s left"; empty while unknown."""
        fresh = self._done - self._done_before
        if fresh <= 0 or self._total is None:
            return ""
        pace = (time.monotonic() - self._started) / fresh
        return f"{in_words(pace * (self._total - self._done))} left"


def in_words(seconds: float) -> str:
    """Format a duration: "8s", "1m40s", "2h05m"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
