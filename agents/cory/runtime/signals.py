"""SIGTERM and SIGINT as a flag that long work looks at, so that nothing is lost that has been done."""

import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Self

Interrupt = Callable[[], None]
"""Called in the middle of long work; may raise."""


def never() -> None:
    """The interrupt that does not."""


class Stopped(Exception):  # noqa: N818 (no error)
    """Somebody asked the run to stop. `number` is the signal's."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(f"stopped by {signal.Signals(number).name}")


class Signals:
    """Inside, the first SIGTERM or SIGINT sets a flag and a second one leaves the process at once.

    Outside the main thread, which alone can receive signals, nothing is changed.
    """

    def __init__(self, *, grace: float) -> None:
        """`grace` is how many seconds an iteration whose updates have begun may still take."""
        self.grace = grace
        self._number: int | None = None
        self._at = 0.0

    def check(self) -> None:
        """Raise `Stopped` if a signal has come."""
        if self._number is not None:
            raise Stopped(self._number)

    def check_grace(self) -> None:
        """Raise `Stopped` if a signal has come and its grace has run out."""
        if self._number is not None and time.monotonic() - self._at > self.grace:
            raise Stopped(self._number)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if self._number is not None:
            os._exit(128 + number)
        self._number, self._at = number, time.monotonic()

    def __enter__(self) -> Self:
        self._before = {}
        if threading.current_thread() is threading.main_thread():
            self._before = {
                number: signal.signal(number, self._receive) for number in (signal.SIGTERM, signal.SIGINT)
            }
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
