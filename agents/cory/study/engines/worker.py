"""One run, as all engines do it; and a process for many: `python -m cory.study.engines.worker`.

The process reads one JSON line per run from stdin and writes one per iteration and one per finished run to
stdout; what a run prints goes to its log. When the parent has gone, the next line cannot be written and the
run ends.
"""

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cory.runtime.signals import Stopped
from cory.runtime.sources import changed, sources_of
from cory.runtime.terminal import say
from cory.study.engines import evaluation
from cory.study.plan import PlannedRun, config_of
from cory.study.records import finished
from cory.training import checkpoint
from cory.training import run as training_run


class Reporter:
    """Callback of a run that sends its iterations to the engine."""

    def __init__(self, send: Callable[[int], None]) -> None:
        self.send = send

    def on_iteration(self, _trainer: object, iteration: int, _metrics: Mapping[str, float]) -> None:
        """Send the iteration that has just ended."""
        self.send(iteration)


def train(folder: Path, run: PlannedRun, send: Callable[[int], None]) -> dict[str, str]:
    """Train one run unless it is finished, then evaluate it on the other tasks of its plan; how it ended.

    A run with a `target` is evaluated instead. `send` is called with each iteration. What is printed goes to
    the log beside the run directory.
    """
    with logged(folder):
        try:
            if words := changed(run.sources, sources_of(run.settings)):
                raise ValueError(f"{words} since the study was started; start it again")
            if not run.is_trained:
                evaluation.evaluate(folder, run.settings)
            elif not finished(folder, run):
                _train(folder, run, send)
                if not finished(folder, run):
                    raise ValueError(f"{folder} has lost metrics; move it away, and it is trained again")
            evaluation.evaluate_on_others(folder, run)
        except Stopped as stopped:
            say("; ".join([str(stopped), *getattr(stopped, "__notes__", ())]), file=sys.stderr)
            return {"status": "stopped"}
        except BrokenPipeError:
            raise
        except Exception as error:  # of any arm: the others go on
            traceback.print_exc()
            return {"status": "failed", "error": " ".join(f"{type(error).__name__}: {error}".split())}
        return {"status": "finished"}


def _train(folder: Path, run: PlannedRun, send: Callable[[int], None]) -> None:
    """Train one run from its newest checkpoint, or from the start."""
    begun = bool(checkpoint.finished(folder))
    sys.argv = ["cory", "train", "--config", str(folder / "config.yaml")]  # recorded by the run
    training_run.train(
        config_of(run.settings),
        folder,
        resume="auto" if begun else "never",
        overwrite=not begun,
        callbacks=[Reporter(send)],
        report=False,  # it takes longer than a small run; `cory report RUN` draws it
        validate=False,  # a fifth of a small run, and no study reads it
    )


@contextlib.contextmanager
def logged(folder: Path) -> Iterator[None]:
    """Append what this process prints, libraries in C included, to the log beside a run directory."""
    before = [os.dup(number) for number in (1, 2)]
    with folder.with_name(f"{folder.name}.log").open("a", encoding="utf-8") as log:
        for number in (1, 2):
            os.dup2(log.fileno(), number)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, old in enumerate(before, start=1):
            os.dup2(old, number)
            os.close(old)


def main() -> None:
    """Train what stdin names, until it ends or a run is stopped."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what is printed between two runs is no message

    def send(message: Mapping[str, Any]) -> None:
        out.write(json.dumps(message) + "\n")
        out.flush()

    for line in sys.stdin:
        job = json.loads(line)
        try:
            run = PlannedRun(**job["run"])
            result = train(Path(job["folder"]), run, lambda i: send({"iteration": i}))
            send(result)
        except BrokenPipeError:
            os._exit(1)  # the parent has gone, and closing `out` would fail again
        if result["status"] == "stopped":
            return


if __name__ == "__main__":
    main()
