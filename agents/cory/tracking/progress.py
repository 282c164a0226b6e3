"""Progress of a run: a bar on a terminal, an updated line in a notebook, plain lines in a log, or JSON."""

import json
import math
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, Self

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

Log = Literal["auto", "quiet", "json"]
"""`auto`: by where stderr goes. `quiet`: warnings only. `json`: one JSON object a line to stdout."""

LOG_EVERY = 5
"""Iterations between two lines in a log."""

PHASES = {
    "exchange": "exchanging",
    "sample": "sampling",
    "judge": "judging",
    "statistics": "scoring tokens",
    "critic": "training the critic",
    "share": "sharing",
    "update": "updating",
}
"""Phases of an iteration, as a bar and a notebook name them; a log is too slow for them."""


class RunProgress:
    """Shows the phase, the iteration, the time left, and each seat's reward and KL."""

    def __init__(self, *, start: int, iterations: int, log: Log = "auto") -> None:
        """`start` is the iteration a run begins or resumes at."""
        self.done, self.first, self.iterations, self.log = start, start, iterations, log
        self.console = Console(
            stderr=True,
            markup=False,  # models write [/INST] and :)
            emoji=False,
            highlight=False,
            soft_wrap=True,
            force_jupyter=False,
        )
        self._began, self._line = time.monotonic(), ""
        watched = log == "auto"
        self._bar = _Bar(console=self.console) if watched and sys.stderr.isatty() else None
        self._notebook = _notebook_display() if watched and self._bar is None else None
        if self._bar is not None:
            self._task = self._bar.add_task("starting", total=iterations, completed=start, metrics="")

    def update(self, phase: str, metrics: Mapping[str, float]) -> None:
        """Show `phase`; with metrics, one more iteration is done."""
        self.done += bool(metrics)
        self._line = describe(metrics) if metrics else self._line
        shown = PHASES.get(phase, phase)
        if self.log == "json":
            self._emit("iteration" if metrics else "phase", phase=phase, metrics=metrics)
        elif self._bar is not None:
            self._bar.update(self._task, description=shown, completed=self.done, metrics=self._line)
        elif self._notebook is not None:
            text = f"{shown} {self._position()} {self._line}".rstrip()
            self._notebook.update({"text/plain": text}, raw=True)
        elif phase not in ("training", *PHASES):
            self.say(f"iteration {self._position()}: {shown}")
        elif metrics and self.done % LOG_EVERY == 0:
            self.say(f"iteration {self._position()}: {self._line}")

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        if self.log == "json":
            self._emit("message", text=text)
        elif self.log == "auto":
            self._print(text)

    def warn(self, text: str) -> None:
        """Print a warning, which is shown to those who want quiet too."""
        if self.log == "json":
            self._emit("warning", text=text)
        else:
            self._print(text)

    def _print(self, text: str) -> None:
        with suppress(OSError):  # of a log on a full disk
            self.console.print(text)

    def _emit(self, event: str, **fields: Any) -> None:
        """Print one JSON object to stdout: event, iteration, iterations, seconds and the given fields."""
        if "metrics" in fields:
            fields["metrics"] = {k: v if math.isfinite(v) else None for k, v in fields["metrics"].items()}
        head = {"event": event, "iteration": self.done, "iterations": self.iterations}
        times = {"seconds": round(time.monotonic() - self._began, 3), "seconds_left": self._left()}
        with suppress(OSError):
            print(json.dumps(head | times | fields, ensure_ascii=False), flush=True)

    def _left(self) -> float | None:
        """Seconds left at the mean speed of this run, None before its first iteration."""
        if self.done == self.first:
            return None
        per_iteration = (time.monotonic() - self._began) / (self.done - self.first)
        return round(per_iteration * (self.iterations - self.done), 3)

    def _position(self) -> str:
        left = self._left()
        eta = f" ({left / 60:.1f} min left)" if left is not None else ""
        return f"{self.done} of {self.iterations}{eta}"

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        state = "done" if kind is None else "stopped"
        if self._bar is not None:
            self._bar.update(self._task, description=state)
            self._bar.stop()
        if self._notebook is not None:
            text = f"{state}: {self.done} of {self.iterations} {self._line}".rstrip()
            self._notebook.update({"text/plain": text}, raw=True)
        if self.log == "json":
            self._emit("end", state=state)


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
