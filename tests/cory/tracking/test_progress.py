"""Progress lines of a run in a log: whole lines, as they are, with the minutes that are left."""

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


def test_the_time_left_is_by_the_iterations_alone_without_the_evaluation_before_them(clock):
    """4 of 10 iterations in 24 s after an evaluation of 100 s: 6 are left, 36 s."""
    with RunProgress(start=0, iterations=10) as run:
        clock[0] += 100
        run.update("evaluated", {})
        assert run._position() == "0 of 10"
        play(run, 4, clock, seconds=6)
        assert run._position() == "4 of 10 (36 s left)"


def test_a_log_names_the_phase_where_an_iteration_takes_long(clock, capsys):
    with RunProgress(start=0, iterations=20) as run:
        clock[0] += 31
        run.update("sample", {})
        run.update("judge", {})
    assert capsys.readouterr().err == "iteration 0 of 20: sampling\n"


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
    with RunProgress(start=0, iterations=10, quiet=True) as run:
        run.say("2 policies on cpu")
        run.update("evaluating llm_1", {})
        run.update("evaluated", {"eval/llm_1/task_reward": 1.0})
        play(run, 5, clock, seconds=60)
        run.warn("warning: KL is high")
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "warning: KL is high\n")


def test_a_bar_shows_what_is_being_done_and_the_last_metrics(clock, monkeypatch):
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)
    with RunProgress(start=0, iterations=3) as run:
        run.update("training", METRICS)
        run.update("judge", {})
        (task,) = run._bar.tasks
        assert (task.description, task.completed, task.fields["metrics"]) == ("judging", 1, LINE)
    assert task.description == "done"
