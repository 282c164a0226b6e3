"""What all engines share: runs in, outcomes out, lines of progress, and a stop after which runs go on."""

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cory.runtime.signals import Signals
from cory.study.plan import PlannedRun
from cory.study.records import log_of
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
        resumed, began, reported_at = 0, time.monotonic(), time.monotonic()
        with Signals() as signals:
            try:
                while todo or running:
                    signals.check()
                    while todo and len(running) < jobs:
                        run = todo.popleft()
                        resumed += self._iterations(run)
                        running[self.start(run)] = run
                    ended = self.wait(list(running))
                    for handle in ended:
                        outcomes.append(self._outcome(running.pop(handle), self.error(handle)))
                    if ended or time.monotonic() - reported_at > SAY_EVERY:
                        reported_at = time.monotonic()
                        done = [outcome.run.iterations for outcome in outcomes]
                        done += [self._iterations(run) for run in running.values()]
                        rate = (sum(done) - resumed) / (reported_at - began)
                        left = sum(run.iterations for run in runs) - sum(done)
                        eta = f" ({left / rate / 60:.1f} min left)" if rate > 0 else ""
                        self.say(f"{len(outcomes)} of {len(runs)} runs{eta}")
            except BaseException:
                self.stop(list(running))
                raise
        return outcomes

    def _iterations(self, run: PlannedRun) -> int:
        """The iterations that a run has behind it."""
        path = self.out / run.name / METRICS
        rows = read_lines(path) if path.exists() else []
        return min(run.iterations, int(rows[-1]["iteration"]) + 1) if rows else 0

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
