"""Progress of a run: a bar on a terminal, plain lines in a log or a notebook."""

import math
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Self

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from cory.runtime.terminal import plain

LOG_EVERY = 30.0
"""Seconds after which a log has another line."""

TRAINING, EVALUATED = "training", "evaluated"
"""Phases that end with metrics: an iteration or an evaluation has ended."""

PHASES = {
    "exchange": "exchanging",
    "sample": "sampling",
    "judge": "judging",
    "statistics": "scoring tokens",
    "critic": "training the critic",
    "share": "sharing",
    "update": "updating",
}
"""Phases of an iteration, as a bar names them."""


class RunProgress:
    """Shows the phase, the iteration, the time left, each seat's reward and KL, and every evaluation."""

    def __init__(self, *, start: int, iterations: int, quiet: bool = False) -> None:
        """`start` is the iteration a run begins or resumes at; with `quiet` only warnings are shown."""
        self.done, self.first, self.iterations, self.quiet = start, start, iterations, quiet
        self.console = Console(
            stderr=True,
            markup=False,  # models write [/INST] and :)
            emoji=False,
            highlight=False,
            soft_wrap=True,
            force_jupyter=False,
        )
        self._started = self._printed = time.monotonic()
        self._left = 0.0
        """Seconds that the remaining iterations take, by the mean of those before; 0 before it is known."""
        self._line = ""
        columns = TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn()
        times = TimeElapsedColumn(), TextColumn("{task.fields[left]}")
        is_terminal = not quiet and sys.stderr.isatty()
        self._bar = _Bar(*columns, *times, console=self.console) if is_terminal else None
        if self._bar is not None:
            self._task = self._bar.add_task(
                "starting", total=iterations, completed=start, metrics="", left=""
            )

    def update(self, phase: str, metrics: Mapping[str, float]) -> None:
        """Show `phase`; with metrics, an iteration or an evaluation has ended."""
        if phase == EVALUATED:
            if self.done == self.first:  # the time of iterations begins after it
                self._started = time.monotonic()
            if line := held_out(metrics):
                self.say(f"iteration {self._position()}: {line}")
            return
        if metrics:
            self.done += 1
            mean = (time.monotonic() - self._started) / (self.done - self.first)
            self._left, self._line = mean * (self.iterations - self.done), describe(metrics)
        name = plain(PHASES.get(phase, phase))
        silent = time.monotonic() - self._printed >= LOG_EVERY
        if self._bar is not None:
            now: dict[str, Any] = {"completed": self.done, "metrics": self._line, "left": self._eta()}
            self._bar.update(self._task, description=name, **now)
        elif silent or (metrics and self.done in (self.first + 1, self.iterations)):
            self.say(f"iteration {self._position()}: {self._line if metrics else name}")

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        if not self.quiet:
            self.warn(text)

    def warn(self, text: str) -> None:
        """Print a warning, which is shown to those who want quiet too."""
        self._printed = time.monotonic()
        with suppress(OSError):  # of a log on a full disk
            self.console.print(plain(text))

    def _eta(self) -> str:
        """The time left in words; empty before it is known and at the end."""
        if not self._left:
            return ""
        return f"{self._left / 60:.1f} min left" if self._left >= 60 else f"{self._left:.0f} s left"

    def _position(self) -> str:
        eta = self._eta()
        return f"{self.done} of {self.iterations}{eta and f' ({eta})'}"

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._bar is not None:
            self._bar.update(self._task, description="done" if kind is None else "stopped")
            self._bar.stop()


def describe(metrics: Mapping[str, float]) -> str:
    """Task reward and KL of each seat, and tokens per second, in one line."""
    parts = []
    for key, reward in metrics.items():
        if key.endswith("/task_reward"):
            seat, policy, _ = key.split("/")
            kl = metrics.get(f"{seat}/{policy}/kl")  # None for a player that does not learn
            text = f"{seat.split('_')[0]} {policy} {reward:+.2f}"
            parts.append(text if kl is None else f"{text} KL {kl:.1f}")
    return " | ".join([*parts, f"{metrics['speed/tokens/per_second']:.0f} tok/s"])


def held_out(metrics: Mapping[str, float]) -> str:
    """Held-out task reward of each policy, its gain over the reference, and its KL, in one line."""
    rewards = {
        key.split("/")[1]: value
        for key, value in metrics.items()
        if key.startswith("eval/") and key.endswith("/task_reward")
    }
    parts = []
    for name, reward in rewards.items():
        if name.startswith("reference"):
            continue
        before = rewards.get(f"reference_{name}", rewards.get("reference", math.nan))
        gain = f" ({reward - before:+.3f})" if math.isfinite(reward - before) else ""
        kl = metrics.get(f"eval/{name}/kl", math.nan)
        parts.append(f"{name} {reward:.3f}{gain}" + (f" KL {kl:.1f}" if math.isfinite(kl) else ""))
    return f"held out: {' | '.join(parts)}" if parts else ""


class _Bar(Progress):
    """A bar on the first line, metrics on the second: both fit 80 columns."""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            if task.fields["metrics"]:
                yield Text(task.fields["metrics"], overflow="ellipsis", no_wrap=True)
