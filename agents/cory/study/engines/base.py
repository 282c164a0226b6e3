"""What all engines share: runs in, outcomes out, lines of progress, and a stop after which runs go on."""

import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cory.runtime.signals import Signals
from cory.study.plan import PlannedRun
from cory.study.records import log_of, seconds_of
from cory.tracking.tracker import METRICS, read_lines

LOG_LINES = 8
"""Last lines of a failed run's log that are reported."""
SAY_EVERY = 30.0
"""Seconds between two lines of progress while no run ends."""
POLL = 0.2
"""Seconds that are waited for the end of a run before signals are looked at."""

Handle = Any
"""What an engine knows a run by that it has started."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended."""

    run: PlannedRun
    error: str = ""
    """Empty for a run that finished."""
    log: tuple[str, ...] = ()
    """The last lines of a failed run's log."""


class Engine(ABC):
    """Trains runs; a subclass starts them, waits for them and stops them."""

    def __init__(self, out: Path, *, jobs: int | None, say: Callable[[str], None]) -> None:
        """`jobs`: runs at a time, None = `places`. `say` prints a line of progress."""
        self.out, self.jobs, self.say = out, jobs, say

    def train(self, runs: Sequence[PlannedRun]) -> list[Outcome]:
        """Train every run; how each ended. `Stopped` after Ctrl-C or SIGTERM, once the runs have saved."""
        todo, outcomes = deque(runs), list[Outcome]()
        jobs = self.jobs or self.places(runs)
        running: dict[Handle, PlannedRun] = {}
        before, began = sum(self._progress(runs)[1].values()), time.monotonic()
        reported_at = began
        with Signals() as signals:
            try:
                while todo or running:
                    signals.check()
                    while todo and len(running) < jobs:
                        run = todo.popleft()
                        running[self.start(run)] = run
                    ended = self.wait(list(running))
                    for handle in ended:
                        outcomes.append(self._outcome(running.pop(handle), self.error(handle)))
                    if ended or time.monotonic() - reported_at > SAY_EVERY:
                        reported_at = time.monotonic()
                        left = self._left(runs, [*todo, *running.values()], before, reported_at - began)
                        eta = f" ({left / 60:.1f} min left)" if left is not None else ""
                        self.say(f"{len(outcomes)} of {len(runs)} runs{eta}")
            except BaseException:
                self.stop(list(running))
                raise
        return outcomes

    def _progress(self, runs: Sequence[PlannedRun]) -> tuple[Counter[str], dict[str, float]]:
        """By task: the iterations that runs have behind them, and their seconds."""
        done, seconds = Counter[str](), defaultdict[str, float](float)
        for run in runs:
            path = self.out / run.name / METRICS
            if path.exists() and (rows := read_lines(path)):
                done[run.task] += min(run.iterations, int(rows[-1]["iteration"]) + 1)
                seconds[run.task] += seconds_of(rows)
        return done, seconds

    def _left(
        self, runs: Sequence[PlannedRun], unended: Sequence[PlannedRun], before: float, passed: float
    ) -> float | None:
        """Seconds until all end, if the iterations of each task take as long as so far; None while unknown.

        As many runs go on at a time as did in the seconds that have `passed`, `before` which they had taken
        so many.
        """
        done, seconds = self._progress(runs)
        spent = sum(seconds.values())
        if not done.total() or spent <= before:
            return None
        left = Counter[str]()
        for run in unended:
            left[run.task] += run.iterations
        left.subtract(self._progress(unended)[0])
        usual = spent / done.total()
        costs = {task: seconds[task] / done[task] if done[task] else usual for task in left}
        return sum(left[task] * costs[task] for task in left) * passed / (spent - before)

    def _outcome(self, run: PlannedRun, error: str) -> Outcome:
        """How a run ended, with the last lines of its log if it failed, which are printed too."""
        path, log = log_of(self.out / run.name), tuple[str, ...]()
        if error and path.exists():
            log = tuple(path.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:])
        self.say("\n  | ".join([f"{run.name} failed: {error}", *log]) if error else f"{run.name} finished")
        return Outcome(run=run, error=error, log=log)

    @abstractmethod
    def places(self, runs: Sequence[PlannedRun]) -> int:
        """How many of these runs to train at a time where the user does not say."""

    @abstractmethod
    def start(self, run: PlannedRun) -> Handle:
        """Start a run, from its newest checkpoint."""

    @abstractmethod
    def wait(self, running: Sequence[Handle]) -> Sequence[Handle]:
        """The runs that have ended, within `POLL` seconds."""

    @abstractmethod
    def error(self, handle: Handle) -> str:
        """Why a run that has ended failed; empty if it finished."""

    @abstractmethod
    def stop(self, running: Sequence[Handle]) -> None:
        """Have every run save and stop, and wait until they have."""
