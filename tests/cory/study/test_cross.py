"""Policies trained on one task of a study and evaluated on another."""

import json
import os
import shutil
import signal

import pytest
import yaml

from cory.study import analysis, records, report
from cory.study.engines import evaluation, worker
from cory.study.plan import make_plan
from cory.study.reading import make_spec
from cory.study.results import assemble
from cory.study.study import Study
from tests.cory.study.conftest import SMOKE, made_up_run, run_once

pytestmark = pytest.mark.slow

TASKS = {"relay": {}, "same": {}, "dearer": {"task.price": 0.4}}
CROSS = {"relay": ["same", "dearer"], "dearer": ["relay"]}
METRIC = "on/dearer/task_reward"
PRIMARY = {"arm": "cooperative", "baseline": "independent", "metric": METRIC, "task": "relay"}
SHORT = {"iterations": 2, "checkpoint_every": 1}


def crossed(values, **changes):
    more = {"tasks": TASKS, "cross": CROSS, "primary": [PRIMARY], "seeds": 1}
    return values | more | {"settings": values["settings"] | SHORT} | changes


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The study, run once by worker processes: values, lines, what it left."""

    return run_once(tmp_path_factory, "cross", crossed(yaml.safe_load(SMOKE.read_text("utf-8"))))


@pytest.fixture
def evaluated(monkeypatch, in_this_process):
    """The run directories that are evaluated on another task; training is refused."""
    folders = []
    whole = evaluation.target_metrics

    def noted(target, **options):
        folders.append(target.run)
        return whole(target, **options)

    def refuse(*_args, **_options):
        raise AssertionError("a run was trained")

    monkeypatch.setattr(evaluation, "target_metrics", noted)
    monkeypatch.setattr("cory.study.engines.worker.training_run.train", refuse)
    return folders


def on_others(finished) -> dict:
    return {(run["arm"], run["task"], run["seed"]): run["on"] for run in finished.results["runs"]}


def test_same_task_under_another_name_gives_the_runs_own_last_evaluation(made):
    _, _, finished = made
    assert finished.failed == []
    (run, *_) = [run for run in finished.results["runs"] if run["task"] == "relay"]
    last = {
        policy: {quantity: points[-1] for quantity, points in quantities.items()}
        for policy, quantities in run["eval"].items()
    }
    assert {"llm_1", "llm_2", "reference"} <= last.keys()
    assert {
        policy: {quantity: point for quantity, [point] in quantities.items()}
        for policy, quantities in run["on"]["same"]["eval"].items()
    } == last


def test_scores_on_another_task_are_by_its_settings(made):
    """Equal responses: whoever is not the favourite scores 1 - price, 0.8 in training and 0.6 there."""
    _, _, finished = made
    runs = [run for run in finished.results["runs"] if run["task"] == "relay"]
    for run in runs:
        for name in ("llm_1", "llm_2"):
            own = run["eval"][name]["task_reward"][-1][1]
            found = run["on"]["dearer"]["eval"][name]
            assert found["task_reward"] == [[2, pytest.approx(1 - 0.4 * (1 - own) / 0.2)]]
            assert found["kl"] == [run["eval"][name]["kl"][-1]]
    assert [set(run["on"]) for run in finished.results["runs"] if run["task"] == "same"] == [set(), set()]
    (row,) = finished.results["statistics"]
    assert (row["metric"], row["task"], row["n"]) == (METRIC, "relay", 1)
    text = (finished.page.parent / "report.md").read_text("utf-8")
    heads = [line for line in text.splitlines() if line.startswith("| arm | runs")]
    assert [METRIC in head for head in heads] == [True, False, False]


def test_study_that_is_started_again_evaluates_and_trains_nothing(copied, evaluated, made):
    values, folder = copied
    (folder / "results.json").unlink()
    assert on_others(Study(**values).run(say=str)) == on_others(made[2])
    shutil.rmtree(folder / "cooperative")
    assert on_others(Study(**values).run(say=str)) == on_others(made[2])  # from the results
    assert evaluated == []


def test_finished_run_that_lacks_an_evaluation_is_evaluated_and_not_trained(copied, evaluated, made):
    values, folder = copied
    run = folder / "cooperative/relay/seed-0"
    shutil.rmtree(run / "cross")
    (folder / "results.json").unlink()
    without = Study(**values).run(say=str, train=False)
    assert on_others(without)["cooperative", "relay", 0] == {}
    lines: list[str] = []
    again = Study(**values).run(say=lines.append)  # the results now hold the run without them
    assert lines[0].startswith("study relay-smoke: 6 runs, 6 found, 1 to run;")
    assert evaluated == [run, run]
    assert on_others(again) == on_others(made[2])


def test_evaluation_with_other_settings_is_not_used(copied, evaluated):
    values, folder = copied
    tasks = TASKS | {"dearer": {"task.price": 0.3}}
    arms = {"cooperative": values["arms"]["cooperative"]}
    shutil.rmtree(folder / "cooperative/dearer")
    changed = values | {"tasks": tasks, "cross": {"relay": ["dearer"]}, "arms": arms, "primary": []}
    (folder / "results.json").unlink()
    again = Study(**changed).run(say=str, train=False)
    assert on_others(again)["cooperative", "relay", 0] == {}


def test_stored_evaluations_that_would_be_lost_are_refused(copied, evaluated):
    values, _ = copied
    with pytest.raises(ValueError, match=r"cooperative on dearer, seed 0 \(evaluations on relay are not"):
        Study(**values | {"cross": {}, "primary": []}).run(say=str, train=False)


def test_failed_evaluation_leaves_the_run_in_the_table(copied, monkeypatch, evaluated):
    def fail(target, **_options):
        raise OSError("no space")

    values, folder = copied
    (folder / "results.json").unlink()
    shutil.rmtree(folder / "cooperative/relay/seed-0/cross")
    monkeypatch.setattr(evaluation, "target_metrics", fail)
    done = Study(**values).run(say=str)
    assert [(one.run.name, one.error) for one in done.failed] == [
        ("cooperative/relay/seed-0", "OSError: no space")
    ]
    assert on_others(done)["cooperative", "relay", 0] == {}


def test_evaluation_that_is_stopped_is_done_next_time(copied, made, monkeypatch):
    values, folder = copied
    place, run = folder / "cooperative/relay/seed-0", make_plan(make_spec(values)).runs[0]
    shutil.rmtree(place / "cross")
    whole = evaluation.target_metrics

    def stop(target):
        os.kill(os.getpid(), signal.SIGTERM)
        return whole(target)

    monkeypatch.setattr(evaluation, "target_metrics", stop)
    assert worker.train(place, run) == "stopped by SIGTERM"
    assert records.cross_evaluations(run, place) == {}
    monkeypatch.setattr(evaluation, "target_metrics", whole)
    assert worker.train(place, run) == ""
    assert records.cross_evaluations(run, place) == on_others(made[2])["cooperative", "relay", 0]


def test_cross_changes_neither_the_settings_of_runs_nor_their_sources(values):
    with_it, without = (make_plan(make_spec(crossed(values, **more))) for more in ({}, WITHOUT))
    assert [run.sources for run in with_it.runs] == [run.sources for run in without.runs]
    assert [run.settings for run in with_it.runs] == [run.settings for run in without.runs]


WITHOUT = {"cross": {}, "primary": []}


def test_evaluation_has_task_judge_cap_and_evaluation_of_the_other_task(values):
    tasks = {"a": {"kl.coef": 0.1}, "b": {"task.price": 0.4, "evaluation.samples": 2, "learner.lr": 0.5}}
    values = crossed(values, tasks=tasks, cross={"a": ["b"]}, primary=[])
    run = make_plan(make_spec(values)).runs[0]
    found = run.cross["b"]
    assert {name: found[name] for name in ("task.price", "evaluation.samples", "learner.lr", "kl.coef")} == {
        "task.price": 0.4,
        "evaluation.samples": 2,
        "learner.lr": 0.1,
        "kl.coef": 0.1,
    }


def test_combined_reward_on_another_task_has_the_coefficient_of_that_task(values):
    tasks = {"relay": {"kl.coef": 0.1}, "dearer": {"kl.coef": 0.25}}
    metric = "on/dearer/combined_reward"
    values |= {"tasks": tasks, "cross": {"relay": ["dearer"]}, "seeds": 1}
    spec = make_spec(values | {"primary": [PRIMARY | {"metric": metric}]})
    there = {
        name: {"task_reward": [[20, value]], "kl": [[20, 2.0]]}
        for name, value in (("llm_1", 0.5), ("llm_2", 0.7), ("reference", 9.0))
    }
    runs = [
        made_up_run("cooperative", 0, 0.5, on={"dearer": {"commit": "abc", "eval": there}}),
        made_up_run("independent", 0, 0.5),
    ]
    results = analysis.analyse(assemble(spec, make_plan(spec), runs))
    assert analysis.values_by_seed(results, "cooperative", "relay", metric) == {
        0: pytest.approx((0.5 + 0.7) / 2 - 0.25 * 2)
    }
    assert analysis.values_by_seed(results, "independent", "relay", metric) == {}
    (*_, arms) = report.result_tables(results)
    assert metric in arms.head


BAD = {
    "unknown task": ({"cross": {"relay": ["dearest"]}}, "has no task 'dearest'; did you mean 'dearer'"),
    "unknown key": ({"cross": {"rely": ["dearer"]}}, "has no task 'rely'; did you mean 'relay'"),
    "no tasks": ({"tasks": {}, "primary": []}, "cross: the study has no task 'relay'"),
    "metric: task": (
        {"primary": [PRIMARY | {"metric": "on/dearest/kl"}]},
        "on task 'relay' needs 'dearest' in `cross`",
    ),
    "metric: quantity": (
        {"primary": [PRIMARY | {"metric": "on/dearer/task_rewards"}]},
        "no metric 'on/dearer/task_rewards'; did you mean 'on/dearer/task_reward'",
    ),
    "metric: place": (
        {"primary": [PRIMARY | {"metric": "on/dearer/average/kl"}]},
        "there is no metric 'on/dearer/average/kl'",
    ),
    "metric: trained on": (
        {"primary": [PRIMARY | {"task": "same"}]},
        "on task 'same' needs 'dearer' in `cross`",
    ),
    "metric: no task": ({"primary": [PRIMARY | {"task": None}]}, "on task 'same' needs 'dearer' in `cross`"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_crossings_are_refused_with_what_to_write(case, values):
    changes, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        make_plan(make_spec(crossed(values, **changes)))


def test_players_are_not_evaluated_on_other_tasks(values):
    arms = values["arms"] | {"foreign": {"target": "tests.helpers.players:relay_favourite"}}
    with pytest.raises(ValueError, match=f"by {METRIC}: arm 'foreign' on task 'relay' needs training"):
        make_plan(make_spec(crossed(values, arms=arms, primary=[PRIMARY | {"baseline": "foreign"}])))
    runs = make_plan(make_spec(crossed(values, arms=arms))).runs
    assert {run.arm: set(run.cross) for run in runs if run.task == "relay"} == {
        "cooperative": {"same", "dearer"},
        "independent": {"same", "dearer"},
        "foreign": set(),
    }


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        (
            {"echo": {"task": "echo"}},
            "'relay' starts from a table of relay, 1 tokens and on 'echo' from a table of",
        ),
        ({"longer": {"max_response": [2, 2]}}, "from a table of relay, 2 tokens; leave it out"),
        ({"pocket": {"preset": "pocket"}}, "and on 'pocket' from pocket; leave it out"),
    ],
)
def test_tasks_of_another_vocabulary_are_refused_for_tables(tasks, message, values):
    (other,) = tasks
    if "preset" in tasks[other]:
        tasks[other] |= {"policy.kind": "causal_lm", "task": "reviews", "max_response": [4, 16]}
    with pytest.raises(ValueError, match=message):
        make_plan(make_spec(crossed(values, tasks=TASKS | tasks, cross={"relay": [other]}, primary=[])))


def test_tasks_of_models_with_another_tokenizer_are_refused():
    tasks = {"sums": {"preset": "pocket-arithmetic"}, "reviews": {}, "more": {"max_response": [4, 16]}}
    study = {"name": "x", "question": "?", "arms": {"cory": {}}, "tasks": tasks, "seeds": 1}
    message = "trained on 'sums' starts from pocket-arithmetic and on 'reviews' from pocket; leave it out"
    with pytest.raises(ValueError, match=message):
        make_plan(make_spec(study | {"cross": {"sums": ["reviews"]}}))
    assert make_plan(make_spec(study | {"cross": {"reviews": ["more"]}})).runs[1].cross


def test_evaluations_lie_in_the_run_directory_with_their_settings(made):
    values, _, finished = made
    run = make_plan(make_spec(values)).runs[0]
    files = sorted((finished.page.parent / run.name / "cross").iterdir())
    assert len(files) == 2
    stored = [json.loads(path.read_text("utf-8")) for path in files]
    assert {one["settings"]["task.price"] for one in stored} == {0.2, 0.4}
    assert all("eval/llm_1/task_reward" in one["metrics"] for one in stored)
