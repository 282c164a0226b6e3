"""Progress of a run: a bar on a terminal, an updated line in a notebook, plain lines in a log."""

import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

LOG_EVERY = 5
"""Iterations between two lines in a log."""


class RunProgress:
    """Shows the phase, the iteration, the time left, and each seat's reward and KL."""

    def __init__(self, *, start: int, iterations: int) -> None:
        """`start` is the iteration a run begins or resumes at."""
        self.done, self.first, self.iterations = start, start, iterations
        self.console = Console(
            stderr=True,
            markup=False,  # models write [/INST] and :)
            emoji=False,
            highlight=False,
            soft_wrap=True,
            force_jupyter=False,
        )
        self._began, self._line = time.monotonic(), ""
        self._bar = _Bar(console=self.console) if sys.stderr.isatty() else None
        self._notebook = None if self._bar is not None else _notebook_display()
        if self._bar is not None:
            self._task = self._bar.add_task("starting", total=iterations, completed=start, metrics="")

    def update(self, phase: str, metrics: Mapping[str, float]) -> None:
        """Show `phase`; with metrics, one more iteration is done."""
        self.done += bool(metrics)
        line = describe(metrics) if metrics else ""
        if self._bar is not None:
            self._line = line or self._line
            self._bar.update(self._task, description=phase, completed=self.done, metrics=self._line)
        elif self._notebook is not None:
            self._notebook.update({"text/plain": f"{phase} {self._position()} {line}"}, raw=True)
        elif phase != "training" or (line and self.done % LOG_EVERY == 0):
            self.say(f"iteration {self._position()}: {line or phase}")

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        with suppress(OSError):  # of a log on a full disk
            self.console.print(text)

    def _position(self) -> str:
        per_iteration = (time.monotonic() - self._began) / max(1, self.done - self.first)
        left = per_iteration * (self.iterations - self.done)
        eta = f" ({left / 60:.1f} min left)" if self.done > self.first else ""
        return f"{self.done} of {self.iterations}{eta}"

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        if self._notebook is not None:
            state = "done" if kind is None else "stopped"
            self._notebook.update({"text/plain": f"{state}: {self.done} of {self.iterations}"}, raw=True)


def describe(metrics: Mapping[str, float]) -> str:
    """Task reward and KL of each seat, and tokens per second, in one line."""
    parts = []
    for key, reward in metrics.items():
        if key.endswith("/task_reward"):
            seat, policy, _ = key.split("/")
            kl = metrics[f"{seat}/{policy}/kl"]
            parts.append(f"{seat.split('_')[0]} {policy} {reward:+.2f} KL {kl:.1f}")
    return " | ".join([*parts, f"{metrics['speed/tokens/per_second']:.0f} tok/s"])


class _Bar(Progress):
    """A bar on the first line, metrics on the second: both fit 80 columns."""

    def __init__(self, *, console: Console) -> None:
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
        )

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            if task.fields["metrics"]:
                yield Text(task.fields["metrics"], overflow="ellipsis", no_wrap=True)


def _notebook_display() -> Any:
    """A display that can be updated, in a Jupyter kernel; None elsewhere."""
    if "IPython" not in sys.modules:
        return None
    from IPython import get_ipython
    from IPython.display import display

    shell = get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    shown: Any = display
    return shown({"text/plain": "starting"}, raw=True, display_id=True)
