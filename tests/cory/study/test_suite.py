"""A suite: scores over several tasks, their statistics by hand, and a stranger's arm beside the study's."""

import json

import numpy as np
import pytest
import yaml

from cory.algorithms import names
from cory.cli.main import main
from cory.study import suite
from cory.study.badges import badges
from cory.study.engines.local import LocalEngine
from cory.study.plan import make_plan
from cory.study.plots.suite import draw_suite
from cory.study.reading import make_spec
from cory.study.report import result_tables
from cory.study.results import assemble
from tests.cory.study.conftest import ROOT, made_up_run

RELAY = {"task": "relay", "policy.kind": "table", "max_response": [1, 1], "iterations": 20, "kl.coef": 0.0}
SCALES = {
    "near": {"metric": "combined_reward", "reference": 1.0, "best": 3.0},
    "far": {"metric": "combined_reward", "reference": 0.0, "best": -4.0},
}


def values(**changes) -> dict:
    return {
        "name": "small-suite",
        "question": "Which?",
        "tasks": {"near": RELAY, "far": RELAY | {"batch": 16}},
        "arms": {"ppo": {}, "a2c": {"algorithm": "a2c"}},
        "suite": SCALES,
        **changes,
    }


def results_of(rewards: dict[tuple[str, str], list[float]]) -> dict:
    spec = make_spec(values())
    runs = [
        made_up_run(arm, seed, reward) | {"task": task}
        for (arm, task), of_arm in rewards.items()
        for seed, reward in enumerate(of_arm)
    ]
    return assemble(spec, make_plan(spec), runs)


BOTH = {
    ("ppo", "near"): [1.0, 2.0, 3.0, 3.0],
    ("ppo", "far"): [0.0, -1.0, -2.0, -8.0],
    ("a2c", "near"): [3.0, 3.0],
    ("a2c", "far"): [-4.0, -2.0],
}


def test_score_is_zero_at_the_reference_and_one_at_the_best_value():
    scores = suite.scores_of(results_of(BOTH))
    assert list(scores) == ["a2c", "ppo"], "the best arm is first"
    assert scores["ppo"]["near"] == pytest.approx([0.0, 0.5, 1.0, 1.0])
    assert scores["ppo"]["far"] == pytest.approx([0.0, 0.25, 0.5, 2.0])


def test_every_task_counts_the_same_where_an_arm_has_more_seeds_on_one():
    more = {("a2c", "near"): [3.0, 3.0, 1.0, 1.0, 1.0], ("ppo", "near"): [1.0]}
    scores = suite.scores_of(results_of(BOTH | more))
    assert scores["a2c"]["near"] == pytest.approx([1.0, 1.0])
    assert scores["ppo"]["far"] == pytest.approx([0.0])
    assert suite.interquartile_mean(scores["a2c"]) == pytest.approx(1.0)


def test_interquartile_mean_is_that_of_the_middle_half_of_all_runs():
    scores = suite.scores_of(results_of(BOTH))
    assert suite.interquartile_mean(scores["ppo"]) == pytest.approx((0.25 + 0.5 + 0.5 + 1.0) / 4)
    assert suite.interquartile_mean(scores["a2c"]) == pytest.approx(1.0)


def test_probability_of_improvement_counts_pairs_of_runs_by_task():
    scores = suite.scores_of(results_of(BOTH))
    near, far = (2 + 2 * 0.5) * 2 / 8, (3 + 2 + 0.5) / 8
    ahead = suite.probability_of_improvement(scores["a2c"], scores["ppo"])
    assert ahead == pytest.approx((near + far) / 2)
    assert suite.probability_of_improvement(scores["ppo"], scores["a2c"]) == pytest.approx(1 - ahead)
    assert suite.probability_of_improvement(scores["ppo"], scores["ppo"]) == 0.5


def test_profile_is_the_mean_share_of_runs_above_a_score():
    ppo = suite.scores_of(results_of(BOTH))["ppo"]
    assert suite.profile(ppo, np.array([-1.0, 0.3, 1.0, 3.0])) == pytest.approx(
        [1, (3 + 2) / 8, (0 + 1) / 8, 0]
    )


def test_bootstrap_interval_of_a_mean_of_many_runs_is_that_of_the_normal_distribution():
    n = np.random.default_rng(1).normal(0.0, 1.0, 400)
    estimate = suite.estimate(lambda scores: scores["task"].mean(-1), {"task": n})
    assert estimate.value == n.mean()
    half = 1.96 * n.std() / 20
    assert estimate[1:] == pytest.approx((n.mean() - half, n.mean() + half), abs=0.01)


def test_bootstrap_draws_runs_within_each_task():
    """The mean over two tasks whose runs are all equal has no spread, whatever lies between the tasks."""
    scores = {"one": np.zeros(3), "other": np.ones(5)}
    assert suite.estimate(suite.interquartile_mean, scores)[1:] == (0.75, 0.75)


def test_there_is_no_interval_of_two_runs_on_a_task():
    scores = {"one": np.arange(2.0), "other": np.arange(5.0)}
    assert np.isnan(suite.estimate(suite.interquartile_mean, scores)[1:]).all()
    (table, *_) = result_tables(results_of(BOTH))
    assert [" to " in row[2] for row in table.rows] == [False, True]


def test_suite_leads_the_page_with_its_best_arm():
    results = results_of(BOTH)
    first = result_tables(results)[0]
    assert first.head == ["arm", "runs", "interquartile mean", "ahead of ppo", "near", "far"]
    assert [row[0] for row in first.rows] == ["a2c", "ppo"]
    assert first.rows[1][3:] == ["-", "0.62", "0.69"]
    assert "over all tasks" in badges(results)
    assert "a2c 1.00, ppo 0.56, too few seeds" in badges(results)
    assert draw_suite(results) is not None


def test_arm_without_runs_on_a_task_is_named_and_has_no_score():
    results = results_of({key: runs for key, runs in BOTH.items() if key != ("a2c", "far")})
    (table, *_) = result_tables(results)
    assert [row[0] for row in table.rows] == ["ppo"]
    assert table.note.endswith("Without runs on every task: a2c.")


@pytest.mark.parametrize(
    ("scales", "message"),
    [
        ({"neer": SCALES["near"]}, "no task 'neer'; did you mean 'near'"),
        ({"near": {**SCALES["near"], "metric": "combined"}}, "suite: near: there is no metric 'combined'"),
        ({"near": {**SCALES["near"], "best": 1.0}}, "suite: near goes from 1.0 to 1.0"),
        ({"near": {**SCALES["near"], "metric": "pass_at_8"}}, "suite: pass_at_8 of arm 'ppo' on task 'near'"),
    ],
)
def test_suite_without_a_scale_that_runs_can_have_is_refused(scales, message):
    with pytest.raises(ValueError, match=message):
        make_plan(make_spec(values(suite=scales)))


@pytest.fixture
def trained(monkeypatch, tmp_path):
    """A stored suite of the study's arms, an algorithm's file, and the runs that would be trained."""
    runs: list = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(LocalEngine, "train", lambda engine, todo: runs.extend(todo) or [])
    (tmp_path / "mine.py").write_text("from cory.algorithms.ppo import *\n")
    stored = tmp_path / "stored.json"
    text = yaml.safe_dump(values(seeds=2, results=str(stored), out=str(tmp_path / "out")), sort_keys=False)
    (tmp_path / "suite.yaml").write_text(text)
    stored.write_text(json.dumps(results_of({key: of_arm[:2] for key, of_arm in BOTH.items()})))
    return runs, stored, tmp_path


@pytest.mark.slow
def test_own_algorithm_stands_beside_stored_runs_and_leaves_their_file_alone(trained):
    runs, stored, folder = trained
    before = stored.read_bytes()
    assert main(["study", "suite.yaml", "--arms", "mine=mine.py"]) == 0
    assert [run.name for run in runs] == [
        f"mine/{task}/seed-{seed}" for task in ("near", "far") for seed in (0, 1)
    ]
    assert {run.settings["algorithm"] for run in runs} == {"mine.py"}
    made = json.loads((folder / "out/results.json").read_text())
    assert sorted({run["arm"] for run in made["runs"]}) == ["a2c", "ppo"]
    assert list(made["arms"]) == ["ppo", "a2c", "mine"]
    assert stored.read_bytes() == before


def test_own_algorithm_is_tried_quickly_beside_the_first_arm(trained):
    runs, _, _ = trained
    assert main(["study", "suite.yaml", "--arms", "mine=mine.py", "--quick"]) == 0
    assert sorted({run.arm for run in runs}) == ["mine", "ppo"]
    assert {(run.seed, run.iterations) for run in runs} == {(0, 2)}


def test_own_algorithm_with_a_name_that_is_no_folder_or_no_algorithm_is_refused(trained, capsys):
    assert main(["study", "suite.yaml", "--arms", "a/b=mine.py"]) == 2
    assert main(["study", "suite.yaml", "--arms", "mine=hapo"]) == 2
    errors = capsys.readouterr().err
    assert "'a/b' is no name of a folder" in errors
    assert "no algorithm called 'hapo'" in errors


def test_core_suite_has_every_algorithm_on_five_tasks():
    spec = make_spec(yaml.safe_load((ROOT / "benchmarks/suites/core.yaml").read_text("utf-8")))
    plan = make_plan(spec)
    assert sorted(run.settings["algorithm"] for run in plan.runs if run.task == "sums") == sorted(
        [*names()] * len(spec.seeds)
    )
    assert list(spec.suite) == list(spec.tasks) == ["relay", "sums", "handover", "verdict", "reviews"]
