"""INVARIANTS 14, from the flag to the rows: a judge that fails costs the scores it failed on; one that fails
too often ends the run, which goes on once it is mended."""

import json

import pytest

from cory.training import checkpoint
from cory.cli.main import main
from cory.training.loop import Loop
from cory.tracking.tracker import read, read_lines
from tests.cory.conftest import make_model, make_tokenizer
from tests.cory.training.test_resume import same, traces


@pytest.fixture
def flags(tmp_path, monkeypatch) -> list[str]:
    """A tiny model, and prompts of its own."""
    monkeypatch.setattr("cory.training.run.write_report", lambda run: run / "report.html")
    folder, tokenizer = tmp_path / "tiny", make_tokenizer()
    tokenizer.save_pretrained(folder)
    make_model("gpt2", len(tokenizer)).save_pretrained(folder)
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(json.dumps({"prompt": f"say {n}"}) for n in range(40)))
    return [
        *("train", "--task", "prompts", "--task.data", str(data), "--policy.model", str(folder)),
        *(
            "--max-response",
            "2",
            "6",
            "--evaluation.queries",
            "4",
            "--policy.device",
            "cpu",
            "--threads",
            "1",
        ),
    ]


@pytest.mark.faults
def test_a_judge_that_hangs_dies_raises_and_scores_nan_or_nothing_ends_no_run(tmp_path, flags):
    """Each failure costs one score, is counted and told."""
    run = tmp_path / "run"
    flags += ["--judge", "tests.faults.sick:judge", "--judge.timeout", "1", "--judge.max-failures", "1"]
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
def test_a_run_that_its_judge_ended_goes_on_from_where_it_was_once_that_is_mended(
    tmp_path, flags, monkeypatch, capsys
):
    """The judge falls ill in iteration 3; the last checkpoint due was that of 2. Its words are no markup."""
    mood, run = tmp_path / "mood", tmp_path / "run"
    monkeypatch.setenv("MOOD", str(mood))
    flags += ["--judge", "tests.faults.sick:moody", "--batch", "8", "--iterations", "5"]
    flags += ["--checkpoint-every", "2", "--evaluation.every", "0"]
    assert main([*flags, "--run", str(tmp_path / "whole")]) == 0
    plain = Loop.iterate

    def iterate(self, iteration):
        if iteration == 3:
            mood.touch()
        return plain(self, iteration)

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "iterate", iterate)
        capsys.readouterr()
        assert main([*flags, "--run", str(run)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "error: judge 'tests.faults.sick:moody' failed on " in said
    assert "above judge.max_failures 0.1. The last: ZeroDivisionError: not today [/INST]" in said
    assert f"its newest checkpoint is {checkpoint.folder_of(run, 3)}" in said
    assert f"go on with: cory train --run {run} --resume must" in said
    mood.unlink()
    assert main(["train", "--run", str(run), "--resume", "must"]) == 0
    assert same(traces(run, 5), traces(tmp_path / "whole", 5))
