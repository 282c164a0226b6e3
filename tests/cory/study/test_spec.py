"""Study files: keys, names, seeds."""

import pytest

from cory.study.reading import make_spec, read_spec
from cory.study.study import Study

BOTH_ARMS = ["cooperative", "independent"]


def test_unknown_key_names_its_nearest(values):
    with pytest.raises(ValueError, match="no key 'sedes'; did you mean 'seeds'"):
        make_spec(values | {"sedes": 3})


@pytest.mark.parametrize("place", ["arms", "tasks"])
def test_a_setting_in_two_forms_is_refused(values, place):
    twice = {"kl.coef": 0.2, "kl": {"coef": 0.1}}
    with pytest.raises(ValueError, match=r"kl\.coef is given twice"):
        make_spec(values | {place: values.get(place, {}) | {"cooperative": twice}})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"primary": [{"arm": "cooperative", "baselin": "independent"}]}, "did you mean 'baseline'"),
        ({"primary": [{"arm": "coperative", "baseline": "independent"}]}, "did you mean 'cooperative'"),
        ({"primary": [{"arm": "cooperative"}]}, "lacks a key .*baseline"),
        ({"primary": [{"arm": "cooperative", "baseline": "cooperative"}]}, "give two arms"),
        ({"primary": [{"arm": "cooperative", "baseline": "independent", "margin": -1}]}, "margin of 0"),
        ({"primary": [{"arm": "cooperative", "baseline": "independent", "direction": "up"}]}, "higher"),
        *(
            (
                {"primary": [{"arm": "cooperative", "baseline": "independent", **wrong}]},
                "give a finite number",
            )
            for wrong in ({"expected": 0.4}, {"expected": float("nan"), "direction": "equal"})
        ),
        ({"primary": [{"arm": "hihg", "baseline": "independent"}]}, "the study has no arm 'hihg'"),
        *(
            ({"primary": [{"arm": "cooperative", "baseline": "independent", "metric": wrong}]}, message)
            for wrong, message in (
                ("taskreward", "no metric 'taskreward'; did you mean 'task_reward'"),
                ("game/collective", "did you mean 'game/collective_reward'"),
                ("averag/kl", "did you mean 'average/kl'|there is no metric"),
                ("game/pass_at_2", "no metric 'game/pass_at_2'"),
                ("response_length", "no metric 'response_length'"),
                ("kl_coef", "no metric 'kl_coef'"),
                ("average/survival", "no metric 'average/survival'"),
                ("team/payoff", "no metric 'team/payoff'; there are team/collective_reward"),
                ("team/task_reward", "no metric 'team/task_reward'"),
                ("team/gap/pass_at_2", "no metric 'team/gap/pass_at_2'"),
                ("pass_at_0", "no metric 'pass_at_0'"),
                ("collective_reward", "no metric 'collective_reward'"),
                ("reward_at_kl/1.2.3", "no metric 'reward_at_kl/1.2.3'"),
            )
        ),
        ({"sweeps": {"lr": {"setting": "learner.lr", "arms": ["cooperative"]}}}, "two arms or more"),
        ({"frontier": {"KL": 3}}, "there are kl"),
        ({"frontier": {"kl": "x"}}, "frontier: kl is 'x'; give a number"),
        ({"primary": [{"arm": "cooperative", "baseline": "independent", "margin": "0.05x"}]}, "'0.05x'"),
        ({"primary": [{"arm": "cooperative", "baseline": "independent", "metric": 3}]}, "no metric '3'"),
        ({"sweeps": {"s": ["cooperative"]}}, r"sweeps: s is \['cooperative'\]; give `name: value` pairs"),
        (
            {"sweeps": {"s": {"setting": "payoff", "arms": BOTH_ARMS}}, "pools": {"s": BOTH_ARMS}},
            "'s' needs two arms or more, and a name that no arm or sweep has",
        ),
        (
            {"primary": [{"arm": "cooperative", "baseline": "independent", "direction": "equal"}]},
            "are never exactly equal; give the comparison a margin",
        ),
        ({"seeds": 0}, "seeds is 0"),
        ({"seeds": [1, "two"]}, "whole numbers"),
        ({"arms": {"../x": {}}}, "no name of a folder"),
        ({"pools": {"s": "cooperative"}}, "'s' needs two arms or more"),
        ({"arms": {"a": {"seed": 3}}}, "the study's `seeds` do"),
        ({"arms": {}}, "a study needs arms"),
        ({"arms": ["cooperative"]}, "give `name: value` pairs"),
        ({"primary": 5}, "primary is 5; give `name: value` pairs"),
        ({"primary": True}, "primary is True; give `name: value` pairs"),
        ({"out": 5}, "out is 5; give a path"),
        ({"results": ["a"]}, r"results is \['a'\]; give a path"),
        ({"sweeps": {"s": {"setting": "payoff", "arms": BOTH_ARMS, "log": "no"}}}, "true or false"),
    ],
)
def test_bad_values_say_what_to_write(values, changes, message):
    with pytest.raises(ValueError, match=message):
        make_spec(values | changes)


@pytest.mark.parametrize(
    "metric",
    [
        *(
            "task_reward",
            "pass_at_8",
            "average/combined_reward",
            "team/best_reward",
            "team/observer_1/accuracy",
        ),
        *(
            "game/collective_reward",
            "game/kl",
            "hypervolume",
            "reward_at_kl/2.5",
            "survival",
            "survival_kl",
            "second_judge",
        ),
    ],
)
def test_metrics_of_runs_can_be_compared(values, metric):
    one = {"arm": "cooperative", "baseline": "independent", "metric": metric}
    assert make_spec(values | {"primary": [one]}).primary[0].metric == metric


def test_margin_by_task_is_a_comparison_per_task(values):
    values |= {"tasks": {"one": {}, "two": {}}}
    values["primary"] = [{"arm": "cooperative", "baseline": "independent", "margin": {"one": 0.1, "two": 2}}]
    found = [(one.task, one.margin) for one in make_spec(values).primary]
    assert found == [("one", 0.1), ("two", 2)]


def test_seeds_are_a_number_or_a_list(values):
    assert make_spec(values | {"seeds": 3}).seeds == (0, 1, 2)
    assert make_spec(values | {"seeds": [7, 5, 7]}).seeds == (7, 5)


def test_files_that_are_no_study_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"there is no study file .*none\.yaml"):
        read_spec(tmp_path / "none.yaml")
    (tmp_path / "twice.yaml").write_text("name: a\nquestion: q\narms:\n  cory: {}\n  cory: {batch: 2}\n")
    with pytest.raises(ValueError, match="the key 'cory' is given twice"):
        read_spec(tmp_path / "twice.yaml")
    (tmp_path / "list.yaml").write_text("- 1")
    with pytest.raises(ValueError, match="does not hold `name: value`"):
        read_spec(tmp_path / "list.yaml")


def test_python_takes_the_keys_of_the_file(values):
    assert Study(**values).spec == make_spec(values)


def test_quick_form_is_a_seed_of_two_iterations_and_never_the_committed_results(values):
    spec = make_spec(values | {"results": "results.json"}).quick()
    assert spec.seeds == (0,)
    assert spec.arms["independent"]["iterations"] == 2
    assert (spec.results, spec.out.name) == (None, "quick")
