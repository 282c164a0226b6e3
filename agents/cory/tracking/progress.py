"""Progress of a run: a bar on a terminal, an updated line in a notebook, plain lines in a log, or JSON."""

import json
import math
import sys
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from cory.runtime.terminal import plain

Log = Literal["auto", "quiet", "json"]
"""`auto`: by where stderr goes. `quiet`: warnings only. `json`: one JSON object a line to stdout."""

LOG_EVERY = 30.0
"""Seconds after which a log has another line, whatever the run is doing."""

TRAINING, EVALUATED = "training", "evaluated"
EXPORTING, REPORTING = "exporting policies", "drawing the report"
"""Phases outside an iteration and an evaluation: with metrics, an iteration or an evaluation has ended."""

ENDING = 10.0
"""Seconds that export and report are taken for before they begin."""

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
    """Shows the phase, the iteration, the time left, each seat's reward and KL, and every evaluation."""

    def __init__(
        self,
        *,
        start: int,
        iterations: int,
        evaluations: Collection[int] = (),
        policies: int = 1,
        ending: float = 0.0,
        log: Log = "auto",
    ) -> None:
        """`start` is the iteration a run begins or resumes at.

        The time left counts `evaluations`, at the start of these iterations, of so many `policies`, and
        `ending` seconds after the last one.
        """
        self.done, self.first, self.iterations, self.log = start, start, iterations, log
        self._evaluations, self._policies, self._ending = set(evaluations), policies, ending
        self._phase, self._seconds = "starting", Seconds([], [])
        self.console = Console(
            stderr=True,
            markup=False,  # models write [/INST] and :)
            emoji=False,
            highlight=False,
            soft_wrap=True,
            force_jupyter=False,
        )
        self._began = self._marked = self._printed = time.monotonic()
        self._line, self._ended = "", threading.Event()
        watched = log == "auto"
        columns = TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn()
        times = TimeElapsedColumn(), TextColumn("{task.fields[left]}")
        is_terminal = watched and sys.stderr.isatty()
        self._bar = _Bar(*columns, *times, console=self.console) if is_terminal else None
        self._notebook = _notebook_display() if watched and self._bar is None else None
        self._is_log = watched and self._bar is None and self._notebook is None
        if self._bar is not None:
            self._task = self._bar.add_task(
                "starting", total=iterations, completed=start, metrics="", left=""
            )

    def update(self, phase: str, metrics: Mapping[str, float]) -> None:
        """Show `phase`; with metrics, an iteration or an evaluation has ended."""
        self._phase = phase
        if phase == EVALUATED:
            self._show_evaluation(metrics)
            return
        if metrics:
            self.done += 1
            self._seconds.iterations.append(self._since_mark(reset=True))
            self._line = describe(metrics)
        shown = plain(PHASES.get(phase, phase))
        if self.log == "json":
            self._emit("iteration" if metrics else "phase", phase=phase, metrics=metrics)
        elif self._bar is not None:
            now: dict[str, Any] = {"completed": self.done, "metrics": self._line, "left": self._eta()}
            self._bar.update(self._task, description=shown, **now)
        elif self._notebook is not None:
            text = f"{shown} {self._position()} {self._line}".rstrip()
            self._notebook.update({"text/plain": text}, raw=True)
        elif metrics and (self.done in (self.first + 1, self.iterations) or self._is_silent()):
            self.say(f"iteration {self._position()}: {self._line}")

    def _show_evaluation(self, metrics: Mapping[str, float]) -> None:
        """Show the held-out results of an evaluation, which has ended."""
        self._seconds.evaluations.append(self._since_mark(reset=True))
        self._evaluations.discard(self.done)
        if self.log == "json":
            self._emit("evaluation", phase=EVALUATED, metrics=metrics)
        elif line := held_out(metrics):
            self.say(f"iteration {self._position()}: {line}")

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
        self._printed = time.monotonic()
        with suppress(OSError):  # of a log on a full disk
            self.console.print(plain(text))

    def _emit(self, event: str, **fields: Any) -> None:
        """Print one JSON object to stdout: event, iteration, iterations, seconds and the given fields."""
        if "metrics" in fields:
            fields["metrics"] = {k: v if math.isfinite(v) else None for k, v in fields["metrics"].items()}
        head = {"event": event, "iteration": self.done, "iterations": self.iterations}
        times = {"seconds": round(time.monotonic() - self._began, 3), "seconds_left": self._left()}
        with suppress(OSError):
            print(json.dumps(head | times | fields), flush=True)

    def _is_silent(self) -> bool:
        """Whether a log has had no line for so long that it needs one."""
        return time.monotonic() - self._printed >= LOG_EVERY

    def _break_silence(self) -> None:
        """Print a line to a log whenever nothing else has for `LOG_EVERY` seconds, until the run ends."""
        while not self._ended.wait(max(0.1, LOG_EVERY - (time.monotonic() - self._printed))):
            if self._is_silent():
                self.say(f"iteration {self._position()}: {PHASES.get(self._phase, self._phase)}")

    def _since_mark(self, *, reset: bool = False) -> float:
        """Seconds since an iteration or an evaluation has ended last; with `reset`, one ends now."""
        now = time.monotonic()
        seconds = now - self._marked
        self._marked = now if reset else self._marked
        return seconds

    def _left(self) -> float | None:
        """Seconds left: iterations, evaluations and the end; None before the first iteration has ended."""
        if not self._seconds.iterations:
            return None
        iteration, evaluation = self._seconds.means(self._policies)
        pending = sum(at >= self.done for at in self._evaluations)
        if self._phase in (EXPORTING, REPORTING):
            running, pending = self._ending, 0
        else:
            running = evaluation if self.done in self._evaluations else iteration
        left = iteration * (self.iterations - self.done) + evaluation * pending + self._ending
        return round(left - min(self._since_mark(), running), 3)

    def _eta(self) -> str:
        """The time left in words; empty before it is known, and where the end takes longer than estimated."""
        left = self._left()
        if left is None or left < 1:
            return ""
        return f"{left / 60:.1f} min left" if left >= 60 else f"{left:.0f} s left"

    def _position(self) -> str:
        eta = self._eta()
        return f"{self.done} of {self.iterations}{eta and f' ({eta})'}"

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        if self._is_log:
            threading.Thread(target=self._break_silence, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
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


class Seconds(NamedTuple):
    """How long iterations and evaluations took, with the saves before them."""

    iterations: list[float]
    evaluations: list[float]

    def means(self, policies: int) -> tuple[float, float]:
        """The seconds of an iteration and of an evaluation, 0 before there was one.

        In the first evaluation all policies equal their reference, which alone is evaluated.
        """
        first, *later = self.evaluations or [0.0]
        evaluation = sum(later) / len(later) if later else first * policies
        return sum(self.iterations) / len(self.iterations), evaluation


class _Bar(Progress):
    """A bar on the first line, metrics on the second: both fit 80 columns."""

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
