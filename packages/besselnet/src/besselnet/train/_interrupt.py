"""Ctrl-C and termination as a request that the training loop grants between two steps."""

import signal
import threading
from types import FrameType, TracebackType


class Interrupted(KeyboardInterrupt):
    """Training was asked to stop, has saved its state and can be resumed."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.signal_number = signal_number


class StopRequest:
    """Context in which SIGINT and SIGTERM set `signal_number` instead of ending the process.

    A second signal of the same kind acts at once, as it would outside. Signals can be caught in
    the main thread only; in any other the context does nothing.
    """

    def __init__(self) -> None:
        self.signal_number = 0
        self._before: dict[int, object] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal_number = number
        signal.signal(number, self._before[number])  # type: ignore[arg-type]
