"""A full disk: a run that cannot continue says why, and resumes from its newest checkpoint.

The system itself refuses writes here, by a limit on the size of files (RLIMIT_FSIZE): also in the middle of a
line, and also writes of libraries that are not written in Python.
"""

import errno
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from cory.cli.main import main
from cory.tracking.tracker import Tracker, read_lines
from cory.training import checkpoint
from cory.training.loop import Loop
from tests.helpers.runs import FLAGS, finished_run, same, traces, without_report

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
"""TensorBoard's writing thread ends with the disk; a new one gets the lines."""

ARGV = ("train", *FLAGS, "--iterations", "6")


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """Inside, no file of this process grows beyond `size` bytes."""
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
    printed: list[str] = []
    with Tracker(tmp_path, tensorboard=False, say=printed.append) as tracker:
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
    (warning,) = printed
    assert warning.endswith("metrics.jsonl cannot be written (File too large); its lines stay in memory")


def test_tensorboard_gets_what_it_missed_while_the_disk_was_full(tmp_path):
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
        with pytest.raises(OSError, match="2 lines of metrics and samples could not be written") as raised:
            tracker.close()
    assert raised.value.errno == errno.EFBIG


def test_the_error_that_ended_a_run_is_raised_rather_than_that_of_its_lost_lines(tmp_path):
    def fail(tracker: Tracker) -> None:
        with tracker:
            tracker.log(0, {"a/b/c": 1.0})
            raise ZeroDivisionError

    printed: list[str] = []
    tracker = Tracker(tmp_path, tensorboard=False, say=printed.append)
    with room_for(0), pytest.raises(ZeroDivisionError):
        fail(tracker)
    assert "1 lines of metrics and samples could not be written" in printed[-1]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Iterator[dict]:
    """What a run leaves that always had room."""
    with pytest.MonkeyPatch.context() as patch:
        without_report(patch)
        yield traces(finished_run(tmp_path_factory), 6)


def full_between(monkeypatch, first: int, last: int) -> None:
    """No file grows from the start of iteration `first` until that of iteration `last`."""
    plain = Loop.between
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def between(self, iteration, *rest):
        full = first <= iteration < last
        resource.setrlimit(resource.RLIMIT_FSIZE, (10 if full else limits[0], limits[1]))
        plain(self, iteration, *rest)

    monkeypatch.setattr(Loop, "between", between)


def test_a_run_that_a_full_disk_ended_resumes_when_there_is_room(tmp_path, whole, capsys):
    run = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        full_between(patch, 3, 9)
        with room_for(2**30):
            assert main([*ARGV, "--run", str(run)]) == 2
    printed = capsys.readouterr().err
    assert "error: " in printed
    assert "File too large" in printed
    assert f"go on with: cory train --run {run} --resume must" in " ".join(printed.split())
    assert checkpoint.finished(run)[-1] == checkpoint.folder_of(run, 2)
    assert main([*ARGV, "--run", str(run), "--resume", "must"]) == 0
    assert same(traces(run, 6), whole)


def test_system_errors_that_libraries_wrap_in_errors_of_their_own_are_os_errors(tmp_path):
    def fail(text: str) -> None:
        with checkpoint._system_errors(tmp_path):
            raise LookupError(text)

    with pytest.raises(OSError, match="No space left") as raised:
        fail("I/O error: No space left on device (os error 28)")
    assert raised.value.errno == errno.ENOSPC
    with pytest.raises(LookupError):
        fail("os error")


def test_a_run_that_ended_before_its_first_checkpoint_says_how_to_start_again(tmp_path, capsys):
    run = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        full_between(patch, 0, 9)
        with room_for(2**30):
            assert main([*ARGV, "--run", str(run)]) == 2
    printed = " ".join(capsys.readouterr().err.split())
    assert f"{run} has no checkpoint; to start again, give the same command with --overwrite" in printed
    assert main([*ARGV, "--run", str(run), "--overwrite"]) == 0
