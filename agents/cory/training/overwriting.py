"""Who may write to a folder: the lock on it, and which folders `--overwrite` moves aside.

Those are the ones that CORY made and that hold nothing else. No file is deleted, and no link is followed.
"""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from cory.evaluation.records import EXPORTED
from cory.runtime.files import move_aside, write_text
from cory.tracking.tracker import METRICS, SAMPLES, read, read_lines

MARKER = ".cory"
"""A file in every folder that CORY has made for a run or a study."""
CONTENT = "Made by cory: it writes to this folder, and moves it aside with --overwrite. See docs/runs.md.\n"

WRITTEN = {
    MARKER, "config.yaml", "environment.json", METRICS, SAMPLES, "tensorboard", "trackers.json", "wandb",
    "judge.log", "checkpoints", "policies", EXPORTED, "average", "evaluations", "cross", "probe.json",
    "report.html", "plots", "comparison.html", "paper_figures.html",
}  # fmt: skip
"""Names that CORY writes into a run directory."""

OF_ITERATION = re.compile(r"diverged-\d+\.safetensors")
UNFINISHED = re.compile(r"\.(part|tmp|old-[\d_-]+)$")
"""Endings of names that are being written, or were moved aside."""


def lock_of(run: Path) -> FileLock:
    """The lock of a run directory, a file beside it."""
    place = run.resolve()
    return FileLock(place.with_name(f".{place.name}.lock"))


@contextmanager
def locked(run: Path) -> Iterator[None]:
    """Lock the run directory, which may be yet to be made, for this process; ValueError if another has it.

    Folders above it that are made for the lock go with it if nothing else is in them.
    """
    lock = lock_of(run)
    folder = Path(lock.lock_file).parent
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from None
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(
            f"another process is training in {run}; wait for it, stop it, or name another directory with "
            "--run"
        ) from None
    try:
        yield
    finally:
        Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()
        with suppress(OSError):
            for place in made:
                place.rmdir()


def mark(folder: Path) -> None:
    """Make the folder, if it is missing, and mark it as one that CORY made."""
    folder.mkdir(parents=True, exist_ok=True)
    if not is_marked(folder):
        write_text(folder / MARKER, CONTENT)


def is_marked(folder: Path) -> bool:
    """Whether CORY made this folder."""
    path = folder / MARKER
    try:
        return not path.is_symlink() and path.read_text(encoding="utf-8") == CONTENT
    except (OSError, ValueError):
        return False


def is_empty(run: Path) -> bool:
    """Whether the directory is absent, or holds only what is written before the settings."""
    before = {MARKER, f"{MARKER}.part", "config.yaml.part"}
    return not run.exists() or {path.name for path in run.iterdir()} <= before


def check_unoccupied(run: Path, *, overwrite: bool) -> None:
    """Raise ValueError if the directory holds a run (unless `overwrite`) or anything else."""
    if os.path.lexists(run) and not run.is_dir():
        kind = "a link that leads to no folder" if run.is_symlink() else "a file"
        raise ValueError(f"{run} is {kind}; name a folder with --run")
    if is_empty(run):
        return
    if not overwrite:
        raise ValueError(
            f"the run directory {run} is not empty; name another with --run, or pass --overwrite"
        )
    if reason := next(_reasons(run), None):
        raise ValueError(f"{run} {reason}; it is not overwritten: name another with --run")


def _reasons(run: Path) -> Iterator[str]:
    """Why a folder must stay where it is; nothing for a run of CORY's that holds nothing else."""
    places = {"the working directory": Path.cwd(), "your home": Path(os.path.expanduser("~")).resolve()}
    for what, place in places.items():
        if run.resolve() in (place, *place.parents):
            yield f"is {what}, or holds it"
    names = sorted(path.name for path in run.iterdir())
    whole = {name: UNFINISHED.sub("", name) for name in names}
    foreign = [
        name for name in names if whole[name] not in WRITTEN and not OF_ITERATION.fullmatch(whole[name])
    ]
    if not is_marked(run):
        listed = f", but {_listed(foreign)}" if foreign else ""
        yield f"holds no run that `cory train` has made (no {MARKER}){listed}"
    if foreign:
        yield f"holds {_listed(foreign)}, which CORY has not written"
    if (run / METRICS).exists():
        read(run)  # a ValueError of its own names the line
    if (run / SAMPLES).exists():
        read_lines(run / SAMPLES)


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"


def move_run_aside(run: Path) -> Path:
    """Rename the run, or the link of that name, to `RUN.old-TIME`; the new path.

    ValueError as `check_unoccupied`, and where the folder cannot be renamed.
    """
    check_unoccupied(run, overwrite=True)
    try:
        return move_aside(run.resolve() if run.name in ("", "..") else run)
    except OSError as error:
        raise ValueError(
            f"{run} cannot be moved aside ({error.strerror}); name another with --run"
        ) from error
