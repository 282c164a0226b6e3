"""Tasks of a Ray cluster that train the runs of a study: one run is one task of one CPU.

Run directories lie on a file system that all nodes and the driver (the process of `cory study`) mount at the
same path. An actor beside the driver, the hub, counts iterations and holds the request to stop.
"""

import _thread
import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock, Timeout

from cory.study.engines import worker
from cory.study.engines.base import POLL, Engine, Outcome
from cory.study.plan import PlannedRun
from cory.study.records import LEARNING_VERSION, write_origin
from cory.tracking.tracker import METRICS
from cory.training.overwriting import LOCK

try:
    import ray
    from ray.exceptions import RayError, RayTaskError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError as error:
    raise ImportError("the engine 'ray' needs the package ray; pip install 'cory[ray]'") from error

RETRIES = 3
"""Times that Ray starts a run again whose process or node has died; it goes on from its newest checkpoint."""
ASK_EVERY = 1.0
"""Seconds between two questions of a task whether it has to stop."""
RELEASE_SECONDS = 60.0
"""Seconds that a run which is started again waits for its dead process to release the run directory."""


class Job(NamedTuple):
    """What a task receives."""

    run: PlannedRun
    out: Path
    """Absolute path of the study's folder."""
    directory: Path
    """The driver's working directory, from which relative paths in settings are read."""
    learning_version: int


class Hub:
    """Actor: where the runs are, and whether they have to stop."""

    def __init__(self) -> None:
        self.starts: Counter[str] = Counter()
        self.positions: dict[str, int] = {}
        self.trained = 0
        self.stopping = False

    def begin(self, name: str) -> tuple[bool, int]:
        """Whether a run may start, and how often it has been started now."""
        self.starts[name] += 1
        return not self.stopping, self.starts[name]

    def iteration(self, name: str, iteration: int) -> None:
        """Count an iteration of a run."""
        self.trained += 1
        self.positions[name] = iteration + 1

    def progress(self) -> tuple[int, dict[str, int]]:
        """Iterations trained, and the next iteration of each run."""
        return self.trained, self.positions

    def stop(self) -> set[str]:
        """Ask every run to stop; the names of those that have started."""
        self.stopping = True
        return set(self.starts)

    def is_stopping(self) -> bool:
        """Whether runs have to stop."""
        return self.stopping


class RayEngine(Engine):
    """Trains runs as Ray tasks, on the cluster that Ray is connected to, finds or starts."""

    def __init__(self, out: Path, *, jobs: int | None, say: Callable[[str], None]) -> None:
        super().__init__(out, jobs=jobs, say=say)
        self.todo: deque[PlannedRun] = deque()
        self.running: dict[Any, PlannedRun] = {}
        self.started_at = time.monotonic()

    def train(self, runs: Sequence[PlannedRun]) -> list[Outcome]:
        """Train every run; how each ended. A Ray that is started here ends with it."""
        started = not ray.is_initialized()
        if started:
            ray.init(log_to_driver=False, include_dashboard=False, logging_level=logging.WARNING)
        try:
            return super().train(runs)
        finally:
            if started:
                ray.shutdown()

    def _begin(self, runs: Sequence[PlannedRun]) -> None:
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self.hub = ray.remote(Hub).options(num_cpus=0, scheduling_strategy=here).remote()
        self.task = ray.remote(num_cpus=1, max_retries=RETRIES)(train_on_node)
        self.todo.extend(runs)
        self._submit()

    def _submit(self) -> None:
        """Hand runs to Ray, all of them or up to `jobs` at a time."""
        while self.todo and (self.jobs is None or len(self.running) < self.jobs):
            run = self.todo.popleft()
            job = Job(run, self.out.resolve(), Path.cwd(), LEARNING_VERSION)
            self.running[self.task.options(name=run.name).remote(job, self.hub)] = run

    def _next(self) -> Outcome | None:
        done, _ = ray.wait(list(self.running), timeout=POLL)
        if not done:
            return None
        run = self.running.pop(done[0])
        self._submit()
        result: Mapping[str, Any]
        try:
            result = ray.get(done[0])
        except RayTaskError as error:
            result = {"status": "failed", "error": " ".join(str(error.cause).split())}
        except RayError as error:  # its process or node has died too often, or cannot be started
            result = {"status": "failed", "error": " ".join(f"{type(error).__name__}: {error}".split())}
        folder = run.folder_in(self.out)
        if result["status"] == "finished" and not (folder / METRICS).exists():
            text = f"it was trained on node {result['node']}, but {folder} is not seen here; "
            text += "give an --out on a file system that all nodes share"
            result = {**result, "status": "failed", "error": text}
        return self._outcome(run, result, result.get("seconds", time.monotonic() - self.started_at))

    def _count(self) -> None:
        self.trained, self.positions = ray.get(self.hub.progress.remote())

    def _stop(self) -> None:
        """Ask the runs to save and stop, and cancel those that wait for a CPU."""
        self.todo.clear()
        started = ray.get(self.hub.stop.remote())
        for task, run in self.running.items():
            if run.name not in started:
                ray.cancel(task)
        if self.running:
            ray.wait(list(self.running), num_returns=len(self.running))


def train_on_node(job: Job, hub: Any) -> dict[str, Any]:
    """Train one run in this process of a node; how it ended, where, and the seconds it took."""
    start, node = time.monotonic(), ray.get_runtime_context().get_node_id()
    folder = job.run.folder_in(job.out)
    with asking(hub, job.run.name) as (may_start, attempt):
        if not may_start:
            result = {"status": "stopped"}
        elif job.learning_version != LEARNING_VERSION:
            text = f"node {node} has learning version {LEARNING_VERSION}, the study {job.learning_version}"
            result = {"status": "failed", "error": f"{text}; install the same cory on all nodes"}
        else:
            try:
                prepare(job, folder, again=attempt > 1)
                with worker.logged(folder):
                    print(f"on Ray node {node}, start {attempt}")
                result = worker.train(folder, job.run, lambda i: hub.iteration.remote(job.run.name, i))
            except OSError as error:  # a full disk, or no shared file system
                result = {"status": "failed", "error": f"on node {node}: {error}"}
    return {**result, "node": node, "seconds": time.monotonic() - start}


def prepare(job: Job, folder: Path, *, again: bool) -> None:
    """Go to the driver's directory, note the run's origin, and wait for the lock of a process that died."""
    os.chdir(job.directory)
    if str(job.directory) not in sys.path:
        sys.path.append(str(job.directory))  # for module:Class and module:function, as in `cory`
    write_origin(folder, job.run)
    if again and folder.exists():
        with contextlib.suppress(Timeout), FileLock(folder / LOCK).acquire(timeout=RELEASE_SECONDS):
            pass


@contextlib.contextmanager
def asking(hub: Any, name: str) -> Iterator[tuple[bool, int]]:
    """Register a run with the hub; while it trains, ask whether to stop and, if so, signal this process.

    All questions are asked in another thread: in the main one, Ray would give the CPU of a task that waits
    for an answer to the next task. The signal is what a local worker gets, SIGTERM, which a run answers by
    saving.
    """
    answer: list[tuple[bool, int]] = []
    begun, done = threading.Event(), threading.Event()

    def ask() -> None:
        try:
            answer.append(ray.get(hub.begin.remote(name)))
            begun.set()
            while not done.wait(ASK_EVERY) and not ray.get(hub.is_stopping.remote()):
                pass
        except RayError:  # the driver has gone
            begun.set()
        if not done.is_set():
            _thread.interrupt_main(signal.SIGTERM)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    begun.wait()
    try:
        yield answer[0] if answer else (False, 0)
    finally:
        done.set()
        thread.join()
