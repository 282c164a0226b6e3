"""The lock on a run directory."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cory.training.overwriting import is_empty
from cory.training.resume import LOCK_HOLDER, locked

HOLD = f"""
import pathlib
import sys
sys.path[:0] = [{str(Path(__file__).parents[3] / "agents")!r}]
from cory.training.resume import locked
with locked(pathlib.Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(run: Path) -> Iterator[int]:
    """Another process that holds the lock of a run directory, by its id; it is killed at the end."""
    words = [sys.executable, "-W", "ignore", "-c", HOLD, str(run)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "locked\n"
        yield process.pid
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_a_lock_is_refused_with_the_id_of_its_holder_and_freed_when_that_is_killed(tmp_path):
    refused = pytest.raises(ValueError, match=r"is training in .*; wait for it, stop it, or name another")
    with holder(tmp_path) as pid, refused as caught, locked(tmp_path):
        pass
    assert str(caught.value).startswith(f"process {pid} ")
    assert (tmp_path / LOCK_HOLDER).read_text() == str(pid)
    assert is_empty(tmp_path)
    with locked(tmp_path):
        assert (tmp_path / LOCK_HOLDER).read_text() == str(os.getpid())
    assert not (tmp_path / LOCK_HOLDER).exists()
