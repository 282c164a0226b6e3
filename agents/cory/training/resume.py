"""Where an interrupted run goes on: at its newest whole checkpoint, with the settings it had.

A run directory belongs to one process at a time.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from cory.training import checkpoint
from cory.tracking.tracker import METRICS, SAMPLES, read_lines

CHANGEABLE = (
    *(
        "iterations",
        "run",
        "resume",
        "overwrite",
        "threads",
        "matmul",
        "export",
        "grace",
        "failed_saves",
        "sample_rows",
    ),
    *("checkpoint_every", "keep_checkpoints", "evaluation.every", "guards."),
    *("judge.timeout", "judge.memory_mb", "judge.workers", "judge.max_failures"),
)
"""Settings that may differ from those a run began with: how long, how often, how it is watched."""


LOCK = ".lock"


def is_empty(run: Path) -> bool:
    """Whether the directory is absent or holds nothing but what a process leaves before its settings."""
    return not run.exists() or {path.name for path in run.iterdir()} <= {LOCK, "config.yaml.part"}


@contextlib.contextmanager
def locked(run: Path) -> Iterator[None]:
    """Hold the run directory; refused while another process does. The lock goes with the process."""
    with (run / LOCK).open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            raise ValueError(
                f"process {file.read().strip() or '?'} is training in {run}; wait for it, stop it, or name "
                "another directory with --run"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def newest_whole(run: Path) -> tuple[Path | None, list[str]]:
    """The newest checkpoint that verifies, None where there is none; and why newer ones were passed over."""
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
    """Whether this is a run that was killed before it had done anything: settings, no numbers."""
    if not (run / "config.yaml").exists() or checkpoint.finished(run):
        return False
    return not (run / METRICS).exists() or not read_lines(run / METRICS)


def check_settings_unchanged(run: Path, folder: Path, now: Mapping[str, Any]) -> None:
    """Compare the settings with those of a checkpoint; every difference that matters is shown."""
    told = (folder / "config.yaml").read_text(encoding="utf-8")
    before, now = yaml.safe_load(told), yaml.safe_load(yaml.safe_dump(dict(now)))
    changed = [
        f"{name} was {before.get(name)!r} and is {now.get(name)!r}"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name) and not name.startswith(CHANGEABLE)
    ]
    if now.get("learner.decay") != "constant" and before.get("iterations") != now.get("iterations"):
        changed.append(
            f"iterations was {before['iterations']} and is {now['iterations']} (learner.decay looks at it)"
        )
    if changed:
        raise ValueError(
            f"{run} began with other settings: {'; '.join(changed)}. Leave them as they were, or start "
            "another run"
        )


def rewind(run: Path, iteration: int) -> None:
    """Drop every logged row of `iteration` and later: the run is about to write them again."""
    for name in (METRICS, SAMPLES):
        path = run / name
        if path.exists():
            rows = [row for row in read_lines(path) if row["iteration"] < iteration]
            text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            checkpoint.write_text(path, text)


def check_complete(run: Path, iterations: int) -> None:
    """Every iteration asked for has its row of numbers, once; anything else is an error."""
    rows = [row["iteration"] for row in read_lines(run / METRICS) if "time/update/seconds" in row]
    if rows != list(range(iterations)):
        raise RuntimeError(
            f"{run / METRICS} holds {len(rows)} iterations and {iterations} were asked for; start it again "
            "with --resume must"
        )
