"""A disk that takes no more: nothing that was learned is lost, and what cannot go on says so.

The system itself refuses writes here, by a limit on the size of files (RLIMIT_FSIZE): also in the middle of a
line, and also those of libraries that are not written in Python.
"""

import errno
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from cory.training import checkpoint
from cory.cli.main import main
from cory.training.loop import Loop
from cory.tracking.tracker import Tracker, read, read_lines
from tests.cory.training.test_resume import FLAGS, same, traces

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
"""TensorBoard's writing thread ends with the disk; the lines are told to a new one."""

ARGV = ("train", *FLAGS, "--iterations", "6")


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """Inside, no file of this process grows beyond so many bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def rows_of(path: Path) -> list[int]:
    return [row["iteration"] for row in read_lines(path)]


def test_lines_wait_for_room_in_their_order_and_no_half_line_stays(tmp_path):
    """Each line of metrics is 32 bytes: two of them fit into 70, and 6 bytes of the third."""
    said: list[str] = []
    with Tracker(tmp_path, tensorboard=False, say=said.append) as tracker:
        with room_for(70):
            for iteration in range(4):
                tracker.log(iteration, {"a/b/c": 0.5})
            assert (tmp_path / "metrics.jsonl").read_bytes() == b"".join(
                b'{"iteration": %d, "a/b/c": 0.5}\n' % n for n in (0, 1)
            )
            with pytest.raises(OSError, match="File too large"):
                tracker.flush()
            tracker.samples(3, [{"query": "x" * 100}])
        assert rows_of(tmp_path / "metrics.jsonl") == [0, 1]
        tracker.log(4, {"a/b/c": 0.5})
        assert rows_of(tmp_path / "metrics.jsonl") == [0, 1, 2, 3, 4]
        tracker.flush()
        assert rows_of(tmp_path / "samples.jsonl") == [3]
    (warning,) = said
    assert warning.endswith("metrics.jsonl cannot be written (File too large); its lines wait")


def test_tensorboard_is_told_what_it_missed_while_the_disk_was_full(tmp_path):
    with Tracker(tmp_path, say=lambda text: None) as tracker:
        tracker.log(0, {"a/b/c": 0.0})
        with room_for(20):
            tracker.log(1, {"a/b/c": 1.0})
        tracker.log(2, {"a/b/c": 2.0})
    board = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(e.step, e.value) for e in board.Scalars("a/b/c")] == [(0, 0.0), (1, 1.0), (2, 2.0)]


def test_lines_that_can_never_be_written_are_an_error_at_the_end(tmp_path):
    tracker = Tracker(tmp_path, tensorboard=False, say=lambda text: None)
    with room_for(0):
        tracker.log(0, {"a/b/c": 1.0})
        tracker.samples(0, [{}])
        with pytest.raises(OSError, match="2 lines of metrics and samples could not be written") as told:
            tracker.close()
    assert told.value.errno == errno.EFBIG


def test_what_ended_a_run_is_told_rather_than_its_lost_lines(tmp_path):
    def sick(tracker: Tracker) -> None:
        with tracker:
            tracker.log(0, {"a/b/c": 1.0})
            raise ZeroDivisionError

    said: list[str] = []
    tracker = Tracker(tmp_path, tensorboard=False, say=said.append)
    with room_for(0), pytest.raises(ZeroDivisionError):
        sick(tracker)
    assert "1 lines of metrics and samples could not be written" in said[-1]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Iterator[dict]:
    """What a run leaves that always had room."""
    run = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cory.training.run.write_report", lambda run: run / "report.html")
        assert main([*ARGV, "--run", str(run)]) == 0
        yield traces(run, 6)


def full_between(monkeypatch, first: int, last: int) -> None:
    """No file grows from the start of iteration `first` until that of iteration `last`."""
    plain = Loop.between
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def between(self, iteration, *rest):
        full = first <= iteration < last
        resource.setrlimit(resource.RLIMIT_FSIZE, (10 if full else limits[0], limits[1]))
        plain(self, iteration, *rest)

    monkeypatch.setattr(Loop, "between", between)


def test_a_run_outlives_a_full_disk_and_is_the_run_it_would_have_been(tmp_path, whole, monkeypatch, capsys):
    """From iteration 1 to 4: the checkpoint of iteration 2 and a new best of 3 fail, that of 4 does not."""
    run = tmp_path / "run"
    full_between(monkeypatch, 1, 4)
    assert main([*ARGV, "--run", str(run)]) == 0
    said = capsys.readouterr().err
    assert "its lines wait" in said
    assert "no checkpoint of iteration 2" in said
    assert same(traces(run, 6), whole)
    steps = {row["iteration"] for row in read(run)}
    board = EventAccumulator(str(run / "tensorboard")).Reload()
    assert {e.step for e in board.Scalars("time/update/seconds")} == steps - {6}


def test_a_run_that_a_full_disk_ended_goes_on_when_there_is_room(tmp_path, whole, capsys):
    run = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        full_between(patch, 3, 9)
        with room_for(2**30):
            assert main([*ARGV, "--run", str(run), "--failed-saves", "1"]) == 2
    said = capsys.readouterr().err
    assert "error: " in said
    assert "File too large" in said
    assert f"go on with: cory train --run {run} --resume must" in " ".join(said.split())
    assert checkpoint.finished(run)[-1] == checkpoint.folder_of(run, 2)
    assert main([*ARGV, "--run", str(run), "--resume", "must"]) == 0
    assert same(traces(run, 6), whole)


def test_errors_of_the_system_that_libraries_tell_in_their_own_words_are_such_errors(tmp_path):
    def fail(words: str) -> None:
        with checkpoint._system_errors(tmp_path):
            raise LookupError(words)

    with pytest.raises(OSError, match="No space left") as told:
        fail("I/O error: No space left on device (os error 28)")
    assert told.value.errno == errno.ENOSPC
    with pytest.raises(LookupError):
        fail("os error")
