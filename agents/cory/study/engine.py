"""Local processes that train the runs of a study, several at a time."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cory.runtime.signals import Signals, Stopped
from cory.study.plan import PlannedRun
from cory.study.records import write_origin

LOG_LINES = 8
"""Last lines of a failed run's log that are reported."""
SAY_EVERY = 30.0
"""Seconds between two lines of progress while no run ends."""
POLL = 0.2


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended."""

    run: PlannedRun
    status: Literal["finished", "failed", "stopped"]
    seconds: float
    error: str = ""
    log: tuple[str, ...] = ()
    """The last lines of a failed run's log."""


class Engine:
    """Trains runs in `jobs` worker processes of one thread each; a worker that dies is replaced."""

    def __init__(self, out: Path, *, jobs: int, say: Callable[[str], None]) -> None:
        """`say` prints a line of progress."""
        self.out, self.jobs, self.say = out, jobs, say
        self.todo: queue.SimpleQueue[PlannedRun] = queue.SimpleQueue()
        self.ended: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self.lock = threading.Lock()
        self.stopping = threading.Event()
        self.workers: set[subprocess.Popen[str]] = set()
        self.trained = 0
        """Iterations trained since the start, by all workers."""
        self.positions: dict[str, int] = {}
        """The next iteration of each run, by its name."""

    def train(self, runs: Sequence[PlannedRun]) -> list[Outcome]:
        """Train every run; how each ended. `Stopped` after Ctrl-C or SIGTERM, once the workers have saved."""
        for run in runs:
            self.todo.put(run)
        threads = [
            threading.Thread(target=self._serve, daemon=True) for _ in range(min(self.jobs, len(runs)))
        ]
        outcomes: list[Outcome] = []
        total, began, reported_at = sum(run.iterations for run in runs), time.monotonic(), time.monotonic()
        with Signals(grace=max((float(run.settings["grace"]) for run in runs), default=0.0)) as signals:
            for thread in threads:
                thread.start()
            try:
                while len(outcomes) < len(runs):
                    signals.check()
                    try:
                        outcomes.append(self.ended.get(timeout=POLL))
                    except queue.Empty:
                        if time.monotonic() - reported_at < SAY_EVERY:
                            continue
                    reported_at = time.monotonic()
                    self._report(outcomes, len(runs), total, time.monotonic() - began)
            except (Stopped, KeyboardInterrupt):
                self._stop()
                for thread in threads:
                    thread.join()
                raise
        for thread in threads:
            thread.join()
        return outcomes

    def _report(self, outcomes: Sequence[Outcome], runs: int, total: int, seconds: float) -> None:
        """Print how far the study is, and the last run that ended."""
        ended = {one.run.name: one.run.iterations for one in outcomes}
        done = sum((self.positions | ended).values())
        eta = f" ({(total - done) * seconds / self.trained / 60:.1f} min left)" if self.trained else ""
        last = outcomes[-1] if outcomes else None
        text = "" if last is None else f"; last: {last.run.name} {last.status} in {last.seconds:.0f} s"
        self.say(f"{len(outcomes)} of {runs} runs{eta}{text}")
        if last is not None and last.status == "failed":
            self.say("\n".join([f"  {last.error}", *(f"  | {line}" for line in last.log)]))

    def _serve(self) -> None:
        """Hand runs to one worker after another until none is left."""
        worker: subprocess.Popen[str] | None = None
        while not self.stopping.is_set():
            try:
                run = self.todo.get_nowait()
            except queue.Empty:
                break
            folder, start = self.out / run.name, time.monotonic()
            result: Mapping[str, Any]
            try:
                write_origin(folder, run)
                if worker is None or worker.poll() is not None:
                    worker = self._start()
                result = self._follow(worker, folder, run)
            except OSError as error:  # a full disk, or a worker that was killed before it read its run
                result = {"status": "failed", "error": str(error)}
            log = _tail(folder) if result["status"] == "failed" else ()
            self.ended.put(
                Outcome(
                    run=run,
                    status=result["status"],
                    seconds=time.monotonic() - start,
                    error=result.get("error", ""),
                    log=log,
                )
            )
        if worker is not None:
            self._end(worker)

    def _start(self) -> subprocess.Popen[str]:
        """A worker in a session of its own, so that Ctrl-C reaches this process only."""
        source = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
        worker = subprocess.Popen(
            [sys.executable, "-m", "cory.study.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        )
        with self.lock:
            self.workers.add(worker)
            stopping = self.stopping.is_set()
        if stopping:
            worker.send_signal(signal.SIGTERM)
        return worker

    def _follow(self, worker: subprocess.Popen[str], folder: Path, run: PlannedRun) -> Mapping[str, Any]:
        """Send one run to a worker and read its messages until it ends."""
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(json.dumps({"folder": str(folder), "settings": dict(run.settings)}) + "\n")
        worker.stdin.flush()
        for line in worker.stdout:
            message: dict[str, Any] = json.loads(line)
            if "status" in message:
                return message
            with self.lock:
                self.trained += 1
                self.positions = {**self.positions, run.name: int(message["iteration"]) + 1}
        code = worker.wait()
        status = "stopped" if self.stopping.is_set() else "failed"
        return {"status": status, "error": f"its process ended with code {code}"}

    def _end(self, worker: subprocess.Popen[str]) -> None:
        """Close a worker's input, at which it exits, and wait for it."""
        assert worker.stdin is not None
        assert worker.stdout is not None
        with contextlib.suppress(OSError):  # of a worker that has died
            worker.stdin.close()
        worker.wait()
        worker.stdout.close()
        with self.lock:
            self.workers.discard(worker)

    def _stop(self) -> None:
        """Ask every worker to save and stop; they have the run's `grace` for that."""
        with self.lock:
            self.stopping.set()
            for worker in self.workers:
                if worker.poll() is None:
                    worker.send_signal(signal.SIGTERM)


def _tail(folder: Path) -> tuple[str, ...]:
    """The last lines of the log beside a run directory."""
    path = folder.with_name(f"{folder.name}.log")
    if not path.exists():
        return ()
    return tuple(path.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:])
