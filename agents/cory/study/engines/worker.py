"""One run, as all engines do it."""

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

from cory.config.schema import Config
from cory.runtime.signals import Stopped
from cory.runtime.sources import changed, sources_of
from cory.runtime.terminal import say
from cory.study.engines import evaluation
from cory.study.plan import PlannedRun
from cory.study.records import finished, log_of
from cory.training import checkpoint
from cory.training import run as training_run


def train(folder: Path, run: PlannedRun) -> str:
    """Train one run unless it is finished, then evaluate it as its plan says; why it failed.

    The error is empty for a run that finished. A run with a `target` is evaluated instead. What is printed
    goes to the log beside the run directory.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with logged(folder):
            return _train(folder, run)
    except OSError as error:  # a full disk
        return str(error)


def _train(folder: Path, run: PlannedRun) -> str:
    try:
        if words := changed(run.sources, sources_of(run.settings)):
            raise ValueError(f"{words} since the study was started; start it again")
        if not run.is_trained:
            evaluation.evaluate(folder, run.settings)
        elif not finished(folder, run):
            begun = bool(checkpoint.finished(folder))
            sys.argv = ["cory", "train", "--config", str(folder / "config.yaml")]  # recorded by the run
            training_run.train(
                Config.from_flat(run.settings),
                folder,
                resume="auto" if begun else "never",
                overwrite=not begun,
                report=False,  # it takes longer than a small run; `cory report RUN` draws it
                validate=False,  # a fifth of a small run, and no study reads it
            )
            if not finished(folder, run):
                raise ValueError(f"{folder} has lost metrics; move it away, and it is trained again")
        evaluation.evaluate_on_others(folder, run)
        evaluation.evaluate_with_strangers(folder, run)
    except Stopped as stopped:
        say("; ".join([str(stopped), *getattr(stopped, "__notes__", ())]), file=sys.stderr)
        return str(stopped)
    except Exception as error:  # of any arm: the others go on
        traceback.print_exc()
        return " ".join(f"{type(error).__name__}: {error}".split())
    return ""


@contextlib.contextmanager
def logged(folder: Path) -> Iterator[None]:
    """Append what this process prints, libraries in C included, to the log beside a run directory."""
    before = [os.dup(number) for number in (1, 2)]
    with log_of(folder).open("a", encoding="utf-8") as log:
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
