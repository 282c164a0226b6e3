"""Costly results that the tests of a module share, also where pytest runs them in several processes."""

import os
from collections.abc import Callable
from pathlib import Path

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
