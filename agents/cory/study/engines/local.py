"""Local processes that train the runs of a study, one process a run."""

import math
import multiprocessing
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch

from cory.runtime.memory import share_accelerator
from cory.study.engines import worker
from cory.study.engines.base import POLL, Engine
from cory.study.plan import PlannedRun

# A fork of a process with torch, which is then imported once, is not safe on macOS.
CONTEXT: Any = multiprocessing.get_context("spawn" if sys.platform == "darwin" else "forkserver")
CONTEXT.set_forkserver_preload([worker.__name__])


class Process(NamedTuple):
    """A process, and the pipe through which it says why its run failed."""

    process: BaseProcess
    result: Connection


class LocalEngine(Engine):
    """Trains runs in processes of this machine, which are spread over its accelerators."""

    def __init__(self, out: Path, **options: Any) -> None:
        super().__init__(out, **options)
        self.used: dict[Process, int] = {}
        """The accelerators of runs, by index, where there are any."""

    def places(self, runs: Sequence[PlannedRun]) -> int:
        """One run on each accelerator, or on each core if there is none or the settings name the CPU."""
        return max((accelerators_for(run) for run in runs), default=0) or os.cpu_count() or 1

    def start(self, run: PlannedRun) -> Process:
        """Start the process of a run, on the accelerator with the fewest runs."""
        result, theirs = CONTEXT.Pipe(duplex=False)
        there, used = accelerators_for(run), list(self.used.values())
        index = min(range(there), key=used.count, default=None)
        runs = math.ceil((self.jobs or there) / there) if there else 1
        process = CONTEXT.Process(target=serve, args=(self.out / run.name, run, theirs, index, runs))
        with without_main_module():
            process.start()
        theirs.close()
        started = Process(process, result)
        if index is not None:
            self.used[started] = index
        return started

    def wait(self, running: Sequence[Process]) -> list[Process]:
        """The processes that have sent their result or died."""
        ready = wait([process.result for process in running], POLL)
        return [process for process in running if process.result in ready]

    def error(self, handle: Process) -> str:
        """What the process sent, or how it died."""
        self.used.pop(handle, None)
        with handle.result:
            try:
                error: str | None = handle.result.recv()
            except EOFError:
                error = None
        handle.process.join()
        return f"its process ended with code {handle.process.exitcode}" if error is None else error

    def stop(self, running: Sequence[Process]) -> None:
        """Send SIGTERM to every process, which saves its run first, and wait for them."""
        for handle in running:
            handle.process.terminate()
        for handle in running:
            handle.process.join()


def accelerators_for(run: PlannedRun) -> int:
    """The accelerators among which a run has a choice: none where its settings name the CPU."""
    return 0 if run.is_on_cpu else torch.accelerator.device_count()


def serve(folder: Path, run: PlannedRun, result: Connection, accelerator: int | None, runs: int) -> None:
    """Train a run in this process, which ends when its parent dies and which Ctrl-C does not reach.

    It uses the accelerator of this index, as one of so many runs.
    """
    os.setsid()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if accelerator is not None:
        torch.accelerator.set_device_index(accelerator)
        share_accelerator(runs)
    result.send(worker.train(folder, run))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@contextmanager
def without_main_module() -> Iterator[None]:
    """Keep a process that starts here from running the script of this one, which may have no main guard."""
    main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
