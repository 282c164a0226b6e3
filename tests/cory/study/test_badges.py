"""What the page of a study says first, on runs that are made up."""

import pytest

from cory.study.analysis import analyse
from cory.study.badges import badges, payoff_lines
from cory.study.plan import make_plan
from cory.study.plots.payoff import draw_payoff
from cory.study.reading import make_spec
from cory.study.results import assemble
from tests.cory.study.conftest import made_up_run

PRIMARY = [{"arm": "cooperative", "baseline": "independent", "metric": "task_reward", "margin": 0.1}]
SWEEP = {"lambda": {"setting": "payoff", "arms": ["independent", "cooperative"]}}


def results_of(values, rewards, **more):
    """Five runs of each arm; the seats score the run's value and half of it."""
    spec = make_spec(values | {"seeds": 5, "primary": PRIMARY, "sweeps": SWEEP})
    runs = [
        made_up_run(arm, seed, reward + 0.001 * seed, **more)
        for arm, reward in rewards.items()
        for seed in range(5)
    ]
    return analyse(assemble(spec, make_plan(spec), runs))


@pytest.mark.parametrize(
    ("rewards", "shown"),
    [
        (
            {"cooperative": 0.9, "independent": 0.4},
            ["good", "cooperative - independent +0.500", "1 supported"],
        ),
        ({"cooperative": 0.4, "independent": 0.9}, ["bad", "cooperative - independent -0.500", "1 refuted"]),
    ],
)
def test_badges_say_whether_cooperation_helped_and_what_became_of_the_claims(values, rewards, shown):
    tone, difference, claims = shown
    text = badges(results_of(values, rewards))
    assert f'<span class="badge {tone}"><b>cooperation</b> {difference} (' in text
    assert f"<b>claims</b> {claims}<" in text
    assert '<span class="badge good"><b>objective</b> up in 2 of 2 arms</span>' in text
    assert '<span class="badge good"><b>collapse</b> no sign</span>' in text


@pytest.mark.parametrize(
    ("payoff", "shown"), [("cooperative", "many - one +0.500 ("), ("independent", "not compared<")]
)
@pytest.mark.parametrize("turned", [False, True])
def test_badge_of_cooperation_is_of_seats_that_are_paid_for_each_other_whichever_is_the_baseline(
    values, payoff, shown, turned
):
    arms = {"many": {"payoff": payoff}, "one": {"seats": 1, "exchange.every": 0, "payoff": "independent"}}
    sides = dict(zip(("baseline", "arm") if turned else ("arm", "baseline"), arms, strict=True))
    primary = [{**sides, "metric": "task_reward", "margin": 0.1}]
    spec = make_spec(values | {"seeds": 5, "arms": arms, "primary": primary})
    runs = [
        made_up_run(arm, seed, {"many": 0.9, "one": 0.4}[arm] + 0.001 * seed)
        for arm in arms
        for seed in range(5)
    ]
    text = badges(analyse(assemble(spec, make_plan(spec), runs)))
    assert f"<b>cooperation</b> {shown}" in text


def test_badge_of_the_objective_needs_seeds_and_says_what_it_counts(values):
    results = results_of(values, {"cooperative": 0.9, "independent": 0.4})
    results["runs"] = [run for run in results["runs"] if run["seed"] == 0]
    assert "<b>objective</b> too few seeds<" in badges(analyse(results))


@pytest.mark.parametrize(
    "metric", ["apart/combined_reward", "kl", "game/kl", "repetition", "survival", "survival_kl"]
)
def test_badge_of_cooperation_is_no_comparison_of_kl_or_collapse(values, metric):
    results = results_of(values, {"cooperative": 0.9, "independent": 0.4})
    results["primary"] = [{**results["primary"][0], "metric": metric}, *results["primary"]]
    assert "<b>cooperation</b> cooperative - independent +0.500 (" in badges(analyse(results))


def test_badge_of_collapse_counts_policies(values):
    collapsed = {"collapsed_at": {"llm_1": 10, "llm_2": None}}
    text = badges(results_of(values, {"cooperative": 0.9, "independent": 0.4}, **collapsed))
    assert '<span class="badge bad"><b>collapse</b> signs in 10 of 20 policies</span>' in text


def test_payoff_sweep_shows_the_collective_reward_and_both_seats(values):
    """At lambda 1 the seats score 0.9 + 0.45, at 0 0.4 + 0.2, and 0.003 more in the mean of the seeds."""
    results = results_of(values, {"cooperative": 0.9, "independent": 0.4})
    assert payoff_lines(results) == [
        "From λ = 0 to 1 the collective reward on relay goes from 0.603 to 1.353."
    ]
    together, apart, *_ = draw_payoff(results).axes
    means = [line for line in together.lines if line.get_marker() == "o"]
    assert [(*line.get_xdata(), *line.get_ydata()) for line in means] == [
        (0.0, pytest.approx(0.603)),
        (1.0, pytest.approx(1.353)),
    ]
    means = [line for line in apart.lines if line.get_marker() == "o"]
    assert [(*line.get_xdata(), *line.get_ydata()) for line in means] == [
        (pytest.approx(0.402), pytest.approx(0.201)),
        (pytest.approx(0.902), pytest.approx(0.451)),
    ]
