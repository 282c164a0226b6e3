"""Progress lines of a run in a log: whole lines, as they are, with the minutes that are left."""

import json

import pytest

from cory.tracking import progress
from cory.tracking.progress import LOG_EVERY, RunProgress

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


def test_a_log_has_a_line_for_every_fifth_iteration_with_the_minutes_left(clock, capsys):
    """30 seconds an iteration: after 5 of 20 another 15 take 7.5 minutes, after 10 of 20 10 take 5."""
    with RunProgress(start=0, iterations=20) as run:
        play(run, 2 * LOG_EVERY, clock, seconds=30)
    assert capsys.readouterr().err.splitlines() == [
        f"iteration 5 of 20 (7.5 min left): {LINE}",
        f"iteration 10 of 20 (5.0 min left): {LINE}",
    ]


def test_the_minutes_left_of_a_resumed_run_count_its_own_iterations_only(clock, capsys):
    """It resumes at 15 of 25 and takes 60 seconds for each of 5 iterations; 5 are left."""
    with RunProgress(start=15, iterations=25) as run:
        play(run, 5, clock, seconds=60)
    assert capsys.readouterr().err == f"iteration 20 of 25 (5.0 min left): {LINE}\n"


def test_a_log_names_other_phases_as_they_begin(clock, capsys):
    with RunProgress(start=0, iterations=20) as run:
        run.update("evaluating llm_1", {})
        run.update("training", {})
    assert capsys.readouterr().err == "iteration 0 of 20: evaluating llm_1\n"


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
        play(run, LOG_EVERY, clock, seconds=1)
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
