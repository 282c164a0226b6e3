"""Results in marl-eval's layout, of made-up runs."""

import json

import pytest

from cory.study.analysis import analyse
from cory.study.export import marl_eval, write_marl_eval
from cory.study.plan import make_plan
from cory.study.reading import make_spec
from cory.study.results import assemble
from tests.cory.study.conftest import made_up_run


@pytest.fixture
def results(values):
    spec = make_spec(values)
    runs = [
        made_up_run(arm, seed, 0.5 + 0.1 * seed, kl=2.0)
        for arm in ("cooperative", "independent")
        for seed in (0, 1)
    ]
    return analyse(assemble(spec, make_plan(spec), runs))


def test_layout_is_environment_task_algorithm_run_step(results, tmp_path):
    results["kl_coef"] = {"relay": 0.1}
    found = json.loads(write_marl_eval(results, tmp_path).read_text("utf-8"))
    assert found["cory"]["relay"]["independent"]["seed_1"] == {
        "step_1": {"step_count": 0, "combined_reward": [0.0], "task_reward": [0.0], "kl": [0.0]},
        "step_2": {  # 20 iterations of 32 games; 0.6 - 0.1 x 2
            "step_count": 640,
            "combined_reward": [pytest.approx(0.4)],
            "task_reward": [pytest.approx(0.6)],
            "kl": [2.0],
        },
        "absolute_metrics": {
            "combined_reward": [pytest.approx(0.4)],
            "task_reward": [pytest.approx(0.6)],
            "kl": [2.0],
        },
    }
    assert list(found["cory"]["relay"]) == ["cooperative", "independent"]


def test_export_leaves_out_metrics_that_not_all_arms_have(results):
    """marl-eval takes equal runs, steps and metrics only."""
    results["runs"] = [r for r in results["runs"] if (r["arm"], r["seed"]) != ("cooperative", 1)]
    for policy in ("llm_1", "llm_2"):
        results["runs"][0]["eval"][policy]["task_reward"].insert(1, [10, 0.3])
        results["runs"][0]["eval"][policy]["kl"].insert(1, [10, 1.0])
    task = marl_eval(results)["cory"]["relay"]
    assert [list(runs) for runs in task.values()] == [["seed_0"], ["seed_0"]]
    assert [list(runs["seed_0"]) for runs in task.values()] == [["step_1", "step_2", "absolute_metrics"]] * 2


def test_no_runs_in_common_leave_no_task(results):
    results["runs"] = [results["runs"][0], results["runs"][3]]  # seed 0 of one arm, seed 1 of the other
    assert marl_eval(results) == {"cory": {}}
    assert marl_eval({**results, "runs": []}) == {"cory": {}}


def test_names_of_tasks_are_lower_case(results):
    results["kl_coef"] = {"GSM8K": 0.0}
    for run in results["runs"]:
        run["task"] = "GSM8K"
    for arm in results["arms"].values():
        arm["config"] = {"GSM8K": arm["config"]["relay"]}
    assert list(marl_eval(results)["cory"]) == ["gsm8k"]
