"""Files that are replaced whole, moved aside instead of deleted, and named where they cannot be read."""

import itertools
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any


def write_text(path: Path, text: str) -> None:
    """Replace a text file atomically: after a crash it is either the new or the old one, complete.

    A link of that name is replaced; the file that it leads to stays as it is.
    """
    part = path.with_name(path.name + ".part")
    remove(part)
    part.write_text(text, encoding="utf-8")
    sync(part)
    part.replace(path)


def sync(path: Path) -> None:
    """Flush a file or directory to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove(path: Path) -> None:
    """Remove a file, a folder or a link, if there is one; what a link leads to stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def move_aside(path: Path, word: str = "old") -> Path:
    """Rename a file, a folder or a link to a free `NAME.WORD-TIME` beside it; its new path."""
    base = path.with_name(f"{path.name}.{word}-{datetime.now():%Y%m%d-%H%M%S}")
    names = (base if n == 1 else base.with_name(f"{base.name}_{n}") for n in itertools.count(1))
    aside = next(name for name in names if not os.path.lexists(name))
    path.rename(aside)
    return aside


def replace_folder(part: Path, final: Path) -> Path | None:
    """Give a written folder its final name; where an older folder of that name was moved to, if it was.

    Files of the same names are replaced one by one, so that each is whole at any moment. A folder that holds
    anything else is moved aside as it is, and a link is removed.
    """
    aside = None
    if final.is_symlink():
        final.unlink()
    elif final.exists() and not _names(final) <= _names(part):
        aside = move_aside(final)
    if not final.exists():
        part.replace(final)
        return aside
    for name in sorted(_names(part)):
        (final / name).parent.mkdir(parents=True, exist_ok=True)
        (part / name).replace(final / name)
    shutil.rmtree(part)
    return aside


def _names(folder: Path) -> set[Path]:
    """The files and links below a folder, relative to it."""
    if not folder.is_dir():
        return {Path()}
    return {path.relative_to(folder) for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()}


def let_read(folder: Path) -> None:
    """Give files the permissions of their folder: safetensors writes them for their owner alone."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with suppress(OSError):  # of a disk without permissions
                path.chmod(folder.stat().st_mode & 0o666)


@contextmanager
def system_errors(folder: Path) -> Iterator[None]:
    """Convert system errors that safetensors and tokenizers raise as other exceptions to OSError."""
    try:
        yield
    except Exception as error:
        if (match := re.search(r"\(os error (\d+)\)", str(error))) is None:
            raise
        number = int(match[1])
        raise OSError(number, os.strerror(number), str(folder)) from error


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; ValueError that names the file if it is damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError("it is no JSON object")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({error}); restore it, or move it away") from error
    return content


def check_output(path: Path, *words: str) -> None:
    """Raise ValueError unless a file can be written here without a loss.

    There must be a folder for it, and what the file replaces must begin with one of the `words`, which only
    CORY's own files of this kind do.
    """
    if not path.parent.is_dir():
        raise ValueError(f"there is no folder {path.parent} to write {path.name} into")
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name a file")
    if not path.exists():
        return
    with path.open("rb") as file:
        start = file.read(2000).decode("utf-8", "replace")
    if start and not any(word in start for word in words):
        raise ValueError(f"{path} holds something else and is not replaced; name another file")
