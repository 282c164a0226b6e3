"""A full disk: a run that cannot continue says why, and resumes from its newest checkpoint.

The system itself refuses writes here, by a limit on the size of files (RLIMIT_FSIZE): also in the middle of a
line, and also writes of libraries that are not written in Python.
"""

import errno
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from cory.cli.main import main
from cory.runtime.files import system_errors
from cory.tracking.tracker import Tracker, read
from cory.training import checkpoint
from cory.training import run as training_run
from cory.training.loop import Loop
from tests.helpers.runs import FLAGS, finished_run, same, traces, without_report

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
"""TensorBoard's writing thread ends with the disk."""

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


def test_a_line_that_does_not_fit_is_an_error_and_no_half_line_stays(tmp_path):
    """Each line of metrics is 32 bytes: two of them fit into 70, and 6 bytes of the third."""
    with Tracker(tmp_path) as tracker:
        with room_for(70):
            for iteration in range(2):
                tracker.log(iteration, {"a/b/c": 0.5})
            with pytest.raises(OSError, match="File too large"):
                tracker.log(2, {"a/b/c": 0.5})
        tracker.log(2, {"a/b/c": 0.5})
    assert [row["iteration"] for row in read(tmp_path)] == [0, 1, 2]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Iterator[dict]:
    """What a run leaves that always had room."""
    with pytest.MonkeyPatch.context() as patch:
        without_report(patch)
        yield traces(finished_run(tmp_path_factory), 6)


def full_between(monkeypatch, first: int, last: int) -> None:
    """No file grows from the start of iteration `first` until that of iteration `last`."""
    plain = Loop.save_and_evaluate
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def between(self, iteration, *rest):
        full = first <= iteration < last
        resource.setrlimit(resource.RLIMIT_FSIZE, (10 if full else limits[0], limits[1]))
        plain(self, iteration, *rest)

    monkeypatch.setattr(Loop, "save_and_evaluate", between)


@pytest.mark.slow
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
        with system_errors(tmp_path):
            raise LookupError(text)

    with pytest.raises(OSError, match="No space left") as raised:
        fail("I/O error: No space left on device (os error 28)")
    assert raised.value.errno == errno.ENOSPC
    with pytest.raises(LookupError):
        fail("os error")


@pytest.mark.slow
def test_a_run_whose_policies_do_not_fit_exports_them_on_resume(tmp_path, whole, capsys, monkeypatch):
    run = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        plain = training_run.export_policies

        def full(*arguments):
            with room_for(100):
                return plain(*arguments)

        patch.setattr(training_run, "export_policies", full)
        assert main([*ARGV, "--run", str(run)]) == 2
    printed = " ".join(capsys.readouterr().err.split())
    assert "error: [Errno 27] File too large" in printed
    assert f"go on with: cory train --run {run} --resume must" in printed
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=2_000))  # for the policies
    assert main([*ARGV, "--run", str(run), "--resume", "must"]) == 0
    assert same(traces(run, 6), whole)
    assert {path.name for path in (run / "policies").iterdir()} == {"llm_1", "llm_2"}


@pytest.mark.slow
def test_a_run_without_room_for_its_policies_is_refused_before_it_writes(tmp_path, monkeypatch, capsys):
    """Two tables of 216 weights take 1,728 bytes, and with a checkpoint, which has moments, 6,912."""
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=2_000))
    run = tmp_path / "run"
    assert main([*ARGV, "--run", str(run)]) == 2
    assert "and its disk has 0 MB; make room, or name another with --run" in capsys.readouterr().err
    assert not run.exists()
    assert main([*ARGV, "--run", str(run), "--checkpoint-every", "0"]) == 0


@pytest.mark.slow
def test_a_run_that_ended_before_its_first_checkpoint_says_how_to_start_again(tmp_path, capsys):
    run = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        full_between(patch, 0, 9)
        with room_for(2**30):
            assert main([*ARGV, "--run", str(run)]) == 2
    printed = " ".join(capsys.readouterr().err.split())
    assert f"{run} has no checkpoint; to start again, give the same command with --overwrite" in printed
    assert main([*ARGV, "--run", str(run), "--overwrite"]) == 0
