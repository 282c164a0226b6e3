"""Tasks of a Ray cluster that train the runs of a study: one run is one task of one CPU.

Run directories lie on a file system that all nodes and the driver (the process of `cory study`) mount at the
same path.
"""

import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from filelock import Timeout

from cory.runtime.provenance import LEARNING_VERSION
from cory.study.engines import worker
from cory.study.engines.base import POLL, Engine, Outcome
from cory.study.plan import PlannedRun
from cory.tracking.tracker import METRICS
from cory.training.overwriting import lock_of

try:
    import ray
    from ray.exceptions import RayError, RayTaskError
except ImportError as error:
    raise ImportError("the engine 'ray' needs the package ray; pip install 'cory[ray]'") from error

RETRIES = 3
"""Times that Ray starts a run again whose process or node has died; it goes on from its newest checkpoint."""
RELEASE_SECONDS = 60.0
"""Seconds that a run which is started again waits for its dead process to release the run directory."""


class RayEngine(Engine):
    """Trains runs as Ray tasks, on the cluster that Ray is connected to, finds or starts."""

    def places(self, runs: Sequence[PlannedRun]) -> int:
        """All at once: Ray has them wait for a CPU."""
        return len(runs)

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

    def start(self, run: PlannedRun) -> Any:
        """Hand a run to Ray."""
        task = ray.remote(num_cpus=1, max_retries=RETRIES)(train_on_node).options(name=run.name)
        return task.remote(self.out.resolve() / run.name, run, Path.cwd(), LEARNING_VERSION)

    def wait(self, running: Sequence[Any]) -> list[Any]:
        """The tasks that have ended."""
        ended: list[Any] = ray.wait(list(running), num_returns=len(running), timeout=POLL)[0]
        return ended

    def error(self, handle: Any) -> str:
        """What the task returned, or how it was lost."""
        try:
            folder, node, why = ray.get(handle)
        except RayTaskError as error:
            return " ".join(str(error.cause).split())
        except RayError as error:  # its process or node has died too often, or cannot be started
            return " ".join(f"{type(error).__name__}: {error}".split())
        if not why and not (folder / METRICS).exists():
            return (
                f"it was trained on node {node}, but {folder} is not seen here; give an --out on a file "
                "system that all nodes share"
            )
        return str(why)

    def stop(self, running: Sequence[Any]) -> None:
        """Send every run SIGINT, at which it saves, and cancel those that wait for a CPU."""
        for task in running:
            ray.cancel(task)
        if running:
            ray.wait(list(running), num_returns=len(running))


def train_on_node(folder: Path, run: PlannedRun, directory: Path, version: int) -> tuple[Path, str, str]:
    """Train one run in this process of a node; its directory, the node, and why it failed.

    `directory` is the working directory of the driver, from which relative paths in settings are read;
    `version` its learning version.
    """
    node = ray.get_runtime_context().get_node_id()
    if version != LEARNING_VERSION:
        text = f"node {node} has learning version {LEARNING_VERSION}, the study {version}"
        return folder, node, f"{text}; install the same cory on all nodes"
    try:
        os.chdir(directory)
        if str(directory) not in sys.path:
            sys.path.append(str(directory))  # for module:Class and module:function, as in `cory`
        folder.parent.mkdir(parents=True, exist_ok=True)
        if folder.exists():  # its process may have died on another node
            with suppress(Timeout), lock_of(folder).acquire(timeout=RELEASE_SECONDS):
                pass
        with worker.logged(folder):
            print(f"on Ray node {node}")
    except OSError as error:  # a full disk, or no shared file system
        return folder, node, f"on node {node}: {error}"
    return folder, node, worker.train(folder, run)
