"""The lock on a run directory."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cory.training.overwriting import locked

HOLD = f"""
import pathlib
import sys
sys.path[:0] = [{str(Path(__file__).parents[3] / "agents")!r}]
from cory.training.overwriting import locked
with locked(pathlib.Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(run: Path) -> Iterator[None]:
    """Another process that holds the lock of a run directory; it is killed at the end."""
    words = [sys.executable, "-W", "ignore", "-c", HOLD, str(run)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "locked\n"
        yield
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_a_lock_is_refused_and_freed_when_its_holder_is_killed(tmp_path):
    run = tmp_path / "run"
    refused = pytest.raises(ValueError, match=r"is training in .*; wait for it, stop it, or name another")
    with holder(run), refused, locked(run):
        pass
    with locked(run):
        pass
    assert list(tmp_path.iterdir()) == []
