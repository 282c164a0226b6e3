"""User functions as judges: a failure costs one score, and no process stays behind."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from cory.judges.config import JudgeConfig
from cory.judges.supervisor import Supervisor
from cory.judges.user_function import UserFunction

pytestmark = pytest.mark.slow

HERE = "tests.helpers.judge_functions"
ROOT = Path(__file__).parents[3]


def user_function(name, *, seconds=1.0, memory_mb=512, failed_score=-5.0, max_failures=1.0):
    supervisor = Supervisor(seconds=seconds, memory_mb=memory_mb)
    config = JudgeConfig(failed_score=failed_score, max_failures=max_failures)
    return UserFunction(("function", f"{HERE}:{name}"), name=name, supervisor=supervisor, config=config)


@pytest.fixture(scope="module")
def faulty():
    judge = user_function("faulty")
    yield judge
    judge.supervisor.close()


@pytest.fixture
def forked(tmp_path, monkeypatch):
    """The file to which forks write their pids."""
    monkeypatch.setenv("FORKED", str(tmp_path / "pids"))
    return tmp_path / "pids"


def alive(pid):
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def gone(pids, *, within=5.0):
    deadline = time.monotonic() + within
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(alive, pids))


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("hang", "took more than 1 s"),
        ("exit", "ended with exit code 3"),
        ("quit", "SystemExit"),
        ("segfault", "died of signal 11"),
        ("stop", "took more than 1 s"),
        ("raise", "KeyError: 'no such word'"),
        ("allocate", "ran out of 512 MB: MemoryError"),
        ("nan", "returned nan"),
        ("inf", "returned -inf"),
        ("none", "returned None"),
        ("text", "returned '2'"),
        ("list", "returned [1.0]"),
        ("long", "returned 'xxx"),
    ],
)
def test_a_fault_costs_one_score_and_is_recorded_with_the_response(faulty, fault, reason):
    assert faulty(["ab", fault, "abcd"]) == [2, -5, 4]
    (failure,) = faulty.failures
    faulty.failures.clear()
    assert failure["failure"].startswith(reason)
    assert len(failure["failure"]) <= 400
    assert (failure["judge"], failure["response"]) == ("faulty", fault)
    assert faulty.metrics()["failures"] == 1
    assert faulty(["abc"]) == [3]


def test_memory_that_is_mapped_and_not_allocated_is_free(faulty):
    assert faulty(["reserve", "ab"]) == [7, 2]


def test_endless_output_is_discarded_and_costs_nothing(faulty, capfd):
    assert faulty(["flood", "ab"]) == [5, 2]
    assert capfd.readouterr() == ("", "")


def test_a_fork_that_returns_does_not_reply_too(faulty):
    assert faulty(["split", "ab"]) == [5, 2]
    assert faulty(["abc", "abcd"]) == [3, 4]
    assert faulty.metrics() == {"failures": 0, "retries": 0}


def test_forks_are_killed_with_the_process_they_came_from(forked):
    judge = user_function("faulty")
    assert judge(["ab", "fork"]) == [2, -5]
    assert judge.failures[0]["failure"] == "took more than 1 s"
    pids = [int(pid) for pid in forked.read_text().split()]
    assert len(pids) >= 6  # three for the batch, three for the response by itself
    assert gone(pids)
    judge.supervisor.close()


@pytest.mark.parametrize(
    ("name", "texts", "scores"), [("short", ["a", "lost", "b"], [1, -5, 1]), ("endless", ["a"], [-5])]
)
def test_a_wrong_number_of_scores_costs_those_that_are_missing(name, texts, scores):
    judge = user_function(name)
    assert judge(texts) == scores
    assert judge.failures[0]["failure"].startswith("ValueError: returned")
    judge.supervisor.close()


def test_a_function_that_always_returns_one_score_is_refused():
    """Response by response it would seem right."""
    judge = user_function("single")
    with pytest.raises(ValueError, match="returned 1 scores for 3 responses, and one for each response by"):
        judge(["a", "b", "c"])
    assert judge(["a"]) == [1.0]
    judge.supervisor.close()


def test_a_batch_is_scored_at_once_and_if_that_fails_one_by_one():
    judge = user_function("batch")
    assert judge(["a", "b", "c"]) == [3, 3, 3]
    assert judge(["a", "alone", "c"]) == [1, -5, 1]
    assert judge([]) == []
    assert judge.metrics() == {"failures": 1, "retries": 1}
    assert judge.metrics() == {"failures": 0, "retries": 0}
    assert len(judge.supervisor.workers) == 1
    judge.supervisor.close()


def test_more_failures_than_the_share_stop_the_run_and_fewer_do_not():
    # at 0.1 of at least 32: three may fail, the fourth may not; of 40, four may and the fifth may not
    judge = user_function("faulty", max_failures=0.1)
    assert judge(["nan"] * 3 + ["ab"] * 5) == [-5] * 3 + [2] * 5
    with pytest.raises(
        ValueError, match=r"judge 'faulty' failed on 4 of 12 responses, above judge.max_failures 0.1"
    ):
        judge(["nan", "ab", "ab", "ab"])
    judge.supervisor.close()
    judge = user_function("faulty", max_failures=0.1)
    assert judge(["nan"] * 4 + ["ab"] * 36).count(-5) == 4
    with pytest.raises(
        ValueError, match=r"The last: returned nan, for the response 'nan' to ''\. Fix the function"
    ):
        judge(["nan"])
    judge.supervisor.close()


def test_a_function_that_always_fails_stops_the_run_before_every_response_was_tried():
    judge = user_function("batch", max_failures=0.1, seconds=60)
    began = time.monotonic()
    with pytest.raises(ValueError, match="failed on 31 of 300 responses"):
        judge(["alone"] * 300)
    assert time.monotonic() - began < 30
    judge.supervisor.close()


def test_a_stopping_run_does_not_wait_for_the_remaining_responses():
    # the batch, then eleven of a thousand one by one: 3.6 s; all of them: 300 s
    judge = user_function("faulty", seconds=0.3, max_failures=0.01)
    began = time.monotonic()
    with pytest.raises(ValueError, match=r"failed on 11 of 1000 .* took more than 0\.3 s"):
        judge(["hang"] * 1000)
    assert time.monotonic() - began < 75
    judge.supervisor.close()


def test_a_response_of_ten_megabytes_is_scored():
    judge = user_function("faulty")
    assert judge(["x" * 10**7, "ab"]) == [10**7, 2]
    judge.supervisor.close()


def test_closing_ends_the_process_and_the_next_call_starts_a_new_one():
    judge = user_function("faulty")
    assert judge(["raise", "ab"]) == [-5, 2]
    pids = [worker.process.pid for worker in judge.supervisor.workers]
    judge.supervisor.close()
    assert gone(pids)
    assert judge(["ab"]) == [2]
    (pid,) = [worker.process.pid for worker in judge.supervisor.workers]
    del judge
    assert gone([pid])


RUN = f"""
import sys
from cory.judges.supervisor import Supervisor
supervisor = Supervisor(seconds=1, memory_mb=512)
supervisor.load(("function", "{HERE}:faulty"))
print(supervisor.workers[0].process.pid, flush=True)
if sys.argv[1] != "end":
    sys.stdin.read(1)
"""


@pytest.mark.parametrize("ending", ["end", "kill"])
def test_processes_end_with_the_run_however_it_ends(ending):
    run = subprocess.Popen(
        [sys.executable, "-c", RUN, ending],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    pid = int(run.stdout.readline())
    if ending == "kill":
        assert alive(pid)
        run.kill()
    run.communicate(timeout=30)
    assert gone([pid])
