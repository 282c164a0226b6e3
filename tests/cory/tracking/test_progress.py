"""Progress lines of a run in a log: whole lines, as they are, with the minutes that are left."""

import json
import time

import pytest

from cory.tracking import progress
from cory.tracking.progress import RunProgress

METRICS = {
    "pioneer_0/llm_1/task_reward": 0.5,
    "pioneer_0/llm_1/kl": 1.25,
    "observer_1/llm_2/task_reward": -0.25,
    "observer_1/llm_2/kl": 0.5,
    "speed/tokens/per_second": 1234.5,
}
LINE = "pioneer llm_1 +0.50 KL 1.2 | observer llm_2 -0.25 KL 0.5 | 1234 tok/s"


@pytest.fixture
def clock(monkeypatch):
    """The seconds that `RunProgress` sees."""
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def play(run: RunProgress, iterations: int, clock: list[float], *, seconds: float) -> None:
    for _ in range(iterations):
        run.update("training", {})
        clock[0] += seconds
        run.update("training", METRICS)


def test_a_log_has_a_line_after_the_first_iteration_and_then_every_thirty_seconds(clock, capsys):
    """6 seconds an iteration: after 1 of 20 another 19 take 1.9 minutes, after 6 of 20 14 take 84 s."""
    with RunProgress(start=0, iterations=20) as run:
        play(run, 11, clock, seconds=6)
    assert capsys.readouterr().err.splitlines() == [
        f"iteration 1 of 20 (1.9 min left): {LINE}",
        f"iteration 6 of 20 (1.4 min left): {LINE}",
        f"iteration 11 of 20 (54 s left): {LINE}",
    ]


def test_a_log_has_a_line_for_every_evaluation_with_gains_over_the_reference(clock, capsys):
    """0.767 - 0.494 = 0.273 and 0.5 - 0.494 = 0.006; the mean of the weights has a KL that is not finite."""
    metrics = {
        "eval/reference/task_reward": 0.494,
        "eval/llm_1/task_reward": 0.767,
        "eval/llm_1/kl": 6.04,
        "eval/llm_2/task_reward": 0.5,
        "eval/llm_2/kl": 0.0,
        "eval/average/task_reward": -1.0,
        "eval/average/kl": float("nan"),
        "team/all/task_reward": 3.0,
    }
    line = "held out: llm_1 0.767 (+0.273) KL 6.0 | llm_2 0.500 (+0.006) KL 0.0 | average -1.000 (-1.494)"
    with RunProgress(start=0, iterations=20) as run:
        run.update("evaluating llm_1", {})
        run.update("evaluated", metrics)
        run.update("evaluated", {"eval/llm_1/combined_reward": 1.0})
    assert capsys.readouterr().err == f"iteration 0 of 20: {line}\n"


def test_gains_are_over_the_own_reference_where_policies_start_from_several_models():
    rewards = {"reference_llm_1": 0.25, "llm_1": 0.5, "reference_llm_2": 1.0, "llm_2": 0.5}
    metrics = {f"eval/{name}/task_reward": value for name, value in rewards.items()}
    assert progress.held_out(metrics) == "held out: llm_1 0.500 (+0.250) | llm_2 0.500 (-0.500)"


def test_the_time_left_counts_evaluations_and_the_end(clock):
    """10 iterations of 6 s, evaluations at 0, 5, 10, the first of 4 s with 2 policies: 8 s each, 10 s after.

    After 1 iteration: 9 * 6 + 2 * 8 + 10 = 80. After 5: 5 * 6 + 2 * 8 + 10 = 56, 3 s into the evaluation 53.
    That takes 12 s; once it is longer than the 8 it was taken for, 56 - 8 = 48 are left. The last one then
    takes 12 too: 5 * 6 + 12 + 10 = 52. In the last one, 4 s in, 12 - 4 + 10.
    """
    with RunProgress(start=0, iterations=10, evaluations=(0, 5, 10), policies=2, ending=10.0) as run:
        clock[0] += 4
        run.update("evaluated", {})
        assert run._left() is None
        play(run, 1, clock, seconds=6)
        assert run._left() == 80
        play(run, 4, clock, seconds=6)
        assert run._left() == 56
        run.update("evaluating llm_1", {})
        clock[0] += 3
        assert run._left() == 53
        clock[0] += 9
        assert run._left() == 48
        run.update("evaluated", {})
        assert run._left() == 52
        play(run, 5, clock, seconds=6)
        run.update("evaluating llm_1", {})
        clock[0] += 4
        assert run._left() == 18
        clock[0] += 8
        run.update("evaluated", {})
        run.update("exporting policies", {})
        clock[0] += 2
        assert run._left() == 8
        run.update("drawing the report", {})
        clock[0] += 60
        assert run._left() == 0
        assert run._position() == "10 of 10"


def test_a_log_says_what_a_run_is_doing_when_nothing_else_is_printed(monkeypatch, capsys):
    monkeypatch.setattr(progress, "LOG_EVERY", 0.05)
    with RunProgress(start=0, iterations=20) as run:
        run.update("sample", {})
        time.sleep(0.4)
    assert "iteration 0 of 20: sampling\n" in capsys.readouterr().err


def test_the_minutes_left_of_a_resumed_run_count_its_own_iterations_only(clock, capsys):
    """It resumes at 15 of 25 and takes 60 seconds for each of 5 iterations; 5 are left."""
    with RunProgress(start=15, iterations=25) as run:
        play(run, 5, clock, seconds=60)
    assert capsys.readouterr().err.splitlines()[-1] == f"iteration 20 of 25 (5.0 min left): {LINE}"


@pytest.mark.parametrize("width", ["20", "80"])
def test_long_lines_are_not_wrapped_whatever_the_width(monkeypatch, capsys, width):
    monkeypatch.setenv("COLUMNS", width)
    text = "warning: " + "a word, " * 60 + "runs/a-folder/whose/name/must/stay/in/one/piece"
    with RunProgress(start=0, iterations=1) as run:
        run.say(text)
    assert capsys.readouterr().err == f"{text}\n"


def test_text_of_models_is_neither_markup_nor_emoji(capsys):
    text = "judge 'mine': [red]1 / 0[/red], for the response '[/INST] :smile: [bold]' 0.5"
    with RunProgress(start=0, iterations=1) as run:
        run.say(text)
    assert capsys.readouterr().err == f"{text}\n"


def test_a_log_on_a_full_disk_does_not_end_the_run(monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with RunProgress(start=0, iterations=1) as run:
        monkeypatch.setattr(run.console, "print", full)
        run.say("a line")


def test_a_log_is_too_slow_for_the_phases_of_an_iteration(clock, capsys):
    with RunProgress(start=0, iterations=20) as run:
        for phase in progress.PHASES:
            run.update(phase, {})
    assert capsys.readouterr().err == ""


def test_quiet_prints_warnings_only(clock, capsys):
    with RunProgress(start=0, iterations=10, log="quiet") as run:
        run.say("2 policies on cpu")
        run.update("evaluating llm_1", {})
        run.update("evaluated", {"eval/llm_1/task_reward": 1.0})
        play(run, 5, clock, seconds=60)
        run.warn("warning: KL is high")
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "warning: KL is high\n")


def test_a_json_log_is_one_object_a_line_on_stdout_with_every_metric(clock, capsys):
    """20 seconds for the first of 3 iterations: 40 are left."""
    with RunProgress(start=0, iterations=3, log="json") as run:
        run.say("2 policies on cpu")
        run.update("sample", {})
        clock[0] += 20
        run.update("training", {**METRICS, "pioneer_0/llm_1/explained_variance": float("nan")})
        run.warn("warning: KL is high")
    printed = capsys.readouterr()
    assert printed.err == ""
    begun = {"iteration": 0, "iterations": 3, "seconds": 0.0, "seconds_left": None}
    later = {"iteration": 1, "iterations": 3, "seconds": 20.0, "seconds_left": 40.0}
    metrics = METRICS | {"pioneer_0/llm_1/explained_variance": None}
    assert [json.loads(line) for line in printed.out.splitlines()] == [
        {"event": "message", **begun, "text": "2 policies on cpu"},
        {"event": "phase", **begun, "phase": "sample", "metrics": {}},
        {"event": "iteration", **later, "phase": "training", "metrics": metrics},
        {"event": "warning", **later, "text": "warning: KL is high"},
        {"event": "end", **later, "state": "done"},
    ]


def test_a_bar_shows_what_is_being_done_and_the_last_metrics(clock, monkeypatch):
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)
    with RunProgress(start=0, iterations=3) as run:
        run.update("training", METRICS)
        run.update("judge", {})
        (task,) = run._bar.tasks
        assert (task.description, task.completed, task.fields["metrics"]) == ("judging", 1, LINE)
    assert task.description == "done"


def test_a_notebook_updates_one_line(clock, monkeypatch):
    shown = []

    class Display:
        def update(self, content, raw):
            shown.append(content["text/plain"])

    monkeypatch.setattr(progress, "_notebook_display", Display)
    with RunProgress(start=0, iterations=4) as run:
        run.update("sample", {})
        play(run, 1, clock, seconds=60)
        run.update("update", {})
    assert shown == [
        "sampling 0 of 4",
        "training 0 of 4",
        f"training 1 of 4 (3.0 min left) {LINE}",
        f"updating 1 of 4 (3.0 min left) {LINE}",
        f"done: 1 of 4 {LINE}",
    ]
