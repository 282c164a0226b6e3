"""Costly results that the tests of a module share, also where pytest runs them in several processes."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock


def once(folders: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """The path `name` that `make` writes, made by the first process that asks for it."""
    base = folders.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # the folder of all workers of this session
    path = base / name
    with FileLock(f"{path}.lock"):
        if not path.exists():
            make(path)
    return path


def made_once(folders: pytest.TempPathFactory, name: str, make: Callable[[Path], Any]) -> Any:
    """What `make` returns for a folder of its own: pickled by the first process, read by the others."""

    def write(path: Path) -> None:
        folder = path.with_suffix("")
        folder.mkdir()
        path.write_bytes(pickle.dumps(make(folder)))

    return pickle.loads(once(folders, f"{name}.pickle", write).read_bytes())
