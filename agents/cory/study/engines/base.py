"""What all engines share: runs in, outcomes out, lines of progress, and a stop after which runs go on."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cory.runtime.signals import Signals, Stopped
from cory.study.plan import PlannedRun

LOG_LINES = 8
"""Last lines of a failed run's log that are reported."""
SAY_EVERY = 30.0
"""Seconds between two lines of progress while no run ends."""
POLL = 0.2
"""Seconds that are waited for the end of a run before signals are looked at."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended."""

    run: PlannedRun
    status: Literal["finished", "failed", "stopped"]
    seconds: float
    error: str = ""
    log: tuple[str, ...] = ()
    """The last lines of a failed run's log."""


class Engine(ABC):
    """Trains runs; a subclass starts them, waits for them and stops them."""

    def __init__(self, out: Path, *, jobs: int | None, say: Callable[[str], None]) -> None:
        """`jobs`: runs at a time, None = as many as there are cores. `say` prints a line of progress."""
        self.out, self.jobs, self.say = out, jobs, say
        self.trained = 0
        """Iterations trained since the start, by all workers."""
        self.positions: dict[str, int] = {}
        """The next iteration of each run, by its name."""

    def train(self, runs: Sequence[PlannedRun]) -> list[Outcome]:
        """Train every run; how each ended. `Stopped` after Ctrl-C or SIGTERM, once the runs have saved."""
        outcomes: list[Outcome] = []
        total, began, reported_at = sum(run.iterations for run in runs), time.monotonic(), time.monotonic()
        with Signals(grace=max((float(run.settings["grace"]) for run in runs), default=0.0)) as signals:
            self._begin(runs)
            try:
                while len(outcomes) < len(runs):
                    signals.check()
                    if (ended := self._next()) is not None:
                        outcomes.append(ended)
                        if ended.status == "failed":
                            self.say("\n  | ".join([f"{ended.run.name} failed: {ended.error}", *ended.log]))
                    elif time.monotonic() - reported_at < SAY_EVERY:
                        continue
                    reported_at = time.monotonic()
                    self._count()
                    self._report(outcomes, len(runs), total, time.monotonic() - began)
            except (Stopped, KeyboardInterrupt):
                self._stop()
                raise
        self._end()
        return outcomes

    @abstractmethod
    def _begin(self, runs: Sequence[PlannedRun]) -> None:
        """Start the runs, `jobs` at a time, each from its newest checkpoint."""

    @abstractmethod
    def _next(self) -> Outcome | None:
        """A run that has ended; None if none has within `POLL` seconds."""

    @abstractmethod
    def _stop(self) -> None:
        """Have every run save and stop, start no other, and wait until they have."""

    def _end(self) -> None:  # noqa: B027 (most engines have nothing to do)
        """Called once all runs have ended."""

    def _count(self) -> None:  # noqa: B027 (an engine that counts as it goes has nothing to do)
        """Bring `trained` and `positions` up to date."""

    def _outcome(self, run: PlannedRun, result: Mapping[str, Any], seconds: float) -> Outcome:
        """The outcome of a run whose worker left `result`: status, and error if it failed."""
        return Outcome(
            run=run,
            status=result["status"],
            seconds=seconds,
            error=result.get("error", ""),
            log=_tail(run.folder_in(self.out)) if result["status"] == "failed" else (),
        )

    def _report(self, outcomes: Sequence[Outcome], runs: int, total: int, seconds: float) -> None:
        """Print how far the study is, and the last run that ended."""
        ended = {one.run.name: one.run.iterations for one in outcomes}
        done = sum((self.positions | ended).values())
        eta = f" ({(total - done) * seconds / self.trained / 60:.1f} min left)" if self.trained else ""
        last = outcomes[-1] if outcomes else None
        text = "" if last is None else f"; last: {last.run.name} {last.status} in {last.seconds:.0f} s"
        self.say(f"{len(outcomes)} of {runs} runs{eta}{text}")


def _tail(folder: Path) -> tuple[str, ...]:
    """The last lines of the log beside a run directory."""
    path = folder.with_name(f"{folder.name}.log")
    if not path.exists():
        return ()
    return tuple(path.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:])
