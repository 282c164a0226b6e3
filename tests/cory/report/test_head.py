"""The head of the report page: what was run, how, and which checkpoint is the best."""

import json

import pytest
import yaml

from cory.report.page import write_report
from cory.tracking import curves
from cory.tracking.tracker import Curve, Key, Tracker
from tests.helpers.synthetic_run import write_run

SETTINGS = {
    "task": "reviews", "judge": "pocket", "policy.model": "gpt2", "policy.models": [],
    "policy.kind": "causal_lm", "algorithm": "ppo", "iterations": 3,
}  # fmt: skip

pytestmark = pytest.mark.usefixtures("no_plots")


def page_of(run, **changed):
    (run / "config.yaml").write_text(yaml.safe_dump(SETTINGS | changed))
    return write_report(run).read_text(encoding="utf-8")


def run_with_best(run, *, best):
    """Three iterations with validation scores -1, 0.5 and 0.25 of two policies, 0.5 apart; exported."""
    write_run(run, iterations=3)
    with Tracker(run) as tracker:
        for iteration, score in ((0, -1.0), (1, 0.5), (3, 0.25)):
            scores = {"llm_1": score - 0.25, "llm_2": score + 0.25}
            tracker.log(
                iteration, {f"validation/{name}/combined_reward": value for name, value in scores.items()}
            )
    (run / "checkpoints").mkdir()
    (run / "checkpoints/best.json").write_text(json.dumps(best))
    (run / "policies/llm_1").mkdir(parents=True)
    return run


def test_the_page_names_task_judge_model_command_and_seconds(tmp_path):
    """Every iteration takes 1.6 + 0.3 + 1.9 s, the evaluations of the first and the last 4 s each."""
    run = write_run(tmp_path, iterations=3)
    command = ["/venv/bin/cory", "train", "--task.data", "my file"]
    resumed = [{"iteration": 2, "command": ["__main__.py", "train", "--resume", "must"]}]
    (run / "environment.json").write_text(json.dumps({"command": command, "resumed": resumed}))
    page = page_of(run)
    assert (
        "Task: reviews. Judge: pocket. Model: gpt2. Policy: causal_lm. Algorithm: ppo. Seconds: 19.4." in page
    )
    assert '<pre class="command">/venv/bin/cory train --task.data &#39;my file&#39;</pre>' in page
    assert "Resumed at iteration 2: cory train --resume must" in page
    assert "Model: gpt2, distilgpt2." in page_of(run, **{"policy.models": ["gpt2", "distilgpt2"]})
    assert "Judge: regex:a." in page_of(run, task="echo", judge="regex:a")
    assert "Judge" not in page_of(run, task="echo")
    assert "Model" not in page_of(run, **{"policy.kind": "table"})


def test_the_page_names_the_best_checkpoint_and_whether_it_is_exported(tmp_path):
    run = run_with_best(tmp_path, best={"iteration": 1, "score": 0.5, "split": "validation"})
    best = (
        "By combined reward on the validation split, iteration 1 was best (0.500, checkpoints/step-000001), "
    )
    assert f"{best}which --export-best exports." in page_of(run)
    (run / "exported.json").write_text('{"iterations": 3, "after": 1}')
    assert f"{best}which is exported." in page_of(run)
    (run / "exported.json").write_text('{"iterations": 3, "after": 3}')  # the best could not be exported
    assert f"{best}which --export-best exports." in page_of(run, export_best=True)


@pytest.mark.parametrize("content", ["{", "[]", '{"iteration": 1}', "null"])
def test_a_damaged_record_of_the_best_is_left_out(tmp_path, content):
    run = run_with_best(tmp_path, best={})
    (run / "checkpoints/best.json").write_text(content)
    assert "was best" not in page_of(run)


def test_validation_is_no_seat():
    found = {
        Key("validation", "llm_1", "combined_reward"): Curve([0], [1.0]),
        Key("pioneer_0", "llm_1", "kl"): Curve([0], [1.0]),
    }
    assert curves.seats(found) == ["pioneer_0"]
    assert curves.policies(found) == ["llm_1"]
    assert curves.seatings(found) == {0: {"pioneer_0": "llm_1"}}
