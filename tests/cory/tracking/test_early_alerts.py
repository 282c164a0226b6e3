"""Alerts of runs that cannot learn or go wrong at once, from rows made by hand."""

import pytest

from cory.tracking import alerts

PIONEER, OBSERVER = "pioneer_0/llm_1", "observer_1/llm_2"


@pytest.fixture(autouse=True)
def three(monkeypatch):
    """Later alerts follow three iterations."""
    monkeypatch.setattr(alerts, "WINDOW", 3)


def row(**of_both: float) -> dict[str, float]:
    """The metrics of an iteration in which both seats have the same numbers."""
    usual = {"task_reward": 0.2, "score_std": 0.4, "payoff_std": 0.5, "kl": 0.3}
    usual |= {"eos_share": 0.9, "empty_share": 0.0}
    return {f"{seat}/{name}": x for seat in (PIONEER, OBSERVER) for name, x in (usual | of_both).items()}


CONSTANT = {"task_reward": 0.0, "score_std": 0.0, "payoff_std": 0.0}


def test_a_constant_score_is_reported_after_the_first_iteration_with_an_example():
    warnings = alerts.training([row(**CONSTANT)], example=lambda: "for example 'x'")
    assert list(warnings) == ["constant score"]
    assert "every response has the same score, 0 (for example 'x')" in warnings["constant score"]


def test_a_score_that_becomes_constant_is_reported_after_a_window():
    rows = [row(), row(**CONSTANT), row(**CONSTANT)]
    assert alerts.training(rows) == {}
    assert list(alerts.training([*rows, row(**CONSTANT)])) == ["constant score"]


def test_one_seat_with_a_constant_score_is_named():
    rows = [row() | {f"{PIONEER}/score_std": 0.0, f"{PIONEER}/payoff_std": 0.0}]
    assert list(alerts.training(rows)) == ["constant score pioneer_0"]


def test_a_constant_score_that_is_paid_with_a_varying_one_can_be_learned_from():
    assert alerts.training([row() | {f"{PIONEER}/score_std": 0.0}]) == {}


def test_a_payoff_that_cancels_the_scores_is_reported():
    warnings = alerts.training([row(payoff_std=0.0)])
    assert list(warnings) == ["constant payoff pioneer_0", "constant payoff observer_1"]
    assert "though scores differ: the payoff cancels them" in warnings["constant payoff observer_1"]


def test_groups_of_equal_payoffs_are_reported():
    warnings = alerts.training([row(queries_without_spread=1.0)])
    assert list(warnings) == ["groups pioneer_0", "groups observer_1"]
    assert alerts.training([row(queries_without_spread=0.9)]) == {}


def test_most_responses_empty_or_cut_are_reported():
    warnings = alerts.training([row(empty_share=0.6, eos_share=0.4)], ends=True)
    assert list(warnings) == ["empty pioneer_0", "cut pioneer_0", "empty observer_1", "cut observer_1"]
    assert warnings["empty pioneer_0"].startswith("60% of the responses of pioneer_0 are empty")
    assert warnings["cut observer_1"].startswith("60% of the responses of observer_1 are cut at their cap")
    assert alerts.training([row(eos_share=0.4)]) == {}  # caps are drawn: they are lengths


@pytest.mark.parametrize(("kl", "names"), [(1.5, ["fast llm_1", "fast llm_2"]), (0.9, [])])
def test_a_first_update_of_more_than_a_nat_is_reported(kl, names):
    """Responses of the second iteration are the first that an update has moved."""
    assert list(alerts.training([row(kl=0.0), row(kl=kl)])) == names
    assert alerts.training([row(kl=0.0), row(), row(kl=kl)]) == {}  # later KL is earned
    assert alerts.training([row(kl=kl), row(kl=kl)], missed=18) == {}  # the first rows are lost


def evaluated(value: float, *, std: float = 0.4) -> dict[str, float]:
    """llm_1 with a combined reward of `value`, the reference with one of 0.5."""
    return {
        "eval/reference/combined_reward": 0.5,
        "eval/reference/task_reward": 0.5,
        "eval/reference/score_std": std,
        "eval/llm_1/gain_error": 0.05,
        "eval/llm_1/combined_reward": value,
        "eval/llm_1/task_reward": value,
        "eval/llm_1/score_std": std,
    }


def test_a_combined_reward_below_the_references_is_reported_beyond_two_standard_errors():
    """The standard error of the gain is 0.05, so that 0.39 is below and 0.41 is not."""
    warnings = alerts.evaluation(evaluated(0.39), queries=128)
    assert list(warnings) == ["worse llm_1"]
    assert "is 0.390, below the reference's 0.500" in warnings["worse llm_1"]
    assert alerts.evaluation(evaluated(0.41), queries=128) == {}
    assert alerts.evaluation(evaluated(-9.0), queries=29) == {}  # too few to tell


def test_an_evaluation_in_which_every_response_scores_the_same_is_reported():
    warnings = alerts.evaluation(evaluated(0.5, std=0.0), queries=30)
    assert list(warnings) == ["constant evaluation"]
    solved = evaluated(1.0) | {"eval/llm_1/score_std": 0.0}  # every response is right by now
    assert alerts.evaluation(solved, queries=30) == {}
