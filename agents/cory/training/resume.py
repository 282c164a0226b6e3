"""Resuming a run: its newest complete checkpoint, unchanged settings, and a lock on the run directory."""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout

from cory.config.parsing import changes, completed
from cory.config.schema import Config
from cory.tracking.tracker import METRICS, SAMPLES, read_lines
from cory.training import checkpoint

CHANGEABLE = (
    "alerts.",
    "checkpoint_every",
    "checkpoint_minutes",
    "evaluation.every",
    "export",
    "export_best",
    "failed_saves",
    "grace",
    "iterations",
    "judge.max_failures",
    "judge.memory_mb",
    "judge.timeout",
    "judge.workers",
    "keep_checkpoints",
    "log_to",
    "matmul",
    "sample_rows",
    "shard",
    "threads",
)
"""Settings that may change on resume: names or the beginnings of names."""

LOCK = ".lock"
LOCK_HOLDER = ".lock-holder"
"""Holds the process id of who holds the lock: Windows does not let others read a locked file."""


def is_empty(run: Path) -> bool:
    """Whether the directory is absent, or holds only files that are written before the settings."""
    written_before = {LOCK, LOCK_HOLDER, "config.yaml.part"}
    return not run.exists() or {path.name for path in run.iterdir()} <= written_before


@contextlib.contextmanager
def locked(run: Path) -> Iterator[None]:
    """Lock the run directory for this process; ValueError if another process holds the lock."""
    lock, holder = FileLock(run / LOCK), run / LOCK_HOLDER
    try:
        lock.acquire(timeout=0)
    except Timeout:
        process = holder.read_text(encoding="utf-8") if holder.exists() else "?"
        raise ValueError(
            f"process {process} is training in {run}; wait for it, stop it, or name another directory with "
            "--run"
        ) from None
    try:
        holder.write_text(str(os.getpid()), encoding="utf-8")
        yield
    finally:
        holder.unlink(missing_ok=True)
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
    """Whether this is a run that was killed before its first iteration: settings, no metrics."""
    if not (run / "config.yaml").exists() or checkpoint.finished(run):
        return False
    return not (run / METRICS).exists() or not read_lines(run / METRICS)


def check_settings_unchanged(run: Path, folder: Path, now: Mapping[str, Any]) -> None:
    """Raise ValueError with all settings that differ from a checkpoint's and may not be changed on resume."""
    before = completed(yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8")))
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
    saved = completed(yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8")))
    if config.memory == "auto":
        config = replace(config, memory=saved["memory"])
    if config.lora.four_bit == "auto":
        config = replace(config, lora=replace(config.lora, four_bit=saved["lora.four_bit"]))
    if config.policy.compile == "auto":
        config = replace(config, policy=replace(config.policy, compile=saved["policy.compile"]))
    return config


def rewind(run: Path, iteration: int) -> None:
    """Drop the logged rows of `iteration` and later, which the run will write again."""
    for name in (METRICS, SAMPLES):
        path = run / name
        if path.exists():
            rows = [row for row in read_lines(path) if row["iteration"] < iteration]
            text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            checkpoint.write_text(path, text)


def check_complete(run: Path, iterations: int) -> None:
    """Raise RuntimeError unless every iteration has exactly one row of metrics."""
    rows = [row["iteration"] for row in read_lines(run / METRICS) if "time/update/seconds" in row]
    if rows != list(range(iterations)):
        raise RuntimeError(
            f"{run / METRICS} holds {len(rows)} iterations, the run has {iterations}; start it again with "
            "--resume must"
        )
