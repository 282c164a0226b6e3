"""INVARIANTS 7, 8: a run that was stopped goes on as if nothing had happened."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cory.training import checkpoint
from cory.cli.main import main
from cory.config.schema import Config
from cory.tracking.tracker import read, read_lines
from cory.training.trainer import Trainer

FLAGS = [
    *("--task", "echo", "--policy.kind", "table", "--batch", "16", "--max-response", "1", "3"),
    *("--learner.lr", "0.1", "--evaluation.queries", "8", "--evaluation.every", "3", "--sample-rows", "2"),
    *("--exchange.every", "2", "--kl.target", "1", "--kl.horizon", "100", "--threads", "1"),
    *("--payoff-scaling.scaling", "normalise", "--checkpoint-every", "2", "--keep-checkpoints", "9"),
]


@pytest.fixture(scope="module", autouse=True)
def plain():
    """Without the page, which has tests of its own and takes longer than these runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cory.training.run.write_report", lambda run: run / "report.html")
        yield


def train(run: Path, iterations: int, *more: str) -> int:
    return main(["train", *FLAGS, "--iterations", str(iterations), "--run", str(run), *more])


def traces(run: Path, iterations: int) -> dict:
    """Everything that must not depend on where a run was interrupted."""
    last = checkpoint.folder_of(run, iterations)
    tensors = {str(path.relative_to(last)): load_file(path) for path in sorted(last.rglob("*.safetensors"))}
    numbers = [
        {key: value for key, value in row.items() if not key.startswith(("time/", "speed/"))}
        for row in read(run)
    ]
    state = json.loads((last / "trainer_state.json").read_text())
    return {
        "tensors": tensors,
        "numbers": numbers,
        "state": state,
        "samples": read_lines(run / "samples.jsonl"),
    }


def same(one: dict, other: dict) -> bool:
    if one.keys() != other.keys() or any(one[k] != other[k] for k in ("numbers", "state", "samples")):
        return False
    files = zip(one["tensors"].items(), other["tensors"].items(), strict=True)
    return all(
        name == name_2 and held.keys() == held_2.keys() and all(torch.equal(held[k], held_2[k]) for k in held)
        for (name, held), (name_2, held_2) in files
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Six iterations without interruption: 96 games, one epoch of echo's 152 training queries and a part."""
    run = tmp_path_factory.mktemp("whole") / "run"
    assert train(run, 6) == 0
    return traces(run, 6)


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 5])
def test_a_run_in_two_halves_is_the_run_in_one(tmp_path, whole, cut):
    """In the middle of a seating (odd) and at an exchange (even): weights, optimisers, numbers, samples."""
    run = tmp_path / "run"
    assert train(run, cut) == 0
    assert train(run, 6, "--resume", "must") == 0
    assert same(traces(run, 6), whole)


def test_without_flags_a_run_goes_on_with_the_settings_it_had(tmp_path, whole):
    run = tmp_path / "run"
    assert train(run, 4) == 0
    assert main(["train", "--run", str(run), "--resume", "must", "--iterations", "6"]) == 0
    assert same(traces(run, 6), whole)


@pytest.mark.parametrize(
    "lost", ["llm_1/table.safetensors", "optimizer_llm_2.safetensors", "kl_coef", "moments"]
)
def test_leaving_out_any_part_of_the_state_shows(tmp_path, whole, lost):
    """Negative control: the comparison sees what it is meant to see."""
    run = tmp_path / "run"
    assert train(run, 3) == 0
    assert train(run, 4, "--resume", "must") == 0
    folder = checkpoint.folder_of(run, 4)
    if lost.endswith("safetensors"):
        (folder / lost).write_bytes((checkpoint.folder_of(run, 2) / lost).read_bytes())
    else:
        state = json.loads((folder / "trainer_state.json").read_text())
        first = json.loads((checkpoint.folder_of(run, 0) / "trainer_state.json").read_text())
        state["learners"]["llm_1"][lost] = first["learners"]["llm_1"][lost]
        (folder / "trainer_state.json").write_text(json.dumps(state))
    manifest(folder)
    assert train(run, 6, "--resume", "must") == 0
    assert not same(traces(run, 6), whole)


def manifest(folder: Path) -> None:
    """Vouch for what the folder holds now."""
    files = [path for path in checkpoint._files(folder) if path.name != checkpoint.MANIFEST]
    entries = {str(path.relative_to(folder)): checkpoint._entry(path) for path in files}
    (folder / checkpoint.MANIFEST).write_text(json.dumps(entries))


def test_a_broken_checkpoint_is_passed_over_aloud_and_the_one_before_is_taken(tmp_path, whole, capsys):
    run = tmp_path / "run"
    assert train(run, 4) == 0
    weights = checkpoint.folder_of(run, 4) / "llm_1/table.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert train(run, 6, "--resume", "auto") == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "passed over" in said
    assert "going on at iteration 2" in said
    assert same(traces(run, 6), whole)


def test_settings_that_moved_are_shown_one_by_one_and_refused(tmp_path, capsys):
    run = tmp_path / "run"
    assert train(run, 2) == 0
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert train(run, 4, "--resume", "must", "--batch", "32", "--kl.coef", "0.3") == 2
    said = capsys.readouterr().err
    assert "batch was 16 and is 32" in said
    assert "kl.coef was 0.2 and is 0.3" in said
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert train(run, 3, "--resume", "must", "--evaluation.every", "1", "--sample-rows", "1") == 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--resume", "must"), "cannot be resumed: it holds no checkpoint"),
        (("--resume", "auto", "--overwrite"), "give one of them"),
        (("--resume", "maybe"), "resume"),
    ],
)
def test_nothing_to_resume_is_an_error_where_it_must(tmp_path, capsys, flags, message):
    assert train(tmp_path / "run", 1, *flags) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run/config.yaml").exists()


def test_auto_begins_anew_where_there_is_nothing(tmp_path):
    assert train(tmp_path / "run", 1, "--resume", "auto") == 0


def test_a_run_killed_before_its_first_number_begins_anew_and_one_with_numbers_does_not(tmp_path, capsys):
    run = tmp_path / "run"
    assert train(run, 1) == 0
    for folder in checkpoint.finished(run):
        shutil.rmtree(folder)
    assert train(run, 1, "--resume", "auto") == 2
    assert "is not empty" in capsys.readouterr().err
    (run / "metrics.jsonl").write_text("")
    assert train(run, 1, "--resume", "auto") == 0


def test_two_processes_never_share_a_run(tmp_path, capsys):
    from cory.training.resume import locked

    run = tmp_path / "run"
    assert train(run, 1) == 0
    with locked(run):
        assert train(run, 2, "--resume", "must") == 2
    assert f"process {os.getpid()} is training in" in capsys.readouterr().err


def test_what_another_process_saved_meanwhile_is_not_lost(tmp_path, monkeypatch, capsys):
    """It was at work when this one looked, and had left before this one held the directory."""
    run = tmp_path / "run"
    assert train(run, 2) == 0

    def slow(config: Config) -> Trainer:
        with monkeypatch.context() as patch:
            patch.setattr("cory.training.run.Trainer", Trainer)
            assert train(run, 4, "--resume", "must") == 0
        return Trainer(config)

    monkeypatch.setattr("cory.training.run.Trainer", slow)
    assert train(run, 4, "--resume", "must") == 2
    assert "another process has just trained in" in capsys.readouterr().err
    assert checkpoint.folder_of(run, 4).exists()


STOPPED = """
import os, signal, sys
from agents import learner
from cory.cli.main import main
from cory.training.trainer import Trainer

moment, number = sys.argv[1], int(sys.argv[2])
plain_step, plain_play = learner.Learner.step, Trainer.valued
seen = {"steps": 0, "plays": 0}

def step(self, *rest):
    seen["steps"] += 1
    if moment in ("update", "update, twice") and seen["steps"] == 20:
        for _ in range(1 + moment.endswith("twice")):
            os.kill(os.getpid(), number)
    return plain_step(self, *rest)

def valued(self, *rest):
    seen["plays"] += 1
    if moment == "play" and seen["plays"] == 4:
        os.kill(os.getpid(), number)
    return plain_play(self, *rest)

learner.Learner.step, Trainer.valued = step, valued
sys.exit(main(sys.argv[3:]))
"""


@pytest.mark.parametrize(("moment", "kept"), [("play", 3), ("update", 3)])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_loses_nothing(tmp_path, whole, moment, kept, number):
    """In iteration 3 before its updates: its start is saved. In the updates of iteration 2 (step 20 of 8 an
    iteration): it is finished and the start of 3 is saved."""
    run = tmp_path / "run"
    argv = ["train", *FLAGS, "--iterations", "6", "--run", str(run)]
    told = subprocess.run(
        [sys.executable, "-c", STOPPED, moment, str(int(number)), *argv], capture_output=True, text=True
    )
    assert told.returncode == 128 + number, told.stderr
    assert f"stopped by {number.name}" in told.stderr
    assert f"step-{kept:06d}" in told.stderr
    assert main(["train", "--run", str(run), "--resume", "must"]) == 0
    assert same(traces(run, 6), whole)


def test_a_second_signal_leaves_at_once(tmp_path, whole):
    run = tmp_path / "run"
    argv = ["train", *FLAGS, "--iterations", "6", "--run", str(run)]
    told = subprocess.run(
        [sys.executable, "-c", STOPPED, "update, twice", "2", *argv], capture_output=True, text=True
    )
    assert told.returncode == 130
    assert "newest checkpoint" not in told.stderr
    assert checkpoint.finished(run)[-1] == checkpoint.folder_of(run, 2)
    assert main(["train", "--run", str(run), "--resume", "must"]) == 0
    assert same(traces(run, 6), whole)


def test_with_no_grace_the_last_checkpoint_stands(tmp_path, whole):
    run = tmp_path / "run"
    argv = ["train", *FLAGS, "--iterations", "6", "--run", str(run), "--grace", "0"]
    told = subprocess.run(
        [sys.executable, "-c", STOPPED, "update", "15", *argv], capture_output=True, text=True
    )
    assert told.returncode == 143
    assert "step-000002" in told.stderr
    assert main(["train", "--run", str(run), "--resume", "must"]) == 0
    assert same(traces(run, 6), whole)


def test_a_full_disk_is_survived_for_a_while(tmp_path, whole, monkeypatch, capsys):
    usage, calls = checkpoint.shutil.disk_usage, []

    def full(path):
        calls.append(path)
        return usage(path)._replace(free=10) if len(calls) in (2, 3) else usage(path)

    monkeypatch.setattr(checkpoint.shutil, "disk_usage", full)
    assert train(tmp_path / "run", 6) == 0
    assert "may fail" in capsys.readouterr().err
    assert same(traces(tmp_path / "run", 6), whole)
    calls.clear()
    monkeypatch.setattr(checkpoint.shutil, "disk_usage", lambda path: usage(path)._replace(free=10))
    assert train(tmp_path / "other", 6) == 2
    assert "a checkpoint needs" in capsys.readouterr().err


def test_the_best_checkpoint_outlives_newer_ones(tmp_path):
    run = tmp_path / "run"
    assert train(run, 9, "--keep-checkpoints", "1", "--learner.lr", "0.3") == 0
    best = checkpoint.read_best(run)
    kept = [int(path.name.removeprefix("step-")) for path in checkpoint.finished(run)]
    assert set(kept) == {best["iteration"], 9}
    scores = {
        row["iteration"]: (row["eval/llm_1/combined_reward"] + row["eval/llm_2/combined_reward"]) / 2
        for row in read(run)
        if "eval/llm_1/combined_reward" in row
    }
    assert best["score"] == max(scores.values()) == scores[best["iteration"]]


def test_iterations_that_are_missing_are_an_error(tmp_path, monkeypatch):
    from cory.training.resume import check_complete

    run = tmp_path / "run"
    assert train(run, 2) == 0
    check_complete(run, 2)
    with pytest.raises(RuntimeError, match="holds 2 iterations and 3 were asked for"):
        check_complete(run, 3)
