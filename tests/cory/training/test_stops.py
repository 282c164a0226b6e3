"""What a stop in the middle of an update loses, and what a run says and does at its end."""

import json
import os
import signal
import time

import pytest
import yaml

from cory.cli.main import main
from cory.config.schema import Config
from cory.evaluation.records import best_of
from cory.runtime.signals import Signals, Stopped
from cory.training import checkpoint
from tests.helpers.runs import finished_run, same, traces, train, without_report

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    without_report(monkeypatch)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return traces(finished_run(tmp_path_factory), 6)


def test_an_update_that_outlasts_the_grace_is_lost_and_the_newest_checkpoint_is_resumed(
    tmp_path, whole, monkeypatch, capsys
):
    """Checkpoints are 2 iterations apart; the stop comes in the update of iteration 3, of 8 steps."""
    run, calls, plain = tmp_path / "run", {"steps": 0}, Signals.check

    def check(signals, grace=0.0):
        calls["steps"] += grace > 0
        if calls["steps"] == 3 * 8 + 3:
            raise Stopped(signal.SIGTERM)
        plain(signals, grace)

    with monkeypatch.context() as patch:
        patch.setattr(Signals, "check", check)
        assert train(run, 6) == 143
    assert "step-000002" in capsys.readouterr().err
    assert checkpoint.finished(run)[-1] == checkpoint.folder_of(run, 2)
    assert main(["train", "--run", str(run), "--resume", "must"]) == 0
    assert same(traces(run, 6), whole)


def test_checkpoints_go_by_the_clock_too(tmp_path, monkeypatch):
    now = {"t": 0.0}

    def monotonic():
        now["t"] += 100.0  # seconds between two looks at the clock
        return now["t"]

    monkeypatch.setattr("cory.training.loop.time.monotonic", monotonic)
    assert train(tmp_path / "run", 4, "--checkpoint-every", "100") == 0
    saved = [folder.name for folder in checkpoint.finished(tmp_path / "run")]
    assert saved[0] == "step-000000"
    assert len(saved) > 2


def test_the_first_signal_says_at_once_what_is_awaited_and_what_a_second_does(capfd):
    with Signals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)
        text = capfd.readouterr().err
        with pytest.raises(Stopped):
            signals.check()
    assert "SIGTERM" in text
    assert "30 s" in text
    assert "second signal" in text


def test_a_signal_sent_twice_by_timeout_and_make_is_one_signal():
    with Signals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)  # a second one would end this process
        with pytest.raises(Stopped):
            signals.check()


def test_a_run_begun_with_overwrite_is_resumed_by_its_own_words(tmp_path):
    run = tmp_path / "run"
    assert train(run, 1) == 0
    assert train(run, 2, "--overwrite") == 0
    assert main(["train", "--run", str(run), "--resume", "must", "--iterations", "3"]) == 0
    assert checkpoint.finished(run)[-1] == checkpoint.folder_of(run, 3)


def test_settings_hold_no_place_and_a_config_of_another_run_leaves_it_alone(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    assert train(old, 2, "--overwrite") == 0
    settings = yaml.safe_load((old / "config.yaml").read_text())
    assert not {"run", "overwrite", "resume"} & set(settings)
    (old / "notes.txt").write_text("by hand")
    assert main(["train", "--config", str(old / "config.yaml"), "--run", str(new)]) == 0
    assert (old / "notes.txt").read_text() == "by hand"
    assert same(traces(new, 2), traces(old, 2))


def test_a_config_alone_starts_a_run_of_its_own(tmp_path, monkeypatch):
    old = tmp_path / "old"
    assert train(old, 2) == 0
    before = sorted(path.name for path in old.iterdir())
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--config", str(old / "config.yaml")]) == 0
    assert sorted(path.name for path in old.iterdir()) == before
    assert len(list((tmp_path / "runs").iterdir())) == 1


def test_the_best_checkpoint_is_chosen_on_validation_queries(tmp_path, monkeypatch):
    """Test figures rise, validation figures fall: the first checkpoint is the best one."""
    from cory.training import metrics

    def rising(responses, **options):
        rising.calls += 1
        return {f"eval/{name}/combined_reward": float(rising.calls) for name in responses}

    def falling(responses, **options):
        return {f"validation/{name}/combined_reward": -float(rising.calls) for name in responses}

    rising.calls = 0
    monkeypatch.setattr(metrics, "evaluation_metrics", rising)
    monkeypatch.setattr(metrics, "validation_metrics", falling)
    run = tmp_path / "run"
    assert train(run, 6) == 0
    assert best_of(run)["iteration"] == 0


def test_export_best_leaves_the_policies_of_the_best_checkpoint(tmp_path, capsys):
    run = tmp_path / "run"
    flags = ("--learner.lr", "5", "--kl.coef", "1", "--evaluation.every", "1")  # it only gets worse
    assert train(run, 3, *flags, "--export-best") == 0
    best = checkpoint.folder_of(run, best_of(run)["iteration"])
    for name in ("llm_1", "llm_2"):
        exported = (run / "policies" / name / "table.safetensors").read_bytes()
        assert exported == (best / name / "table.safetensors").read_bytes()
    assert "are exported, not those of iteration 3" in capsys.readouterr().err


def test_the_end_of_a_run_says_which_iteration_was_best(tmp_path, capsys):
    assert train(tmp_path / "run", 3, "--learner.lr", "5", "--kl.coef", "1", "--evaluation.every", "1") == 0
    assert "--export-best exports the best" in capsys.readouterr().err


def test_validation_figures_are_logged_apart_from_held_out_ones(tmp_path):
    assert train(tmp_path / "run", 2) == 0
    row = json.loads((tmp_path / "run/metrics.jsonl").read_text().splitlines()[-1])
    assert "validation/llm_1/combined_reward" in row
    assert not any(key.startswith("validation/reference") for key in row)


def test_flags_of_a_command_are_no_settings():
    assert not {"run", "overwrite", "resume"} & set(Config.__dataclass_fields__)
