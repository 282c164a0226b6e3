"""A run that was stopped resumes as if nothing had happened, bit for bit."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
import yaml

from cory.cli.main import main
from cory.config.schema import Config
from cory.config.values import flat
from cory.evaluation.records import best_of
from cory.learner.learner import Learner
from cory.rollout import rollout
from cory.runtime import signals as signals_module
from cory.tracking.tracker import read
from cory.training import checkpoint
from cory.training import trainer as trainer_module
from cory.training.overwriting import locked
from cory.training.run_directory import check_complete, check_settings_unchanged
from cory_env.registry import LOADED
from cory_env.tasks import echo
from tests.helpers.faults import end, fork
from tests.helpers.runs import (
    cut_run,
    finished_run,
    same,
    traces,
    train,
    without_report,
    write_manifest,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def no_report():
    with pytest.MonkeyPatch.context() as patch:
        without_report(patch)
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """Six iterations without interruption: 96 games, part of an epoch of echo's 152 training queries."""
    return finished_run(tmp_path_factory)


@pytest.fixture(scope="module")
def whole(finished):
    return traces(finished, 6)


def first_iterations(finished: Path, run: Path, iterations: int) -> Path:
    """What `finished` would have left with fewer iterations, which must be even."""
    cut_run(finished, run, iterations)
    settings = run / "config.yaml"
    settings.write_text(settings.read_text().replace("iterations: 6\n", f"iterations: {iterations}\n"))
    return run


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 5])
def test_a_run_in_two_halves_is_the_run_in_one(tmp_path, whole, cut):
    """Between exchanges (odd) and at one (even): weights, optimizers, metrics, samples."""
    run = tmp_path / "run"
    assert train(run, cut) == 0
    assert train(run, 6, "--resume", "must") == 0
    assert same(traces(run, 6), whole)


def test_without_flags_a_run_resumes_with_the_settings_it_had(tmp_path, finished, whole):
    run = first_iterations(finished, tmp_path / "run", 4)
    assert main(["train", "--run", str(run), "--resume", "must", "--iterations", "6"]) == 0
    assert same(traces(run, 6), whole)


@pytest.mark.parametrize(
    "lost", ["llm_1/table.safetensors", "optimizer_llm_2.safetensors", "kl_coef", "moments"]
)
def test_leaving_out_any_part_of_the_state_shows(tmp_path, finished, whole, lost):
    """Negative control: the comparison sees what it is meant to see."""
    run = first_iterations(finished, tmp_path / "run", 4)
    folder = checkpoint.folder_of(run, 4)
    if lost.endswith("safetensors"):
        (folder / lost).write_bytes((checkpoint.folder_of(run, 2) / lost).read_bytes())
    else:
        state = json.loads((folder / "trainer_state.json").read_text())
        first = json.loads((checkpoint.folder_of(run, 0) / "trainer_state.json").read_text())
        state["learners"]["llm_1"][lost] = first["learners"]["llm_1"][lost]
        (folder / "trainer_state.json").write_text(json.dumps(state))
    write_manifest(folder)
    assert train(run, 6, "--resume", "must") == 0
    assert not same(traces(run, 6), whole)


def test_a_broken_checkpoint_is_skipped_with_a_message_and_the_one_before_is_used(
    tmp_path, finished, whole, capsys
):
    run = first_iterations(finished, tmp_path / "run", 4)
    *_, before, last = checkpoint.finished(run)
    weights = last / "llm_1/table.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert train(run, 6, "--resume", "auto") == 0
    printed = " ".join(capsys.readouterr().err.split())
    assert "skipped: " in printed
    assert f"resumed at iteration {int(before.name.removeprefix('step-'))}" in printed
    assert same(traces(run, 6), whole)


def test_settings_that_changed_are_listed_and_refused(tmp_path, finished, capsys):
    run = first_iterations(finished, tmp_path / "run", 2)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert train(run, 4, "--resume", "must", "--batch", "32", "--kl.coef", "0.3") == 2
    error = capsys.readouterr().err
    assert "batch was 16 and is 32" in error
    assert "kl.coef was 0.2 and is 0.3" in error
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert train(run, 1, "--resume", "must") == 2
    assert "has 2 iterations, and iterations is 1; give 2 or more" in capsys.readouterr().err
    changeable = ("--evaluation.every", "1", "--alerts.stop")
    assert train(run, 3, "--resume", "must", *changeable) == 0


def test_resume_warns_if_a_file_that_the_settings_name_was_edited(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("from cory.algorithms.ppo import *\n")
    assert train(tmp_path / "run", 2, "--algorithm", "mine.py") == 0
    (tmp_path / "mine.py").write_text("from cory.algorithms.ppo import *\nedited = True\n")
    LOADED.clear()  # in another session
    assert train(tmp_path / "run", 3, "--resume", "must") == 0
    warning = "mine.py has changed since this run began"
    assert warning in " ".join(capsys.readouterr().err.split())
    assert train(tmp_path / "run", 4, "--resume", "must") == 0  # unchanged since the last resume
    assert warning not in " ".join(capsys.readouterr().err.split())


def test_resume_warns_if_a_task_makes_other_queries_than_before(tmp_path, monkeypatch, capsys):
    assert train(tmp_path / "run", 2) == 0
    assert train(tmp_path / "run", 3, "--resume", "must") == 0
    warning = "test split has changed since this run began"
    assert warning not in " ".join(capsys.readouterr().err.split())
    queries = echo.Task.queries

    def fewer(task, split):  # as a data set on the hub may have at another commit
        return queries(task, split)[: -1 if split == "test" else None]

    monkeypatch.setattr(echo.Task, "queries", fewer)
    assert train(tmp_path / "run", 4, "--resume", "must") == 0
    assert warning in " ".join(capsys.readouterr().err.split())


def test_a_setting_that_came_later_may_be_added_at_its_default_only(tmp_path):
    now = flat(Config())
    saved = {name: value for name, value in now.items() if name not in ("sharing.same_view", "learner.lr")}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(saved))
    step = tmp_path / "step-000002"
    (tmp_path / "config.yaml").rename(step.mkdir() or step / "config.yaml")
    check_settings_unchanged(tmp_path, step, Config())
    with pytest.raises(ValueError, match=r"settings: sharing\.same_view was False and is True\. Leave"):
        check_settings_unchanged(tmp_path, step, Config.from_flat({"sharing.same_view": True}))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--resume", "must"), "cannot be resumed: it holds no checkpoint"),
        (("--resume", "auto", "--overwrite"), "give one of them"),
        (("--resume", "maybe"), "resume"),
    ],
)
def test_nothing_to_resume_is_an_error_if_the_run_must(tmp_path, capsys, flags, message):
    assert train(tmp_path / "run", 1, *flags) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run/config.yaml").exists()


@pytest.mark.parametrize("lost", ["checkpoints", "config.yaml"])
def test_auto_says_why_a_run_that_has_begun_cannot_be_resumed(lost, tmp_path, capsys):
    run = tmp_path / "run"
    assert train(run, 1) == 0
    (run / lost).rename(tmp_path / "lost")
    assert train(run, 1, "--resume", "auto") == 2
    why = {"checkpoints": "it holds no checkpoint; name another run, or start it anew with --overwrite"}
    assert why.get(lost, "its config.yaml is missing; copy that of") in " ".join(
        capsys.readouterr().err.split()
    )


def test_auto_starts_anew_if_there_is_nothing(tmp_path):
    assert train(tmp_path / "run", 1, "--resume", "auto") == 0


def test_a_run_killed_before_its_first_metrics_starts_anew_and_one_with_metrics_does_not(tmp_path, capsys):
    run = tmp_path / "run"
    assert train(run, 1) == 0
    for folder in checkpoint.finished(run):
        shutil.rmtree(folder)
    assert train(run, 1, "--resume", "auto") == 2
    assert "holds no checkpoint" in capsys.readouterr().err
    (run / "metrics.jsonl").write_text("")
    assert train(run, 1, "--resume", "auto") == 0


def test_two_processes_never_share_a_run(tmp_path, finished, capsys):
    run = first_iterations(finished, tmp_path / "run", 2)
    with locked(run):
        assert train(run, 4, "--resume", "must") == 2
    assert "another process is training in" in capsys.readouterr().err


def stopped_run(
    tmp_path: Path, *, signals: list[int], before_step: int = 0, grace: float = signals_module.GRACE
) -> tuple[int, str]:
    """Exit code and output of a process that sends itself `signals`.

    It does so before the optimizer step `before_step` of the run or, if that is 0, in iteration 3 after its
    games.
    """
    counts = {"steps": 0, "games": 0, "batches": 0}
    step, play_shared, make_batch = Learner.step, trainer_module.play_shared, rollout.make_batch

    def send() -> None:
        for number in signals:
            os.kill(os.getpid(), number)

    def counted_step(learner, *rest):
        counts["steps"] += 1
        if counts["steps"] == before_step:
            send()
        return step(learner, *rest)

    def counted_games(*rest, **more):
        counts["games"] += 1
        return play_shared(*rest, **more)

    def batch_of_last_seat(*rest):
        counts["batches"] += counts["games"] == 4
        if counts["batches"] == 2 and not before_step:
            send()
        return make_batch(*rest)

    def run() -> int:
        signals_module.REPEATED_WITHIN, signals_module.GRACE = -1.0, grace
        Learner.step, rollout.make_batch = counted_step, batch_of_last_seat
        trainer_module.play_shared = counted_games
        return train(tmp_path / "run", 6)

    code, _ = end(fork(run, tmp_path / "log"))
    return code, (tmp_path / "log").read_text()


STEPS = 8
"""Optimizer steps of an iteration: four epochs of two policies."""


@pytest.mark.parametrize("before_step", [0, 2 * STEPS + 4], ids=["after the games", "in the update"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_loses_nothing(tmp_path, whole, before_step, number):
    """Before the update of iteration 3 its start is saved; in the update of 2 that is finished first."""
    run = tmp_path / "run"
    code, output = stopped_run(tmp_path, signals=[number], before_step=before_step)
    assert code == 128 + number, output
    assert f"stopped by {number.name}" in output
    assert "step-000003" in output
    assert main(["train", "--run", str(run), "--resume", "must"]) == 0
    assert same(traces(run, 6), whole)


def test_a_second_signal_ends_the_process_at_once(tmp_path, whole):
    run = tmp_path / "run"
    code, output = stopped_run(tmp_path, signals=[signal.SIGINT] * 2, before_step=2 * STEPS + 4)
    assert code == 130
    assert "newest checkpoint" not in output
    assert checkpoint.finished(run)[-1] == checkpoint.folder_of(run, 2)
    assert main(["train", "--run", str(run), "--resume", "must"]) == 0
    assert same(traces(run, 6), whole)


def test_with_no_grace_the_last_checkpoint_stands(tmp_path, whole):
    run = tmp_path / "run"
    code, output = stopped_run(tmp_path, signals=[signal.SIGTERM], before_step=2 * STEPS + 4, grace=0.0)
    assert code == 143
    assert "step-000002" in output
    assert main(["train", "--run", str(run), "--resume", "must"]) == 0
    assert same(traces(run, 6), whole)


VALIDATION = "validation/llm_{}/combined_reward"


def test_the_best_checkpoint_outlives_newer_ones(tmp_path):
    run = tmp_path / "run"
    assert train(run, 9, "--keep-checkpoints", "1", "--learner.lr", "0.3") == 0
    best = best_of(run)
    kept = [int(path.name.removeprefix("step-")) for path in checkpoint.finished(run)]
    assert set(kept) == {best["iteration"], 9}
    scores = {
        row["iteration"]: sum(row[VALIDATION.format(i)] for i in (1, 2)) / 2
        for row in read(run)
        if VALIDATION.format(1) in row
    }
    assert best["score"] == max(scores.values()) == scores[best["iteration"]]


def test_iterations_that_are_missing_are_an_error(finished):
    check_complete(finished, 6)
    with pytest.raises(RuntimeError, match="holds 6 iterations, the run has 7"):
        check_complete(finished, 7)
