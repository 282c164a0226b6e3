"""Local processes of one thread each that train the runs of a study, several at a time."""

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
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from cory.study.engines.base import POLL, Engine, Outcome
from cory.study.plan import PlannedRun
from cory.study.records import write_origin


class LocalEngine(Engine):
    """Trains runs in `jobs` worker processes of one thread each; a worker that dies is replaced."""

    def __init__(self, out: Path, *, jobs: int | None, say: Callable[[str], None]) -> None:
        super().__init__(out, jobs=jobs, say=say)
        self.todo: queue.SimpleQueue[PlannedRun] = queue.SimpleQueue()
        self.ended: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self.lock = threading.Lock()
        self.stopping = threading.Event()
        self.workers: set[subprocess.Popen[str]] = set()
        self.threads: list[threading.Thread] = []

    def _begin(self, runs: Sequence[PlannedRun]) -> None:
        for run in runs:
            self.todo.put(run)
        for _ in range(min(self.jobs or os.cpu_count() or 1, len(runs))):
            thread = threading.Thread(target=self._serve, daemon=True)
            self.threads.append(thread)
            thread.start()

    def _next(self) -> Outcome | None:
        try:
            return self.ended.get(timeout=POLL)
        except queue.Empty:
            return None

    def _stop(self) -> None:
        """Ask every worker to save and stop; they have the run's `grace` for that."""
        with self.lock:
            self.stopping.set()
            for worker in self.workers:
                if worker.poll() is None:
                    worker.send_signal(signal.SIGTERM)
        self._end()

    def _end(self) -> None:
        for thread in self.threads:
            thread.join()

    def _serve(self) -> None:
        """Hand runs to one worker after another until none is left."""
        worker: subprocess.Popen[str] | None = None
        while not self.stopping.is_set():
            try:
                run = self.todo.get_nowait()
            except queue.Empty:
                break
            folder, start = run.folder_in(self.out), time.monotonic()
            result: Mapping[str, Any]
            try:
                write_origin(folder, run)
                if worker is None or worker.poll() is not None:
                    worker = self._start()
                result = self._follow(worker, folder, run)
            except OSError as error:  # a full disk, or a worker that was killed before it read its run
                result = {"status": "failed", "error": str(error)}
            self.ended.put(self._outcome(run, result, time.monotonic() - start))
        if worker is not None:
            self._close(worker)

    def _start(self) -> subprocess.Popen[str]:
        """A worker in a session of its own, so that Ctrl-C reaches this process only."""
        source = str(Path(__file__).resolve().parents[3])
        path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
        worker = subprocess.Popen(
            [sys.executable, "-m", "cory.study.engines.worker"],
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
        job = {"folder": str(folder), "run": asdict(replace(run, folder=None))}
        worker.stdin.write(json.dumps(job) + "\n")
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

    def _close(self, worker: subprocess.Popen[str]) -> None:
        """Close a worker's input, at which it exits, and wait for it."""
        assert worker.stdin is not None
        assert worker.stdout is not None
        with contextlib.suppress(OSError):  # of a worker that has died
            worker.stdin.close()
        worker.wait()
        worker.stdout.close()
        with self.lock:
            self.workers.discard(worker)
