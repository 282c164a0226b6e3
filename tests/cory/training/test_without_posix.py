"""Training, evaluation and user functions where POSIX modules are missing, as on Windows."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from cory.judges import processes
from cory.judges.config import JudgeConfig
from cory.judges.parsing import make
from cory.training.overwriting import is_empty
from cory.training.resume import LOCK_HOLDER, locked
from tests.helpers.runs import FLAGS

ROOT = Path(__file__).parents[3]
PATHS = f"""
import sys
sys.path[:0] = [{str(ROOT / "agents")!r}, {str(ROOT)!r}]
"""
START = f"""
{PATHS}
import psutil  # its modules for Linux need some of these, those for Windows do not
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None
"""
COMMANDS = [
    ["train", *FLAGS, "--run", "run", "--iterations", "2"],
    ["train", *FLAGS, "--run", "run", "--iterations", "3", "--resume", "must"],
    ["evaluate", "run", "--queries", "4"],
]
MAIN = f"""
from cory.cli.main import main
from cory.training import run
write_report = run.write_report
for command in {COMMANDS!r}:  # the second draws the report
    run.write_report = write_report if "--resume" in command else lambda folder: folder
    assert main(command) == 0, command
"""
HOLD = """
import pathlib
from cory.training.resume import locked
with locked(pathlib.Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(run: Path, start: str) -> Iterator[int]:
    """Another process that holds the lock of a run directory, by its id; it is killed at the end."""
    words = [sys.executable, "-W", "ignore", "-c", start + HOLD, str(run)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "locked\n"
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def run_python(script: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a script without POSIX modules in a process of its own."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", START + script, *words],
        cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600,
    )  # fmt: skip


@pytest.mark.runs_training
def test_a_table_trains_resumes_and_is_evaluated_without_posix_modules(tmp_path):
    done = run_python(MAIN, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run/report.html").exists()


def test_a_lock_is_refused_with_the_id_of_its_holder_and_freed_when_that_is_killed(tmp_path):
    refused = pytest.raises(ValueError, match=r"is training in .*; wait for it, stop it, or name another")
    with holder(tmp_path, PATHS) as pid, refused as caught, locked(tmp_path):
        pass
    assert str(caught.value).startswith(f"process {pid} ")
    assert (tmp_path / LOCK_HOLDER).read_text() == str(pid)
    assert is_empty(tmp_path)
    with locked(tmp_path):
        assert (tmp_path / LOCK_HOLDER).read_text() == str(os.getpid())
    assert not (tmp_path / LOCK_HOLDER).exists()


def test_a_lock_without_system_locks_is_refused_and_freed_too(tmp_path):
    """The lock is then that its file exists; the file of a process that was killed is taken over."""
    with holder(tmp_path, START) as pid:
        refused = run_python(HOLD, str(tmp_path), cwd=tmp_path)
        assert f"process {pid} is training in {tmp_path}" in refused.stderr
    assert is_empty(tmp_path)
    assert run_python(HOLD, str(tmp_path), cwd=tmp_path).stdout == "locked\n"


@pytest.fixture
def no_posix(tmp_path, monkeypatch):
    """Workers without the module `resource`, started without sessions and inherited sockets."""
    (tmp_path / "resource.py").write_text("raise ImportError('no such module here')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(processes, "POSIX", False)


def ended(pid: int) -> bool:
    """Whether a process has ended within some seconds, even if its parent has not taken notice."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


def judge_of(name: str, **options):
    config = JudgeConfig(max_failures=1.0, failed_score=-5.0, **options)
    return make(f"tests.helpers.judge_functions:{name}", config, device="cpu")


def test_functions_run_and_fail_without_posix_as_with_it(no_posix):
    judge = judge_of("faulty", timeout=2.0)
    assert judge(["ab", "abcd"]) == [2, 4]
    assert judge(["ab", "raise", "x" * 10**6]) == [2, -5, 10**6]
    assert judge(["hang"]) == [-5]
    assert judge(["exit"]) == [-5]
    assert judge(["abc"]) == [3]
    reasons = [row["failure"] for row in judge.failures()]
    assert reasons == ["KeyError: 'no such word'", "took more than 2 s", "ended with exit code 3"]
    judge.close()


def test_a_module_that_ends_its_process_is_refused_without_posix(no_posix, tmp_path):
    (tmp_path / "breaks_off.py").write_text("import os\nos._exit(7)\n")
    with pytest.raises(ValueError, match=r"cannot be imported .its process ended with exit code 7"):
        make("breaks_off:f", JudgeConfig(), device="cpu")


def test_children_and_memory_are_found_and_killed_without_sessions(no_posix, tmp_path, monkeypatch):
    """Three children of 80 MB each, more than 200 in all."""
    monkeypatch.setenv("FORKED", str(tmp_path / "pids"))
    judge = judge_of("faulty", timeout=60.0, memory_mb=200)
    (worker,) = judge.terms[0].judge.pool._all
    assert worker.process.pid in processes.session_members(worker.process.pid)
    assert os.getsid(worker.process.pid) == os.getsid(0)  # no session of its own: the simulation holds
    assert judge(["heavy"]) == [-5]
    assert judge.failures()[0]["failure"].startswith("held ")
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 3
    assert all(ended(pid) for pid in [worker.process.pid, *pids])
    judge.close()


def test_a_worker_that_never_connects_is_reported(no_posix, monkeypatch):
    command = [sys.executable, "-c", "import sys; sys.exit(9)"]
    monkeypatch.setattr(processes, "_command", lambda link, memory_mb: command)
    with pytest.raises(ValueError, match="its process ended with exit code 9"):
        judge_of("faulty")
