"""Values of runs, comparisons, sweeps and reports of made-up runs."""

import math
import warnings

import numpy as np
import pytest

from cory.study import analysis, report, survival
from cory.study.metric import Metric
from cory.study.plan import make_plan
from cory.study.plots import curves, frontier, panels
from cory.study.reading import make_spec
from cory.study.results import assemble
from tests.cory.study.conftest import made_up_run

OPTIONS = {"kl_coef": 0.1, "frontier": {"kl": 20.0, "reward": None}}
GAINS = (0.30, 0.32, 0.28, 0.31, 0.29, 0.30)


KL_OF = {"pioneer_0": 1.0, "observer_1": 3.0}
"""Nats of each seat."""


def made_up_results(values, gains=GAINS, **changes):
    """Cooperative above independent by `gains`, one per seed."""
    spec = make_spec(values | changes)
    runs = [
        made_up_run(arm, seed, 0.5 + 0.01 * seed + (gain if arm == "cooperative" else 0.0))
        for seed, gain in enumerate(gains)
        for arm in ("cooperative", "independent")
    ]
    return analysis.analyse(assemble(spec, make_plan(spec), runs))


def test_value_of_a_run_is_the_mean_of_its_policies_at_the_end():
    run = made_up_run("a", 0, 0.5, kl=2.0)
    assert analysis.run_value(run, "task_reward", **OPTIONS) == pytest.approx(0.5)
    assert analysis.run_value(run, "combined_reward", **OPTIONS) == pytest.approx(0.5 - 0.1 * 2.0)
    assert analysis.run_value(run, "game/collective_reward", **OPTIONS) == pytest.approx(0.5 + 0.25)
    assert analysis.run_value(run, "game/task_reward", **OPTIONS) == pytest.approx(0.375)
    assert math.isnan(analysis.run_value(run, "pass_at_8", **OPTIONS))
    for policy in ("llm_1", "llm_2"):  # KL was not finite at the second evaluation, and is not stored
        run["eval"][policy] = {"task_reward": [[0, 0.0], [10, 0.4], [20, 0.6]], "kl": [[0, 0.0], [20, 2.0]]}
    assert analysis.run_value(run, "combined_reward", **OPTIONS) == pytest.approx(0.6 - 0.1 * 2.0)


def test_value_that_was_not_finite_at_the_end_is_none_of_before():
    run = made_up_run("a", 0, 0.5)
    for policy in ("llm_1", "llm_2"):  # it left its reference for an infinite KL, which is not stored
        run["eval"][policy] = {"task_reward": [[0, 0.0], [10, 0.4], [20, 3.0]], "kl": [[0, 0.0], [10, 2.0]]}
    run["game"]["observer_1"] = {"task_reward": [[10, 0.5], [20, 0.5]], "kl": [[10, 2.0]]}
    assert analysis.run_value(run, "task_reward", **OPTIONS) == 3.0
    for metric in ("kl", "combined_reward", "apart/kl", "game/kl"):
        assert math.isnan(analysis.run_value(run, metric, **OPTIONS)), metric
    run["eval"]["llm_1"]["kl"].append([20, 9.0])  # nor is one policy's the mean of both
    assert math.isnan(analysis.run_value(run, "kl", **OPTIONS))
    assert analysis.curve(run, "kl", kl_coef=0.1) == {0: 0.0, 10: 2.0}


def test_frontier_pairs_reward_and_kl_of_one_evaluation():
    run = made_up_run("a", 0, 0.5)
    for policy in ("llm_1", "llm_2"):  # KL was not finite at the second evaluation, and is not stored
        run["eval"][policy] = {"task_reward": [[0, 0.0], [10, 0.4], [20, 1.0]], "kl": [[0, 0.0], [20, 2.0]]}
    assert analysis.run_value(run, "hypervolume", **OPTIONS) == pytest.approx(18 * 1.0)
    assert analysis.run_value(run, "reward_at_kl/1", **OPTIONS) == pytest.approx(0.5)


def test_values_and_curves_of_the_team():
    run = made_up_run("a", 0, 0.5)
    run["team"] = {
        "all": {"best_reward": [[0, 0.2], [20, 0.7]]},
        "observer_1": {"task_reward": [[0, 0.1], [20, 0.6]]},
    }
    assert analysis.run_value(run, "team/best_reward", **OPTIONS) == 0.7
    assert analysis.run_value(run, "team/observer_1/task_reward", **OPTIONS) == 0.6
    assert analysis.curve(run, "team/best_reward", kl_coef=0.1) == {0: 0.2, 20: 0.7}
    assert math.isnan(analysis.run_value(run, "team/absent", **OPTIONS))


def test_combined_reward_of_a_team_that_was_not_trained_is_that_of_its_seats():
    run = made_up_run("a", 0, 0.5) | {"game": {}}
    seats = {seat: {"task_reward": [[20, 0.5]], "kl": [[20, kl]]} for seat, kl in KL_OF.items()}
    run["team"] = seats | {key: {"collective_reward": [[20, 9.0]]} for key in ("all", "strangers", "gap")}
    want = 0.5 * len(KL_OF) - 0.1 * sum(KL_OF.values())
    assert analysis.run_value(run, analysis.OF_TEAM, **OPTIONS) == pytest.approx(want)


def test_combined_reward_of_games_has_the_coefficient_that_all_arms_share():
    run = made_up_run("a", 0, 0.5)
    stored = {"combined_reward": [[20, -9.0]]}  # by the arm's own coefficient
    seats = {seat: {"task_reward": [[20, 0.5]], "kl": [[20, kl]], **stored} for seat, kl in KL_OF.items()}
    run["team"], run["game"] = {"all": stored, **seats}, seats
    assert analysis.run_value(run, "team/combined_reward", **OPTIONS) == pytest.approx(1 - 0.1 * 4)
    assert analysis.run_value(run, "team/observer_1/combined_reward", **OPTIONS) == pytest.approx(0.2)
    assert analysis.run_value(run, "game/combined_reward", **OPTIONS) == pytest.approx(0.5 - 0.1 * 2)


def test_value_of_the_average_is_apart_from_the_policies():
    run = made_up_run("a", 0, 0.5)
    run["eval"]["average"] = {"task_reward": [[20, 0.9]], "kl": [[20, 2.0]]}
    settings = {"kl_coef": 0.1, "frontier": {}}
    assert analysis.run_value(run, "task_reward", **settings) == pytest.approx(0.5)
    assert analysis.run_value(run, "average/task_reward", **settings) == pytest.approx(0.9)
    assert analysis.run_value(run, "average/combined_reward", **settings) == pytest.approx(0.9 - 0.1 * 2)


def test_value_of_a_frontier_is_the_mean_over_the_policies():
    run = made_up_run("a", 0, 0.5, kl=2.0)
    # Each policy's points are (0, 0) and (2, .5 +- .1); the reference's reward is 0.
    assert analysis.run_value(run, "hypervolume", **OPTIONS) == pytest.approx(18 * 0.5)
    assert analysis.run_value(run, "reward_at_kl/1", **OPTIONS) == pytest.approx(0.25)
    assert math.isnan(analysis.run_value(run, "reward_at_kl/3", **OPTIONS))
    del run["eval"]["reference"]
    assert math.isnan(analysis.run_value(run, "hypervolume", **OPTIONS))  # nothing to measure from
    for name, reward in (("llm_1", 0.3), ("llm_2", 0.1)):
        run["eval"][f"reference_{name}"] = {"task_reward": [[0, reward]], "kl": [[0, 0.0]]}
    # llm_1 ends at (2, .6) and its reference is at .3, llm_2 at (2, .4) and .1.
    assert analysis.run_value(run, "hypervolume", **OPTIONS) == pytest.approx(18 * 0.3)


def test_survival_is_the_iteration_of_collapse_or_the_length_of_the_run_mean_over_the_policies():
    assert analysis.run_value(made_up_run("a", 0, 0.5), "survival", **OPTIONS) == 20
    run = made_up_run("a", 0, 0.5, collapsed_at={"llm_1": 10, "llm_2": None})
    assert analysis.run_value(run, "survival", **OPTIONS) == 15


def test_apart_is_how_far_the_policies_are_from_each_other():
    run = made_up_run("a", 0, 0.5)
    run["eval"]["average"] = {"task_reward": [[20, 0.9]], "kl": [[20, 2.0]]}
    assert analysis.run_value(run, "apart/task_reward", **OPTIONS) == pytest.approx(0.2)
    run["eval"]["llm_2"]["kl"] = [[0, 0.0], [20, 5.0]]  # .6 - .1 x 1 and .4 - .1 x 5
    assert analysis.run_value(run, "apart/combined_reward", **OPTIONS) == pytest.approx(0.6)
    del run["eval"]["llm_2"]
    assert math.isnan(analysis.run_value(run, "apart/task_reward", **OPTIONS))


def test_pool_is_the_mean_of_its_arms_at_seeds_that_all_have(values):
    results = made_up_results(values, pools={"both": ["cooperative", "independent"]})
    cooperative, independent, both = (
        analysis.values_by_seed(results, name, "relay", "task_reward")
        for name in ("cooperative", "independent", "both")
    )
    assert both == pytest.approx({s: (cooperative[s] + independent[s]) / 2 for s in cooperative})
    results["runs"] = [run for run in results["runs"] if (run["arm"], run["seed"]) != ("independent", 2)]
    assert 2 not in analysis.values_by_seed(results, "both", "relay", "task_reward")


def test_pools_are_compared_and_stand_in_the_table(values):
    primary = [{"arm": "both", "baseline": "independent", "metric": "task_reward"}]
    results = made_up_results(values, pools={"both": ["cooperative", "independent"]}, primary=primary)
    (row,) = results["statistics"]
    assert row["difference"] == pytest.approx(0.30 / 2, abs=0.01)
    assert ["both", "6"] in [cells[:2] for cells in report.result_tables(results)[-1].rows]


def test_a_baseline_may_have_a_metric_of_its_own(values):
    """An arm against itself: its task reward (0.50) against its KL (1)."""
    one = {"arm": "independent", "baseline": "independent", "metric": "task_reward"}
    results = made_up_results(values, primary=[one | {"baseline_metric": "kl"}])
    (row,) = results["statistics"]
    rewards = analysis.values_by_seed(results, "independent", "relay", "task_reward")
    assert row["difference"] == pytest.approx(np.mean(list(rewards.values())) - 1)
    assert results["verdicts"][0]["test"] == "task_reward on relay, independent against independent in kl"


def test_table_of_comparisons_has_seven_columns(values):
    (table, *_) = report.result_tables(made_up_results(values))
    assert table.head == ["claim", "verdict", "comparison", "on", "n", "difference", "margin"]
    assert table.rows[0][1] == "supported"
    assert table.rows[0][4:] == ["6", "+0.450 (+0.428 to +0.472)", "higher by 0.05"]


def test_table_of_arms_ends_with_the_reference_and_its_note_lists_arms_without_runs(values):
    arms = values["arms"] | {"later": {"payoff": "competitive"}}
    table = report.result_tables(made_up_results(values, arms=arms))[-1]
    assert [row[0] for row in table.rows] == ["cooperative", "independent", "before training"]
    assert table.note.endswith(" Without runs: later.")
    assert table.rows[-1][table.head.index("task_reward")] == "0.000"


def test_reference_on_another_task_and_of_averaged_weights_stands_in_the_last_row(values):
    results = made_up_results(values)
    metrics = ("on/harder/combined_reward", "average/combined_reward")
    results["primary"] = [{**results["primary"][0], "metric": metric} for metric in metrics]
    for run in results["runs"]:
        run["on"] = {"harder": {"eval": {"reference": {"task_reward": [[20, -0.25]], "kl": [[20, 0.0]]}}}}
    table = report.result_tables(results)[-1]
    last = dict(zip(table.head, table.rows[-1], strict=True))
    assert [last[metric] for metric in metrics] == ["-0.250", "0.000"]


@pytest.mark.parametrize(("first", "shown"), [(0, "0.200"), (10, "-")])
def test_team_before_training_is_that_at_iteration_0(values, first, shown):
    results = made_up_results(values)
    results["primary"] = [{**results["primary"][0], "metric": "team/best_reward"}]
    for run in results["runs"]:
        run["team"] = {"all": {"best_reward": [[first, 0.2], [20, 0.7]]}}
    table = report.result_tables(results)[-1]
    assert dict(zip(table.head, table.rows[-1], strict=True))["team/best_reward"] == shown


def test_nats_of_survival_are_those_at_the_first_sign_or_at_the_last_evaluation():
    run = made_up_run("a", 0, 0.5, collapsed_at={"llm_1": 10, "llm_2": None})
    run["eval"]["llm_1"]["kl"] = [[0, 0.0], [5, 3.0], [10, 8.0], [20, 30.0]]
    run["eval"]["llm_2"]["kl"] = [[0, 0.0], [5, 9.0], [10, 7.0], [20, 6.0]]
    assert analysis.run_value(run, "survival_kl", **OPTIONS) == 7.0  # (8 + 6) / 2
    assert survival.lifetime(run, "survival_kl") == (7.0, False)
    run["collapsed_at"]["llm_2"] = 5
    assert survival.lifetime(run, "survival_kl") == (8.5, True)
    del run["eval"]["llm_1"]["kl"]  # of a player that gives no probabilities
    assert math.isnan(analysis.run_value(run, "survival_kl", **OPTIONS))


def results_in_nats(values, kl, direction="higher"):
    """Runs of two arms by the nats of their only policy, negative for those without collapse."""
    claim = {"arm": "independent", "baseline": "cooperative", "metric": "survival_kl", "margin": 1.0}
    spec = make_spec(values | {"primary": [claim | {"direction": direction}]})
    runs = []
    for arm, nats in kl.items():
        for seed, at in enumerate(nats):
            run = made_up_run(arm, seed, 0.5, collapsed_at={"llm_1": 20 if at > 0 else None})
            run["eval"]["llm_1"]["kl"] = [[0, 0.0], [20, abs(at)]]
            runs.append(run)
    return analysis.analyse(assemble(spec, make_plan(spec), runs))


def test_nats_of_two_arms_are_compared_by_seed_and_by_the_log_rank_test(values):
    results = results_in_nats(
        values, {"independent": [9, 9.1, 9.2, 9.3, 9.4], "cooperative": [4, 4, 4, 4, 4]}
    )
    (row,) = results["statistics"]
    assert (row["arm_mean"], row["baseline_mean"], row["result"]) == (pytest.approx(9.2), 4.0, "supported")
    # All five of cooperative at 4 nats, with ten at risk: expected 2.5, variance 5 * 5 * 5 * 5 / (100 * 9).
    # Then only independent is left, and what is seen there is what is expected.
    assert row["log_rank_p"] == pytest.approx(math.erfc((2.5**2 / (625 / 900) / 2) ** 0.5))
    assert len(curves.draw_survival(results).axes) == 2


@pytest.mark.parametrize(
    ("independent", "cooperative", "direction", "expected"),
    [
        (-9, 4, "higher", "supported"),  # 9 nats or more against 4
        (9, -4, "higher", "undecided"),  # 4 nats or more
        (-4, 4, "higher", "undecided"),
        (4, -4, "higher", "refuted"),
        (-9, 4, "lower", "refuted"),
        (4, -9, "lower", "supported"),
        (-4, 9, "lower", "undecided"),
        (-4, 4, "equal", "undecided"),
        (-9, 4, "equal", "refuted"),
        (-9, -4, "higher", "undecided"),
    ],
)
def test_nats_that_were_borne_without_collapse_decide_only_what_more_could_not_change(
    values, independent, cooperative, direction, expected
):
    kl = {
        "independent": [independent, abs(independent)] * 3,
        "cooperative": [cooperative, abs(cooperative)] * 3,
    }
    (row,) = results_in_nats(values, kl, direction)["statistics"]
    assert row["result"] == expected
    censored = 3 * ((independent < 0) + (cooperative < 0))
    assert f" {censored} runs did not collapse; a verdict" in analysis.words(row)


def collapsing_results(values, collapsed, iterations=20, **claim):
    """Runs of cooperative that collapse at given iterations, those of independent that never do."""
    compared = {"arm": "independent", "baseline": "cooperative", "metric": "survival", "margin": 1.0}
    primary = [compared | claim]
    spec = make_spec(values | {"primary": primary})
    runs = [
        made_up_run("cooperative", seed, 0.5, collapsed_at={"llm_1": at, "llm_2": at})
        for seed, at in enumerate(collapsed)
    ]
    runs += [made_up_run("independent", s, 0.5, iterations=iterations) for s in range(len(collapsed))]
    return analysis.analyse(assemble(spec, make_plan(spec), runs))["statistics"][0]


def test_survival_of_two_arms_has_a_paired_interval_and_the_p_of_the_log_rank_test(values):
    row = collapsing_results(values, [4, 8, 12, None, 10])
    # Restricted means to iteration 20; differences 16, 12, 8, 0, 10 with mean 9.2 and sd 5.9330.
    assert (row["arm_mean"], row["baseline_mean"]) == (20.0, pytest.approx((4 + 8 + 12 + 20 + 10) / 5))
    half = 2.7764 * 5.9330 / 5**0.5
    assert (row["low"], row["high"]) == pytest.approx((9.2 - half, 9.2 + half), abs=1e-3)
    # Of 5 and 5 at risk one by one of cooperative collapses: expected 5/10 + 4/9 + 3/8 + 2/7 = 1.60516 of 4,
    # variance 25/100 + 20/81 + 15/64 + 10/49 = 0.93537; chi-squared (4 - 1.60516)^2 / 0.93537 = 6.1316.
    assert row["log_rank_p"] == pytest.approx(0.01328, abs=1e-5)
    assert analysis.words(row).endswith("the claim is one above 1. Log-rank p = 0.013.")


def test_run_is_censored_where_one_of_its_policies_has_not_collapsed(values):
    results = made_up_results(values, gains=(0.3,) * 5)
    results["primary"] = [{**results["primary"][0], "metric": "survival", "margin": 1.0}]
    for run in results["runs"]:
        run["collapsed_at"] = {"llm_1": 4, "llm_2": None if run["arm"] == "cooperative" else 6}
    (row,) = analysis.analyse(results)["statistics"]
    assert (row["arm_mean"], row["baseline_mean"]) == (12.0, 5.0)
    # All five of independent at 5, none of cooperative: expected 2.5, variance 5 * 5 * 5 * 5 / (100 * 9).
    assert row["log_rank_p"] == pytest.approx(math.erfc((2.5**2 / (625 / 900) / 2) ** 0.5))


def test_survival_in_nats_that_were_not_measured_is_left_out():
    assert survival.shares([(1.0, True), (math.nan, True), (2.0, False)]) == survival.shares(
        [(1.0, True), (2.0, False)]
    )


@pytest.mark.parametrize("collapsed", [[], [None] * 5])
def test_survival_without_runs_or_collapse_has_no_log_rank_p(values, collapsed):
    row = collapsing_results(values, collapsed)
    assert (row["n"], row["log_rank_p"]) == (len(collapsed), None)
    assert "Log-rank" not in analysis.words(row)
    assert row["result"] == "undecided"  # nobody collapsed: nothing was tested


@pytest.mark.parametrize(
    ("collapsed", "claim", "expected"),
    [
        ([20, 20, 20, 20, 16], {"margin": 5.0}, "undecided"),  # independent may last for much longer
        ([20, 20, 20, 20, 16], {"margin": 5.0, "direction": "equal"}, "undecided"),
        ([4, 5, 6, 5, 4], {"margin": 5.0}, "supported"),
        ([4, 5, 6, 5, 4], {"margin": 5.0, "direction": "equal"}, "refuted"),
        ([4, 5, 6, 5, 4], {"margin": 5.0, "direction": "lower"}, "refuted"),
    ],
)
def test_survival_is_refuted_only_where_longer_runs_could_not_change_it(values, collapsed, claim, expected):
    row = collapsing_results(values, collapsed, **claim)
    assert row["result"] == expected
    if expected == "undecided":
        assert "runs did not collapse; a verdict that longer runs could change" in analysis.words(row)


def test_share_without_collapse_is_the_kaplan_meier_estimate():
    # 5 at risk at 10: 4/5; 3 at risk at 20 (one censored at 15): 4/5 x 2/3; the rest are censored at 30.
    runs = [
        made_up_run("a", seed, 0.5, iterations=length, collapsed_at={"llm_1": at})
        for seed, (length, at) in enumerate([(30, 10), (15, None), (30, 20), (30, None), (30, None)])
    ]
    times, shares = survival.shares([life for run in runs for life in survival.lives_of(run, "survival")])
    assert times == [0, 10, 15, 20, 30]
    assert shares == pytest.approx([1, 0.8, 0.8, 0.8 * 2 / 3, 0.8 * 2 / 3])
    runs[0]["collapsed_at"] = {"llm_1": 0}  # before the first iteration
    lives = [life for run in runs for life in survival.lives_of(run, "survival")]
    assert survival.shares(lives)[1][:2] == [1, 0.8]


def test_shares_without_collapse_are_drawn_at_their_values_and_equal_ones_differ_in_width(values):
    results = made_up_results(values)
    for run in results["runs"]:
        run["collapsed_at"] = {"llm_1": 10, "llm_2": 10}
    lines = curves.draw_survival(results).axes[0].lines
    assert [line.get_ydata().tolist() for line in lines] == [[1, 0, 0]] * 2
    assert lines[0].get_linewidth() > lines[1].get_linewidth()


def test_survival_of_runs_of_other_lengths_ends_with_the_shortest(values):
    row = collapsing_results(values, [4, 12, None], iterations=10)
    assert row["difference"] == pytest.approx((6 + 0 + 0) / 3)
    assert collapsing_results(values, [0, 0, 0])["baseline_mean"] == 0.0


@pytest.mark.parametrize(
    ("direction", "gains", "expected"),
    [
        ("higher", GAINS, "refuted, though above zero"),
        ("higher", [-gain for gain in GAINS], "refuted"),
        ("higher", [0.3, -0.3] * 3, "refuted"),
        ("lower", [-gain for gain in GAINS], "refuted, though below zero"),
        ("lower", GAINS, "refuted"),
        ("equal", [gain + 9 for gain in GAINS], "refuted"),
    ],
)
def test_refuted_claims_show_a_difference_of_their_sign(values, direction, gains, expected):
    """A difference of 0.3 where more than 2 was claimed."""
    claim = {"arm": "cooperative", "baseline": "independent", "metric": "task_reward", "margin": 2.0}
    results = made_up_results(values, gains, primary=[claim | {"direction": direction}])
    assert analysis.result_words(results["statistics"][0]) == expected
    assert results["statistics"][0]["result"] == "refuted"
    assert report.verdict_lines(results)[0].startswith(f"{expected}: ")


@pytest.mark.parametrize(
    ("expected", "result"),
    [(0.4, "supported"), (0.25, "refuted"), (0.65, "refuted"), (0.34, "undecided"), (0.56, "undecided")],
)
def test_claim_of_a_derived_difference_is_supported_within_the_margin_around_it(values, expected, result):
    """A difference of 0.45 (+0.428 to +0.472), and a margin of 0.1."""
    claim = {
        "arm": "cooperative",
        "baseline": "independent",
        "metric": "game/collective_reward",
        "margin": 0.1,
    }
    results = made_up_results(values, primary=[claim | {"direction": "equal", "expected": expected}])
    (row,) = results["statistics"]
    assert (row["result"], report.margin(row)) == (result, f"+{expected} within 0.1")
    assert analysis.words(row).endswith(f"the claim is one within 0.1 of +{expected}.")
    (axes,) = curves.draw_differences(results).axes
    dotted = [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == ":"]
    assert dotted == pytest.approx([expected - 0.1, expected + 0.1])


def test_curve_is_the_mean_of_the_policies_at_each_evaluation():
    run = made_up_run("a", 0, 0.5, kl=2.0)
    assert analysis.curve(run, "combined_reward", kl_coef=0.1) == pytest.approx({0: 0.0, 20: 0.3})
    assert analysis.curve(run, "game/collective_reward", kl_coef=0.1) == pytest.approx({20: 0.75})


def test_comparison_is_paired_by_seed(values):
    row = made_up_results(values)["statistics"][0]
    assert (row["n"], row["seeds"]) == (6, [0, 1, 2, 3, 4, 5])
    assert row["difference"] == pytest.approx(1.5 * 0.30)  # both seats' scores
    assert row["low"] > 1.5 * 0.28
    assert row["high"] < 1.5 * 0.32
    assert row["result"] == "supported"


def test_lower_is_better_where_the_file_says_so(values):
    results = made_up_results(values, gains=[-gain for gain in GAINS])
    higher, lower = results["statistics"]
    assert (higher["result"], lower["result"]) == ("refuted", "supported")


def test_seeds_without_a_partner_do_not_count(values):
    results = made_up_results(values)
    results["runs"] = [
        r for r in results["runs"] if (r["arm"], r["seed"]) not in {("independent", 1), ("cooperative", 3)}
    ]
    row = analysis.analyse(results)["statistics"][0]
    assert row["seeds"] == [0, 2, 4, 5]
    assert row["result"] == "undecided"
    assert "too few for an interval" in analysis.words(row)


def test_dots_of_differences_use_the_metric_of_each_side(values):
    primary = [
        {"arm": "cooperative", "baseline": "cooperative", "metric": "task_reward", "baseline_metric": "kl"}
    ]
    results = made_up_results(values | {"primary": primary})
    axes = curves.draw_differences(results).axes[0]
    dots = next(line for line in axes.lines if line.get_marker() == ".")
    # A reward of .5, .01 a seed and its gain, less a KL of 1.
    expected = [0.5 + 0.01 * seed + gain - 1 for seed, gain in enumerate(GAINS)]
    assert list(dots.get_xdata()) == pytest.approx(expected)
    assert axes.get_yticklabels()[0].get_text() == "cooperative - cooperative in KL to the reference"


def test_test_of_a_sweep_says_that_it_is_an_area(values):
    sweeps = {"payoff": {"setting": "payoff", "arms": ["cooperative", "independent"]}}
    primary = [
        {"arm": "payoff", "baseline": "independent", "metric": metric} for metric in ("kl", "hypervolume")
    ]
    results = made_up_results(values | {"primary": primary}, sweeps=sweeps)
    assert [one["test"] for one in results["verdicts"]] == [
        "area of kl over payoff on relay, payoff against independent",
        "hypervolume on relay, payoff against independent",
    ]


def test_comparison_without_runs_is_undecided(values):
    results = made_up_results(values, gains=())
    assert [row["result"] for row in results["statistics"]] == ["undecided", "undecided"]
    assert "No seed has runs of both" in results["verdicts"][0]["words"]


def test_sweep_stands_for_the_area_under_its_arms(values):
    sweeps = {"payoff": {"setting": "payoff", "arms": ["cooperative", "independent"]}}
    results = made_up_results(values, sweeps=sweeps)
    # lambda 0 and 1: the mean of both arms
    areas = analysis.values_by_seed(results, "payoff", "relay", "task_reward")
    assert areas[0] == pytest.approx(0.5 + 0.30 / 2)
    # Final points (1, .8) and (1, .5) against (20, 0)
    volumes = analysis.values_by_seed(results, "payoff", "relay", "hypervolume")
    assert volumes[0] == pytest.approx(19 * 0.8)


def test_logarithmic_sweep_has_ticks_at_its_settings_only(values):
    arms = {f"lr-{lr}": {"learner.lr": lr} for lr in (1.5e-5, 1.5e-4, 0.5)}
    sweep = {"setting": "learner.lr", "arms": list(arms), "log": True}
    results = made_up_results(values, arms=arms, primary=[], sweeps={"lr": sweep}, gains=())
    results["runs"] = [made_up_run(arm, 0, 0.5) for arm in arms]
    figure = curves.draw_sweeps(results)
    figure.draw_without_rendering()
    axes = figure.axes[0]
    assert axes.get_xticks().tolist() == [1.5e-5, 1.5e-4, 0.5]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1.5e-5", "1.5e-4", "0.5"]
    assert axes.get_xticks(minor=True).tolist() == []
    assert axes.get_xlabel() == "learning rate"


def test_frontier_joins_the_arms_of_a_sweep_by_rising_setting_and_has_their_intervals(values):
    sweep = {"payoff": {"setting": "payoff", "arms": ["cooperative", "independent"]}}
    results = made_up_results(values, sweeps=sweep)
    for run in results["runs"]:
        if run["arm"] == "independent":  # lambda 0, drawn first although its KL is larger
            for quantities in run["eval"].values():
                quantities["kl"][-1][1] = 2.0
    axes = frontier.draw_frontier(results).axes[0]
    *bars, line = (line for line in axes.lines if line.get_linewidth() == 1 and len(line.get_xdata()) > 1)
    # Rewards are 0.5 to 0.55 by seed, with the gains 0.28 to 0.32 for the arm at KL 1.
    assert line.get_xydata().tolist() == pytest.approx(np.array([[2.0, 0.525], [1.0, 0.825]]))
    ends = {bar.get_xdata()[0]: bar.get_ydata() for bar in bars}
    assert 0.5 < ends[2.0][0] < 0.525 < ends[2.0][1] < 0.55
    assert 0.78 < ends[1.0][0] < 0.825 < ends[1.0][1] < 0.87
    assert [text.get_text() for text in axes.texts] == ["0", "1"]


def test_frontier_has_the_way_of_the_arms_that_are_compared_at_an_equal_kl(values):
    """Policies at other KLs on one bent way: their mean at an iteration is below it, at a KL on it."""
    claim = {"arm": "cooperative", "baseline": "independent", "metric": "reward_at_kl/0.5", "margin": 0.1}
    results = made_up_results(values, primary=[claim])
    for run in results["runs"]:
        for i, name in enumerate(("llm_1", "llm_2")):
            kl = [0.0, 0.25, 1.0, 4.0][: 3 + i]
            run["eval"][name]["kl"] = [[10 * at, value] for at, value in enumerate(kl)]
            run["eval"][name]["task_reward"] = [[10 * at, value**0.5] for at, value in enumerate(kl)]
    ways = [line for line in frontier.draw_frontier(results).axes[0].lines if line.get_linestyle() == ":"]
    assert len(ways) == 2
    for way in ways:
        kl, reward = way.get_xdata(), way.get_ydata()
        assert 0.95 < kl[-1] <= 1.0  # llm_1 goes no further
        assert np.interp([0.0, 0.25, 0.625], kl, reward) == pytest.approx([0.0, 0.5, 0.75], abs=0.01)
    results["primary"] = []
    assert not [line for line in frontier.draw_frontier(results).axes[0].lines if line.get_linestyle() == ":"]


def test_frontier_of_two_sweeps_is_a_panel_with_a_cross_for_each_reference(values):
    arms = {
        f"{kind}-{i}": {"kl.coef": 0.1 * (i + 1), "payoff": payoff}
        for kind, payoff in (("own", "independent"), ("sum", "cooperative"))
        for i in range(7)
    }
    sweep = {
        kind: {"setting": "kl.coef", "arms": [arm for arm in arms if arm.startswith(kind)]}
        for kind in ("own", "sum")
    }
    results = made_up_results(values, arms=arms, primary=[], sweeps=sweep, gains=())
    results["runs"] = [made_up_run(arm, 0, int(arm[-1]) / 6, kl=int(arm[-1])) for arm in arms]
    for run in results["runs"]:
        if run["arm"].startswith("sum"):
            run["eval"]["reference"]["task_reward"][-1][1] = 0.4
    assert len(panels.groups_of(results)) == 2
    (axes,) = frontier.draw_frontier(results).axes
    assert [line.get_ydata()[0] for line in axes.lines if line.get_marker() == "x"] == [0.0, 0.4]
    assert [text.get_text() for text in axes.figure.legends[0].texts] == ["own", "sum", "reference"]


def test_many_arms_are_drawn_in_groups_by_sweep_and_number_of_seats(values):
    swept = {f"sweep-{i}": {"payoff": str(i)} for i in range(3)}
    alone = {f"arm-{i}": {"learner.lr": 0.1 + i} for i in range(11)}
    arms = {**alone, **swept, "four": {"seats": 4}}
    sweep = {"payoff": {"setting": "payoff", "arms": list(swept)}}
    results = made_up_results(values, arms=arms, primary=[], sweeps=sweep, gains=())
    groups = panels.groups_of(results)
    names = list(alone)
    assert groups == [names[:6], names[6:], list(swept), ["four"]]
    assert panels.style_of(results, "arm-0") == panels.style_of(results, "arm-6")
    results["runs"] = [made_up_run(arm, 0, 0.5) for arm in arms]
    figure = curves.draw_curves(results)
    legends = [[text.get_text() for text in block.legends[0].texts] for block in figure.subfigs]
    assert legends == groups


def test_combined_reward_is_left_out_beside_task_reward_where_kl_costs_nothing(values):
    results = made_up_results(values)
    for coefficient, first in ((0.1, "combined reward\n"), (0.0, "task reward\n")):
        results["kl_coef"]["relay"] = coefficient
        assert curves.draw_curves(results).axes[0].get_ylabel().startswith(first)


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ("kl", "KL to the reference (nats per response)"),
        ("game/collective_reward", "collective reward, training games (sum of scores)"),
        ("team/observer_1/task_reward", "task reward, observer_1, held-out games (judge's units)"),
        ("average/length", "response length, averaged weights (tokens)"),
        ("on/sums-4/task_reward", "task reward, on sums-4 (judge's units)"),
        ("reward_at_kl/2", "task reward at a KL of 2 nats"),
        ("survival", "iterations without a sign of collapse"),
    ],
)
def test_axes_have_words_and_units_of_metrics(metric, words):
    assert Metric.named(metric).label == words


@pytest.mark.slow
def test_report_holds_combined_reward_verdicts_and_every_figure(values, tmp_path):
    sweeps = {"payoff": {"setting": "payoff", "arms": ["cooperative", "independent"]}}
    results = made_up_results(values, sweeps=sweeps)
    results["runs"][0]["collapsed_at"] = {"llm_1": 10, "llm_2": None}
    page = report.write_report(results, tmp_path, ["independent/relay/seed-9 failed: <reason>"])
    text, markdown = page.read_text("utf-8"), (tmp_path / "report.md").read_text("utf-8")
    assert text.count("<figure>") == 6
    assert "&lt;reason&gt;" in text
    for shown in (
        "combined_reward",
        "supported",
        "+0.450 (",
        "independent/relay/seed-9 failed",
        "1 of 12",
        "Collapsed: policies with a sign of collapse",
        "Runs of abc; learning version 1.",
        "a processor (12 runs)",
    ):
        assert shown in markdown
    assert "| cooperative | 6 | 0.825\N{NO-BREAK SPACE}\N{PLUS-MINUS SIGN}" in markdown
    for shown in (text, report.markdown(results, figures=["## Learning curves"])):
        last = "How it was made" if shown is text else "Processors"
        places = [shown.index(part) for part in ("Claims", "Arms on", "Learning curves", last)]
        assert places == sorted(places)


def test_figures_have_room_for_the_names_of_many_arms_and_none_for_tasks_without_runs(values, tmp_path):
    arms = {f"arm-{i}": {"payoff": str(i)} for i in range(32)}
    results = made_up_results(values, arms=arms, primary=[], tasks={"relay": {}, "unplayed": {}}, gains=())
    results["runs"] += [made_up_run(arm, 0, 0.5) for arm in arms]
    figure = frontier.draw_frontier(results)
    assert len(figure.axes) == 4  # 32 arms, 9 at most in a panel
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns where a legend leaves its axes no room
        figure.savefig(tmp_path / "frontier.png")
    for axes in figure.axes:
        assert axes.get_title() == "relay"
        assert axes.get_window_extent().height > 200


def test_report_lists_the_settings_of_each_arm_and_what_they_share(values):
    arms = {"a": {"payoff": "independent"}, "b": {"algorithm": "grpo"}, "c": {}}
    table = report.settings_table(made_up_results(values, arms=arms, primary=[], gains=()))
    assert table.rows == [["a", "payoff=independent"], ["b", "algorithm=grpo"], ["c", "-"]]
    assert "seats=2" in table.note
    assert "payoff" not in table.note


def test_report_names_every_processor_with_its_number_of_runs(values):
    results = made_up_results(values)
    for run in results["runs"]:
        run["processor"] = "A" if run["seed"] else "B"
    assert "Processors: B (2 runs), A (10 runs)." in report.origin(results)


def test_claims_whose_arms_lack_runs_are_named_below_the_heading_and_in_the_summary(values):
    results = made_up_results(values)
    results["runs"] = [run for run in results["runs"] if run["arm"] == "cooperative"]
    results = analysis.analyse(results)
    assert all(line.startswith("without runs: ") for line in report.verdict_lines(results))
    claims = report.result_tables(results)[0]
    declared = "; ".join(f"{row['claim']} (relay)" for row in results["statistics"])
    assert (claims.rows, claims.note) == ([], f"Declared, without runs yet: {declared}.")
    text = report.markdown(results)
    assert "| claim |" not in text
    assert "Without runs: independent." in text
