"""Signal handling: SIGTERM and SIGINT set a flag; `check` stops long computations so that a run is saved."""

import os
import signal
import threading
import time
from contextvars import ContextVar
from types import FrameType, TracebackType
from typing import Self

GRACE = 30.0
"""Seconds that an update in progress may still take after a signal; one that takes longer is lost."""


class Stopped(Exception):  # noqa: N818 (no error)
    """The run was stopped by the signal `number`."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(f"stopped by {signal.Signals(number).name}")

    def __reduce__(self) -> tuple[type, tuple[int]]:
        return type(self), (self.number,)


REPEATED_WITHIN = 1.0
"""Seconds within which a second signal is taken for the first one sent twice (`timeout` signals a process
group, and make passes the signal on once more)."""


class Signals:
    """Context in which the first SIGTERM or SIGINT sets a flag and a later one exits the process.

    The first is answered at once on stderr: what is waited for, and what a second one does. Only the main
    thread can receive signals; in other threads nothing is changed.
    """

    def __init__(self) -> None:
        self._number: int | None = None
        self._received_at = 0.0

    def check(self, grace: float = 0.0) -> None:
        """Raise `Stopped` if a signal was received more than `grace` seconds ago."""
        if self._number is not None and time.monotonic() - self._received_at >= grace:
            raise Stopped(self._number)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if self._number is None:
            self._number, self._received_at = number, time.monotonic()
            text = (
                f"{signal.Signals(number).name}: stopping as soon as the state can be saved; an update in "
                f"progress may take {GRACE:g} s more. A second signal ends the process at once, without "
                "a checkpoint.\n"
            )
            os.write(2, text.encode())  # a print may be interrupted by this very handler
        elif time.monotonic() - self._received_at > REPEATED_WITHIN:
            os._exit(128 + number)

    def __enter__(self) -> Self:
        self._token = _active.set(self)
        self._before = {}
        if threading.current_thread() is threading.main_thread():
            self._before = {
                number: signal.signal(number, self._receive) for number in (signal.SIGTERM, signal.SIGINT)
            }
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _active.reset(self._token)
        for number, handler in self._before.items():
            signal.signal(number, handler)


_active: ContextVar[Signals | None] = ContextVar("signals", default=None)


def check(grace: float = 0.0) -> None:
    """`Signals.check` of the innermost context; nothing outside of one."""
    if (signals := _active.get()) is not None:
        signals.check(grace)
