"""Judges that fail, from the flag to the metrics.

A judge that fails costs the scores it failed on; one that fails too often ends the run, which can be resumed
once the judge is fixed.
"""

import json

import pytest

from cory.cli.main import main
from cory.tracking.tracker import read, read_lines
from cory.training import checkpoint
from cory.training.trainer import Trainer
from tests.helpers.models import save_backbone
from tests.helpers.runs import same, traces, without_report

UNRELIABLE = "tests.helpers.judge_functions:unreliable"
FAILS = "tests.helpers.judge_functions:fails_while_file_exists"


@pytest.fixture
def flags(tmp_path, monkeypatch) -> list[str]:
    """A tiny model, and prompts of its own."""
    without_report(monkeypatch)
    folder = save_backbone("gpt2", tmp_path / "tiny")
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(json.dumps({"prompt": f"say {n}"}) for n in range(40)))
    return [
        *("train", "--task", "prompts", "--task.data", str(data), "--policy.model", str(folder)),
        *("--max-response", "2", "6", "--evaluation.queries", "4", "--policy.device", "cpu"),
        *("--threads", "1"),
    ]


@pytest.mark.faults
def test_a_judge_that_hangs_dies_raises_and_scores_nan_or_nothing_ends_no_run(tmp_path, flags):
    """Each failure costs one score, is counted and logged."""
    run = tmp_path / "run"
    flags += ["--judge", UNRELIABLE, "--judge.timeout", "1", "--judge.max-failures", "1"]
    flags += ["--judge.failed-score", "-1", "--batch", "32", "--iterations", "2"]
    assert main([*flags, "--run", str(run)]) == 0
    failed = [row["failure"] for row in read_lines(run / "samples.jsonl") if "failure" in row]
    for word in ("1 s", "exit", "a fault of mine", "nan", "returned 0"):
        assert any(word in reason for reason in failed), (word, failed)
    rows = [row for row in read(run) if "time/update/seconds" in row]
    for row in rows:
        failures = sum(value for key, value in row.items() if key.endswith("/failures"))
        # of 32 responses of each seat those that failed score -1, the others 1
        lost = sum(32 * (1 - value) / 2 for key, value in row.items() if key.endswith("/task_reward"))
        assert failures == pytest.approx(lost, abs=1e-3)
        assert failures > 0


@pytest.mark.faults
def test_a_run_that_its_judge_ended_resumes_from_where_it_was_once_the_judge_is_fixed(
    tmp_path, flags, monkeypatch, capsys
):
    """The judge fails from iteration 3 on; the last checkpoint due was that of 2. Its text is no markup."""
    switch, run = tmp_path / "switch", tmp_path / "run"
    monkeypatch.setenv("FAILS_WHILE", str(switch))
    flags += ["--judge", FAILS, "--batch", "8", "--iterations", "5"]
    flags += ["--checkpoint-every", "2", "--evaluation.every", "0"]
    assert main([*flags, "--run", str(tmp_path / "whole")]) == 0
    plain = Trainer.iterate

    def iterate(self, iteration, **options):
        if iteration == 3:
            switch.touch()
        return plain(self, iteration, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "iterate", iterate)
        capsys.readouterr()
        assert main([*flags, "--run", str(run)]) == 2
    printed = " ".join(capsys.readouterr().err.split())
    assert f"error: judge '{FAILS}' failed on " in printed
    assert "above judge.max_failures 0.1. The last: ZeroDivisionError: not today [/INST]" in printed
    assert f"its newest checkpoint is {checkpoint.folder_of(run, 3)}" in printed
    assert f"go on with: cory train --run {run} --resume must" in printed
    switch.unlink()
    assert main(["train", "--run", str(run), "--resume", "must"]) == 0
    assert same(traces(run, 5), traces(tmp_path / "whole", 5))
