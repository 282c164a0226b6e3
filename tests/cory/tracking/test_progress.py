"""Progress lines of a run in a log: whole lines, as they are, with the minutes that are left."""

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
