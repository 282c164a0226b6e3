"""Rows of results from a run's metrics."""

import json

import pytest

from cory.study import records
from cory.study.plan import PlannedRun


def row(iteration, **more):
    return {"iteration": iteration, **more}


def test_budget_counts_games_and_responses_of_training():
    rows = [row(0, **{"eval/llm_1/length": 5.0}), *(row(i, **{"time/update/seconds": 1.0}) for i in range(3))]
    assert records.budget(rows, {"batch": 10, "seats": 2}) == {"games": 30, "judge_calls": 60}


def test_game_curves_are_means_over_windows_that_end_with_the_run():
    rows = [row(i, **{"pioneer_0/llm_1/kl": float(i), "eval/llm_1/kl": 9.0}) for i in range(14)]
    # 0 to 3 end at iteration 4, 4 to 13 at 14
    assert records.game(rows, 14) == {"pioneer_0": {"kl": [[4, 1.5], [14, 8.5]]}}


def test_collapse_is_the_first_sign_of_each_trained_policy():
    def distinct(*values):
        return {"distinct_2": [[10 * i, value] for i, value in enumerate(values)]}

    evaluated = {
        "reference": distinct(0.8),
        "llm_1": distinct(0.8, 0.7, 0.3),
        "llm_2": distinct(0.8, 0.3, 0.7),
        "llm_3": distinct(0.8, 0.7),
        "average": distinct(0.8, 0.1),
    }
    assert records.collapsed_at(evaluated) == {"llm_1": 20, "llm_2": 10, "llm_3": None}
    evaluated["reference_llm_2"] = distinct(0.5)  # of another model
    assert records.collapsed_at(evaluated) == {"llm_1": 20, "llm_2": None, "llm_3": None}


@pytest.mark.parametrize(
    ("device", "name"), [("auto", "NVIDIA H200"), ("cuda:1", "NVIDIA H200"), ("cpu", "Xeon")]
)
def test_the_processor_of_a_run_is_the_accelerator_it_was_on(device, name, tmp_path):
    settings = {"iterations": 1, "batch": 2, "seats": 2, "policy.device": device}
    planned = PlannedRun(arm="cory", task="reviews", seed=0, settings=settings)
    (tmp_path / "metrics.jsonl").write_text('{"iteration": 0, "time/update/seconds": 1.0}\n')
    made = {"commit": "abc", "processor": "Xeon", "gpu": "NVIDIA H200"}
    (tmp_path / "environment.json").write_text(json.dumps(made))
    assert records.record(planned, tmp_path)["processor"] == name
