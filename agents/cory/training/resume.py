"""Resuming a run: its newest complete checkpoint, unchanged settings, and a lock on the run directory."""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout

from cory.config.parsing import MEASURED, changes, completed
from cory.config.schema import Config
from cory.config.values import flat
from cory.runtime.files import remove, write_text
from cory.runtime.yaml_files import read_yaml
from cory.tracking.tracker import METRICS, SAMPLES, read_lines
from cory.training import checkpoint
from cory.training.overwriting import LOCK, LOCK_HOLDER, is_marked, move_run_aside

CHANGEABLE = (
    "alerts.",
    "checkpoint_every",
    "checkpoint_minutes",
    "evaluation.every",
    "export",
    "export_best",
    "iterations",
    "judge.max_failures",
    "judge.memory_mb",
    "judge.timeout",
    "judge.workers",
    "keep_checkpoints",
    "log_to",
    "shard",
    "threads",
)
"""Settings that may change on resume: names or the beginnings of names."""


def acquire(run: Path) -> FileLock:
    """The lock of a run directory; ValueError if another process holds it or has just begun a run there."""
    lock, holder, folder = FileLock(run / LOCK), run / LOCK_HOLDER, run.stat()
    try:
        lock.acquire(timeout=0)
    except Timeout:
        process = holder.read_text(encoding="utf-8") if holder.exists() else "?"
        raise ValueError(
            f"process {process} is training in {run}; wait for it, stop it, or name another directory with "
            "--run"
        ) from None
    if not (run.exists() and os.path.samestat(run.stat(), folder)):
        lock.release()
        raise ValueError(f"another process has just begun a run in {run}; wait for it, or name another")
    return lock


@contextlib.contextmanager
def locked(run: Path) -> Iterator[None]:
    """Lock the run directory for this process; ValueError as `acquire`."""
    lock, holder = acquire(run), run / LOCK_HOLDER
    try:
        remove(holder)
        holder.write_text(str(os.getpid()), encoding="utf-8")
        yield
    finally:
        with contextlib.suppress(OSError):  # the directory has gone
            holder.unlink()
        lock.release()


@contextlib.contextmanager
def moved_aside(run: Path) -> Iterator[Path]:
    """Move a run aside and keep its lock, so that nobody else begins a run in its place; the new path."""
    lock = acquire(run)
    try:
        yield move_run_aside(run)
    finally:
        lock.release()


def newest_whole(run: Path) -> tuple[Path | None, list[str]]:
    """Return the newest checkpoint that verifies, or None, and why newer ones were skipped."""
    skipped = []
    for folder in reversed(checkpoint.finished(run)):
        try:
            checkpoint.verify(folder)
        except ValueError as error:
            skipped.append(str(error))
            continue
        return folder, skipped
    return None, skipped


def never_started(run: Path) -> bool:
    """Whether this is a run that was killed before its first iteration: CORY's folder, no metrics."""
    if not is_marked(run) or checkpoint.finished(run):
        return False
    return not (run / METRICS).exists() or not read_lines(run / METRICS)


def check_settings_unchanged(run: Path, folder: Path, now: Mapping[str, Any]) -> None:
    """Raise ValueError with all settings that differ from a checkpoint's and may not be changed on resume."""
    before = completed(read_yaml(folder / "config.yaml"))
    now = yaml.safe_load(yaml.safe_dump(dict(now)))
    changed = changes(before, now, allowed=CHANGEABLE)
    if now.get("learner.decay") != "constant" and before.get("iterations") != now.get("iterations"):
        changed.append(
            f"iterations was {before['iterations']} and is {now['iterations']} (learner.decay depends on it)"
        )
    if changed:
        raise ValueError(
            f"{run} began with other settings: {'; '.join(changed)}. Leave them as they were, or start "
            "another run"
        )


def with_measured(config: Config, folder: Path) -> Config:
    """The settings with what the run measured that a checkpoint is of, in place of `auto`."""
    now, saved = flat(config), completed(read_yaml(folder / "config.yaml"))
    return Config.from_flat({name: saved[name] for name in MEASURED if now[name] == "auto"}, config)


def rewind(run: Path, iteration: int) -> None:
    """Drop the logged rows of `iteration` and later, which the run will write again."""
    for name in (METRICS, SAMPLES):
        path = run / name
        if path.exists():
            rows = [row for row in read_lines(path) if row["iteration"] < iteration]
            text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            write_text(path, text)


def missing_metrics(run: Path, iteration: int) -> str | None:
    """A note on the iterations before `iteration` whose metrics are lost; None if there are all."""
    there = set(logged_iterations(run))
    lost = [i for i in range(iteration) if i not in there]
    if not lost:
        return None
    return (
        f"{run / METRICS} has lost {len(lost)} of the iterations before {iteration}, from {lost[0]} on; the "
        "run goes on, and its curves lack them"
    )


def check_complete(run: Path, iterations: int, *, start: int = 0) -> None:
    """Raise RuntimeError unless every iteration since `start` has exactly one row of metrics."""
    rows = [iteration for iteration in logged_iterations(run) if iteration >= start]
    if rows != list(range(start, iterations)):
        since = f" from {start} on" if start else ""
        raise RuntimeError(
            f"{run / METRICS} holds {len(rows)} iterations{since}, the run has {iterations - start}; its "
            "policies are exported, and its curves lack what is missing"
        )


def logged_iterations(run: Path) -> list[int]:
    """The iterations that have metrics of training, in the order of their rows."""
    rows = read_lines(run / METRICS) if (run / METRICS).exists() else []
    return [row["iteration"] for row in rows if "time/update/seconds" in row]
