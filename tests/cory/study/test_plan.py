"""Plans: every configuration is built and compared before the first run."""

import re
from dataclasses import replace

import pytest
import yaml

from cory.study import plan, records
from cory.study.plan import make_plan
from cory.study.reading import make_spec, read_spec
from cory_env.payoff import matrix
from tests.cory.study.conftest import ROOT


def planned(values, **changes):
    return make_plan(make_spec(values | changes))


def test_every_arm_and_seed_has_a_run_of_one_thread(values):
    runs = planned(values).runs
    assert [run.name for run in runs] == [
        "cooperative/relay/seed-0",
        "independent/relay/seed-0",
        "cooperative/relay/seed-1",
        "independent/relay/seed-1",
    ]
    assert {run.settings["threads"] for run in runs} == {1}
    assert [run.settings["seed"] for run in runs] == [0, 0, 1, 1]
    assert len({repr(run.settings) for run in runs}) == 4


def test_study_in_the_documentation_can_be_planned():
    (text,) = re.findall(r"```\n(name: .*?)```", (ROOT / "docs/studies/README.md").read_text("utf-8"), re.S)
    runs = make_plan(make_spec(yaml.safe_load(text))).runs
    assert len(runs) == 3 * 2 * 10
    assert {run.task: run.settings["policy.model"] for run in runs} == {
        "reviews": "pocket",
        "arithmetic": "pocket-arithmetic",
    }


def test_settings_of_arms_come_last(values):
    tasks = {"small": {"batch": 8, "learner": {"lr": 0.2}}}
    arms = {"a": {"learner.lr": 0.3}, "b": {"preset": "pocket-ppo", "kl.coef": 0.7}}
    by_arm = {
        run.arm: run.settings for run in planned(values, seeds=1, tasks=tasks, arms=arms, primary=[]).runs
    }
    assert [by_arm["a"][name] for name in ("seats", "batch", "learner.lr", "kl.coef")] == [2, 8, 0.3, 0.0]
    assert [by_arm["b"][name] for name in ("seats", "batch", "learner.lr", "kl.coef")] == [1, 8, 0.2, 0.7]


def test_setting_of_an_arm_may_have_a_value_by_task(values):
    tasks = {"small-1": {"batch": 8}, "small-2": {"batch": 16}}
    arms = {"a": {"learner": {"lr": {"small-1": 0.2, "small-2": 0.3}}}, "b": {"batch": {"small-2": 4}}}
    runs = planned(values, seeds=1, tasks=tasks, arms=arms, primary=[]).runs
    by_run = {(run.arm, run.task): (run.settings["learner.lr"], run.settings["batch"]) for run in runs}
    default = by_run["b", "small-1"][0]
    assert by_run == {
        ("a", "small-1"): (0.2, 8),
        ("a", "small-2"): (0.3, 16),
        ("b", "small-1"): (default, 8),
        ("b", "small-2"): (default, 4),
    }
    arms["b"] = {"batch": {"small-2": 4, "smal-1": 2}}
    with pytest.raises(ValueError, match=r"arm 'b' on task 'small-1' cannot be built: .*'batch.smal_1'"):
        planned(values, seeds=1, tasks=tasks, arms=arms, primary=[])


@pytest.mark.parametrize("tasks", [{}, {"small-1": {"batch": 8}}])
def test_setting_by_a_task_that_is_not_in_the_study_is_refused(values, tasks):
    arms = {"a": {"learner.lr": {"smal-1": 0.3}}, "b": {}}
    with pytest.raises(ValueError, match=r"'a': learner\.lr: the study has no task 'smal-1'"):
        planned(values, seeds=1, tasks=tasks, arms=arms, primary=[])


def test_task_named_after_another_one_than_it_is_is_refused(values):
    with pytest.raises(ValueError, match=r"task 'echo' has the settings of 'relay'; give it task: echo"):
        planned(values, tasks={"echo": {}}, primary=[])


@pytest.mark.parametrize(
    "metric", ["game/collective_reward", "team/combined_reward", "team/strangers/collective_reward"]
)
def test_sums_over_unequal_numbers_of_seats_are_not_compared(values, metric):
    arms = {"three": {"seats": 3}, "two": {}}
    changes = {"arms": arms, "sweeps": {}, "evaluation": {"team": True}, "strangers": list(arms)}
    primary = [{"arm": "two", "baseline": "three", "metric": metric}]
    with pytest.raises(ValueError, match="two and three have unequal numbers of seats"):
        planned(values, primary=primary, **changes)
    suite = {"relay": {"metric": metric, "reference": 0, "best": 1}}
    with pytest.raises(
        ValueError, match=r"suite: .*: the arms on task 'relay' have unequal numbers of seats"
    ):
        planned(values, primary=[], tasks={"relay": {}}, suite=suite, **changes)


def test_tasks_may_have_unequal_numbers_of_seats(values):
    primary = [{"arm": "own", "baseline": "sum", "metric": "game/collective_reward"}]
    arms, tasks = {"sum": {}, "own": {"payoff": "independent"}}, {"two": {}, "three": {"seats": 3}}
    planned(values, arms=arms, tasks=tasks, primary=primary, sweeps={})


@pytest.mark.parametrize("seats", [2, 3, 5])
def test_competition_as_a_weight_is_that_of_the_payoff(seats):
    weight = plan.setting_value({"seats": seats, "payoff": "competitive"}, "payoff")
    assert weight == matrix("competitive", seats)[0][1]


@pytest.mark.parametrize(
    ("base", "arm", "expected"),
    [
        (
            {"sees": "none"},
            {"sees.observer_2": "previous"},
            {"sees.observer_1": "none", "sees.observer_2": "previous"},
        ),
        ({"sees.observer_1": "none"}, {"sees": "all"}, {"sees": "all"}),
        ({"sees": {"observer_2": "previous"}}, {"sees": "none"}, {"sees": "none"}),
    ],
)
def test_views_of_an_arm_take_the_place_of_those_of_all_arms(values, base, arm, expected):
    settings = values["settings"] | {"task": "echo", "seats": 3} | base
    runs = planned(values, settings=settings, arms={"a": arm}, primary=[], seeds=1).runs
    found = {k: v for k, v in runs[0].settings.items() if k.startswith("sees")}
    assert found == expected


def test_arm_that_cannot_be_built_is_named_with_the_nearest_setting(values):
    with pytest.raises(ValueError, match=r"arm 'cooperative' on task 'relay' cannot be built: .*payoff"):
        planned(values, arms=values["arms"] | {"cooperative": {"payof": "cooperative"}})


@pytest.mark.parametrize(
    ("metric", "needed"),
    [
        ("pass_at_8", "evaluation.samples of 8 or more"),
        ("team/best_reward", "evaluation.team"),
        ("average/kl", "evaluation.average of two policies"),
    ],
)
def test_comparisons_that_no_evaluation_would_measure_are_refused(values, metric, needed):
    values |= {"primary": [{"arm": "cooperative", "baseline": "independent", "metric": metric}]}
    with pytest.raises(ValueError, match=f"by {metric}: arm 'cooperative' on task 'relay' needs {needed}"):
        make_plan(make_spec(values))
    enough = {"samples": 8, "team": True, "average": True}
    make_plan(make_spec(values | {"evaluation": values["evaluation"] | enough}))


@pytest.mark.parametrize("metric", ["survival", "survival_kl"])
@pytest.mark.parametrize(("every", "seen"), [(0, False), (4, True), (8, False)])
def test_survival_is_refused_where_only_start_and_end_are_evaluated(values, every, seen, metric):
    comparison = {"arm": "cooperative", "baseline": "independent", "metric": metric}
    values |= {"primary": [comparison], "settings": values["settings"] | {"iterations": 8}}
    spec = make_spec(values | {"evaluation": values["evaluation"] | {"every": every}})
    if seen:
        make_plan(spec)
    else:
        with pytest.raises(ValueError, match=f"by {metric}: .* needs evaluation.every below its 8 iter"):
            make_plan(spec)


@pytest.mark.parametrize(
    ("metric", "needed"),
    [
        ("apart/kl", "two policies or more"),
        ("second_judge", "the task reviews"),
        ("probability", "the task reviews, judged by a classifier"),
    ],
)
def test_comparisons_that_an_arm_has_no_figure_for_are_refused(values, metric, needed):
    values["arms"]["independent"] = {"seats": 1}
    comparison = {"arm": "independent", "baseline": "cooperative", "metric": metric}
    with pytest.raises(ValueError, match=f"by {metric}: arm 'independent' .* needs {needed}"):
        make_plan(make_spec(values | {"primary": [comparison]}))


def test_metric_of_a_seat_that_an_arm_lacks_is_refused(values):
    comparison = {"arm": "cooperative", "baseline": "independent", "metric": "team/observer_2/payoff"}
    with pytest.raises(ValueError, match="needs the seat 'observer_2', not only pioneer_0, observer_1"):
        planned(values, primary=[comparison], evaluation={"team": True})
    planned(
        values,
        primary=[comparison],
        evaluation={"team": True},
        settings={"task": "echo", "seats": 3},
        sweeps={},
    )


def test_one_policy_in_two_seats_has_no_range(values):
    arms = {"one": {"turns": "llm_1,llm_1", "exchange.every": 0}, "two": {}}
    comparison = {"arm": "two", "baseline": "one", "metric": "apart/kl"}
    with pytest.raises(ValueError, match=r"by apart/kl: arm 'one' .* needs two policies or more"):
        planned(values, arms=arms, primary=[comparison], sweeps={})


@pytest.mark.parametrize("metric", ["on/more/pass_at_4", "on/reviews/probability"])
def test_metrics_on_another_task_need_what_its_evaluation_has(values, metric):
    tasks = {
        "few": {"evaluation.samples": 2},
        "more": {"evaluation.samples": 4},
        "reviews": {"task": "reviews", "judge": "pocket"},
    }
    arms = {"sum": {}, "own": {"payoff": "independent"}}
    base = values | {
        "preset": "pocket-arithmetic",
        "settings": {},
        "tasks": tasks,
        "arms": arms,
        "sweeps": {},
    }
    comparison = {"arm": "own", "baseline": "sum", "task": "few", "metric": metric}
    crossed = planned(base, primary=[comparison], cross={"few": ["more", "reviews"]})
    assert crossed.runs[0].cross.keys() == {"more", "reviews"}
    graded = plan.graded(make_spec(base | {"primary": [comparison]}), tasks)
    assert graded == ({("own", "more"), ("sum", "more")} if "pass_at" in metric else set())
    turned = {"arm": "own", "baseline": "sum", "task": "more", "metric": f"on/few/{metric.split('/')[2]}"}
    with pytest.raises(ValueError, match=r"needs (evaluation\.samples of 4|the task reviews)"):
        planned(base, primary=[turned], cross={"more": ["few"]})


def test_arms_with_unequal_evaluation_are_refused(values):
    arms = values["arms"] | {"independent": {"payoff": "independent", "evaluation.samples": 4}}
    with pytest.raises(
        ValueError, match=r"evaluated differently on task 'relay': evaluation.samples is 1 and 4"
    ):
        planned(values, arms=arms)


def test_arms_with_other_scores_are_refused_unless_the_file_allows_it(values):
    arms = values["arms"] | {"independent": {"payoff": "independent", "task.price": 0.3}}
    with pytest.raises(
        ValueError, match=r"task\.price is 0\.2 and 0\.3; make it equal, or list 'task\.price'"
    ):
        planned(values, arms=arms)
    assert planned(values, arms=arms, may_differ=["task.price"]).runs


def test_sweep_over_no_number_is_refused_before_the_first_run(values):
    sweeps = {"payoff": {"setting": "payoff", "arms": ["cooperative", "independent"]}}
    assert planned(values, sweeps=sweeps).runs
    with pytest.raises(ValueError, match="a number above 0"):
        planned(values, sweeps={"payoff": sweeps["payoff"] | {"log": True}})
    with pytest.raises(ValueError, match="'task' needs a number"):
        planned(values, sweeps={"payoff": sweeps["payoff"] | {"setting": "task"}})


def test_sweep_with_the_same_setting_twice_is_refused(values):
    sweeps = {"payoffs": {"setting": "payoff", "arms": ["a", "b"]}}
    arms = {"a": {"payoff": "cooperative"}, "b": {"payoff": 1}}
    with pytest.raises(ValueError, match=r"payoff is \[1.0, 1.0\] in a, b .*a value of its own"):
        planned(values, arms=arms, sweeps=sweeps, primary=[])


def test_payoff_of_one_seat_alone_is_swept_by_its_weight(values):
    arms = {
        "a": {"payoff": "independent"},
        "b": {"payoff": [[1, -0.4], [0, 1]]},
        "c": {"payoff": [[1, 1], [0, 1]]},
    }
    sweep = {"setting": "payoff", "arms": ["a", "b", "c"]}
    made = planned(values, arms=arms, sweeps={"pioneer": sweep}, primary=[], seeds=1)
    assert [plan.setting_value(run.settings, "payoff") for run in made.runs] == [0, -0.4, 1]
    arms["b"] = {"payoff": [[1, 0.5], [0.5, 1]]}
    with pytest.raises(ValueError, match="'payoff' needs a number"):
        planned(values, arms=arms, sweeps={"pioneer": sweep}, primary=[])


def test_settings_survive_the_journey_to_a_worker(values):
    """A worker reads the flat settings as flags; numbers below 0, lists, none and matrices are among them."""
    arms = {"a": {"payoff": -0.4}, "b": {"payoff": "[[1, 0.5], [0, 1]]"}, "c": {"kl.final": None}}
    for run in planned(values, arms=arms, primary=[], seeds=1).runs:
        assert plan.completed(run.settings) == run.settings


def test_every_committed_study_can_be_planned():
    for path in sorted((ROOT / "benchmarks/studies").glob("*.yaml")):
        spec = read_spec(path).quick()  # reads and checks every arm, comparison and sweep
        arms = dict(list(spec.arms.items())[:2])  # building all takes a minute
        assert make_plan(replace(spec, arms=arms, sweeps={}, strangers=(), primary=())).runs, path


def test_stored_settings_without_a_newer_one_are_the_same_run(values):
    wanted = planned(values).runs[0].settings
    stored = {name: value for name, value in wanted.items() if name != "keep_checkpoints"}
    assert plan.changes(stored, wanted) == []
    assert plan.changes(stored | {"learner.lr": 0.5}, wanted) == ["learner.lr was 0.5 and is 0.1"]


def test_stored_setting_that_has_been_removed_counts_where_it_had_its_default(values):
    wanted = planned(values).runs[0].settings
    assert plan.changes(wanted | {"policy.kernels": "auto"}, wanted) == []
    assert "policy.kernels was 'plain' and is None" in plan.changes(
        wanted | {"policy.kernels": "plain"}, wanted
    )


def test_run_directory_with_other_settings_or_learning_version_holds_another_run(values, tmp_path):
    run = planned(values).runs[0]
    folder = tmp_path / run.name
    assert records.why_holds_another(folder, run) == ""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(
        "\n".join(f"{k}: {v!r}" for k, v in run.settings.items() if v is not None)
    )
    (folder / "environment.json").write_text('{"learning_version": 0}')
    assert "learning version 0, now 1" in records.why_holds_another(folder, run)
    (folder / "environment.json").write_text(
        '{"learning_version": 1, "resumed": [{"sources": {"a.py": "0"}}]}'
    )
    assert "a.py has changed" in records.why_holds_another(folder, run)
    (folder / "environment.json").write_text('{"learning_version": 1}')
    assert records.why_holds_another(folder, run) == ""
    other = planned(values, settings=values["settings"] | {"batch": 16}).runs[0]
    assert "other settings: batch was 32 and is 16" in records.why_holds_another(folder, other)
