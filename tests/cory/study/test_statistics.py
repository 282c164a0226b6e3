"""Statistics of studies against literals, other libraries, and simulations with known coverage."""

import math

import numpy as np
import pytest
from scipy import stats

from cory.study import statistics
from cory.study.statistics import Interval


def test_iqm_of_four_values_is_the_mean_of_the_middle_two():
    assert statistics.iqm(np.array([100.0, 2.0, 4.0, -7.0])) == pytest.approx(3.0)


def test_iqm_weighs_values_that_lie_half_inside_the_quartiles():
    # Five values of weight .2: [.25, .75] holds .15 of the second, .2 of the third, .15 of the fourth.
    assert statistics.iqm(np.array([0.0, 1.0, 2.0, 5.0, 90.0])) == pytest.approx(
        (0.15 * 1 + 0.2 * 2 + 0.15 * 5) / 0.5
    )


def test_iqm_equals_the_trimmed_mean_where_a_quarter_is_whole():
    values = np.random.default_rng(0).normal(size=(3, 12))
    assert statistics.iqm(values, axis=1) == pytest.approx(stats.trim_mean(values, 0.25, axis=1))


def test_sign_flip_p_of_three_equal_signs_is_two_of_eight():
    assert statistics.sign_flip_p([1.0, 2.0, 3.0]) == 2 / 8


def test_sign_flip_p_counts_every_assignment_as_far_from_zero():
    # Sums of +-1 +-2 +-4: 7, 5, 3, 1 and their negatives; -1 + 2 + 4 = 5 is reached by 4 of 8.
    assert statistics.sign_flip_p([-1.0, 2.0, 4.0]) == 4 / 8


def test_sign_flip_p_of_no_difference_is_one():
    assert statistics.sign_flip_p([0.0, 0.0, 0.0]) == 1.0
    assert math.isnan(statistics.sign_flip_p([]))


@pytest.mark.parametrize("n", [6, 10])
def test_sign_flip_p_is_scipys_paired_permutation_test(n):
    differences = np.random.default_rng(n).normal(0.5, 1, n)
    oracle = stats.permutation_test(
        (differences, np.zeros(n)),
        lambda x, y: np.mean(x - y),
        permutation_type="samples",
        n_resamples=np.inf,
    )
    assert statistics.sign_flip_p(differences) == pytest.approx(oracle.pvalue)


def test_random_signs_come_close_to_all_signs():
    differences = np.random.default_rng(3).normal(0.4, 1, 16)
    signs = 1 - 2 * ((np.arange(2**16)[:, None] >> np.arange(16)) & 1)
    every = np.mean(np.abs(signs @ differences) >= abs(differences.sum()) - 1e-9)
    assert statistics.sign_flip_p(differences) == pytest.approx(every, abs=0.01)


def test_holm_multiplies_the_smallest_by_the_number_of_tests_and_never_falls():
    # .01 x 4, .02 x 3, max(.03 x 2, .06), .5 x 1
    assert statistics.holm([0.5, 0.01, 0.03, 0.02]) == pytest.approx([0.5, 0.04, 0.06, 0.06])


def test_holm_is_one_at_most_and_counts_tests_that_are_still_to_come():
    adjusted = statistics.holm([0.6, math.nan, 0.1])
    assert adjusted == pytest.approx([1.0, math.nan, 0.3], nan_ok=True)


def test_improvement_is_the_share_of_seeds_with_wilsons_interval():
    share, interval = statistics.improvement([1.0, 2.0, -1.0, 0.5, 0.0, 0.0, 3.0, 1.0])
    oracle = stats.binomtest(6, 8).proportion_ci(method="wilson")  # 5 above, 2 ties count one
    assert share == 6 / 8
    assert interval == pytest.approx((oracle.low, oracle.high))


def test_effect_is_the_mean_in_standard_deviations_with_hedges_correction():
    # mean 2, sd 1, n = 3: 2 x (1 - 3 / 7)
    assert statistics.effect([1.0, 2.0, 3.0]) == pytest.approx(2 * 4 / 7)
    assert math.isnan(statistics.effect([2.0, 2.0, 2.0]))


def test_seeds_needed_are_those_of_the_t_test_in_cohens_table():
    # Cohen: a paired t-test at 5 % two-sided finds half a standard deviation with 80 % power from n = 34.
    differences = np.tile([-1.0, 1.0], 5) / np.std(np.tile([-1.0, 1.0], 5), ddof=1)
    assert statistics.seeds_needed(differences, 0.5) == 34 - 10  # 0 is half a deviation from the margin
    assert statistics.seeds_needed(differences + 0.2, 0.7) == 34 - 10
    assert statistics.seeds_needed(differences - 0.2, 0.7, "lower") == 34 - 10
    assert statistics.seeds_needed([1.0, 1.0, 1.0], 0.5) == 2  # five for any verdict
    assert statistics.seeds_needed([1.0] * 5, 0.5) == 0
    # Equal takes both ends: 80 % for two ends that are as far is 90 % for each, n = 44 in the same table.
    assert statistics.seeds_needed(differences, 0.5, "equal") == 44 - 10


def test_no_number_of_seeds_decides_a_difference_as_large_as_the_margin():
    differences = np.tile([-1.0, 1.0], 5)
    assert statistics.seeds_needed(differences, 0.0) is None
    assert statistics.seeds_needed(differences + 0.3, 0.31) is None
    assert statistics.seeds_needed([0.5, 0.5, 0.5], 0.5) is None
    assert statistics.seeds_needed([1.0, 1.0], 0.5) is None


@pytest.mark.parametrize(
    ("low", "high", "result"),
    [
        (-0.01, 0.01, "supported"),
        (-0.03, 0.01, "undecided"),
        (0.01, 0.03, "undecided"),
        (-0.02, 0.02, "supported"),
        (0.021, 0.05, "refuted"),
        (-0.05, -0.021, "refuted"),
        (math.nan, math.nan, "undecided"),
    ],
)
def test_equal_is_supported_inside_of_the_margins_and_refuted_outside(low, high, result):
    assert statistics.verdict(statistics.Interval(low, high), 0.02, "equal") == result


def test_power_of_seeds_needed_holds_in_simulation():
    normal = np.random.default_rng(0).normal(0.5, 1, size=(4000, 34))
    assert (stats.ttest_1samp(normal, 0, axis=1).pvalue < 0.05).mean() == pytest.approx(0.8, abs=0.025)


@pytest.mark.parametrize(("statistic", "low", "high"), [("mean", 0.88, 0.98), ("iqm", 0.88, 0.98)])
def test_bca_intervals_of_twenty_runs_cover_the_truth_as_often_as_stated(statistic, low, high):
    rng = np.random.default_rng(0)
    samples = rng.normal(0.3, 1, size=(200, 20))
    intervals = [statistics.bca(sample, statistic, resamples=500) for sample in samples]
    assert low <= np.mean([one.low <= 0.3 <= one.high for one in intervals]) <= high


def test_bca_interval_leans_to_the_long_tail():
    sample = np.random.default_rng(0).exponential(size=20)
    interval = statistics.bca(sample)
    assert interval.high - sample.mean() > sample.mean() - interval.low


def test_bca_of_degenerate_samples():
    assert statistics.bca([0.25] * 6) == (0.25, 0.25)
    assert all(map(math.isnan, statistics.bca([1.0, 2.0, 3.0, 4.0])))
    assert all(map(math.isnan, statistics.bca([1.0, 2.0, 3.0, 4.0, math.nan])))
    low, high = statistics.bca([0.0, 0.0, 0.0, 0.0, 1.0])
    assert 0.0 <= low <= high <= 1.0


def test_false_verdicts_are_rare_where_nothing_differs():
    rng = np.random.default_rng(2)
    verdicts = [
        statistics.verdict(statistics.bca(rng.normal(0, 1, 10), resamples=500), 0.5) for _ in range(200)
    ]
    assert verdicts.count("supported") <= 4


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        ((0.11, 0.3), "supported"),
        ((0.05, 0.3), "undecided"),
        ((-0.02, 0.1), "refuted"),
        ((-0.5, -0.2), "refuted"),
        ((math.nan, math.nan), "undecided"),
    ],
)
def test_verdict_compares_the_whole_interval_with_the_margin(interval, expected):
    assert statistics.verdict(Interval(*interval), 0.1) == expected


def test_hypervolume_is_the_area_below_the_pareto_front():
    # Reference point: KL 10, reward 0. (2, 1): 8 x 1. (6, 3): 4 x 2 more. (7, 2) and (11, 9) add nothing.
    assert statistics.hypervolume([2, 6, 7, 11], [1, 3, 2, 9], kl=10, reward=0) == 8 + 8
    assert statistics.hypervolume([12.0], [1.0], kl=10, reward=0) == 0.0


def test_hypervolume_is_that_of_random_points_in_the_box():
    rng = np.random.default_rng(0)
    kl, reward = rng.uniform(0, 1, 12), rng.uniform(0, 1, 12)
    x, y = rng.uniform(0, 1, (2, 100_000))
    inside = ((kl[:, None] <= x) & (reward[:, None] >= y)).any(0).mean()
    assert statistics.hypervolume(kl, reward, kl=1, reward=0) == pytest.approx(inside, abs=0.01)


def test_reward_at_kl_is_linear_between_points_and_never_falls():
    assert statistics.reward_at_kl([0, 2, 4], [0, 1, 3], 3.0) == pytest.approx(2.0)
    # Rewards 3 and 1 at KL 2 and 4 are out of order: the isotonic fit is 2 at both.
    assert statistics.reward_at_kl([4, 0, 2], [1, 0, 3], 3.0) == pytest.approx(2.0)
    assert statistics.reward_at_kl([1, 1, 2], [0, 2, 5], 1.0) == pytest.approx(1.0)
    assert math.isnan(statistics.reward_at_kl([0, 2], [0, 1], 2.5))


def test_area_over_a_log_scale_weighs_each_decade_equally():
    # Trapezoids over log10: (1 + 3) / 2 and (3 + 1) / 2, two decades, in any order.
    assert statistics.area([1e-3, 1e-5, 1e-4], [1, 1, 3], log=True) == pytest.approx(2.0)
    assert statistics.area([0, 1, 3], [0, 2, 2], log=False) == pytest.approx((1 + 4) / 3)


def test_kaplan_meier_by_hand():
    # 5 at risk at 10: 4/5; 3 at risk at 20 (one censored at 15): 4/5 x 2/3; the rest are censored at 30.
    curve = statistics.kaplan_meier([10, 15, 20, 30, 30], [True, False, True, False, False])
    assert curve.times == [0, 10, 20]
    assert curve.shares == pytest.approx([1, 0.8, 0.8 * 2 / 3])
    assert statistics.restricted_mean(curve, 30) == pytest.approx(10 + 8 + 10 * 0.8 * 2 / 3)
    assert statistics.restricted_mean(curve, 15) == pytest.approx(10 + 5 * 0.8)


def test_kaplan_meier_is_scipys():
    rng = np.random.default_rng(0)
    times, happened = rng.integers(1, 20, 40), rng.random(40) < 0.6
    data = stats.CensoredData(uncensored=times[happened], right=times[~happened])
    oracle = stats.ecdf(data).sf
    curve = statistics.kaplan_meier(times.tolist(), happened.tolist())
    assert curve.shares[1:] == pytest.approx(oracle.evaluate(curve.times[1:]))


FREIREICH = {
    "6-MP": [6, 6, 6, 6, 7, 9, 10, 10, 11, 13, 16, 17, 19, 20, 22, 23, 25, 32, 32, 34, 35],
    "placebo": [1, 1, 2, 2, 3, 4, 4, 5, 5, 8, 8, 8, 8, 11, 11, 12, 12, 15, 17, 22, 23],
}
"""Weeks of remission from leukemia of 21 pairs of patients (Freireich et al. 1963), sorted."""
RELAPSED = {
    "6-MP": [True] * 3
    + [False, True, False, True, False, False, True, True]
    + [False] * 3
    + [True, True]
    + [False] * 5,
    "placebo": [True] * 21,
}


def alone(values):
    """Runs of one policy each."""
    return [[value] for value in values]


def test_log_rank_scores_are_observed_less_expected_relapses_of_the_leukemia_trial():
    """The table of R's survdiff: 9 relapses and 19.3 expected with 6-MP, 21 and 10.7 with placebo."""
    times = FREIREICH["6-MP"] + FREIREICH["placebo"]
    scores = statistics.log_rank_scores(times, RELAPSED["6-MP"] + RELAPSED["placebo"])
    assert scores[:21].sum() == pytest.approx(9 - 19.25, abs=0.005)
    assert scores[21:].sum() == pytest.approx(21 - 10.75, abs=0.005)


def test_log_rank_p_is_small_where_the_published_test_is():
    """Chi-squared 16.8, p = 4.2e-5; of 20,000 random exchanges fewer than 5 are as far from zero."""
    p = statistics.log_rank_p(
        (alone(FREIREICH["6-MP"]), alone(FREIREICH["placebo"])),
        (alone(RELAPSED["6-MP"]), alone(RELAPSED["placebo"])),
    )
    assert 1 / 20_001 <= p < 5 / 20_000


def test_log_rank_p_by_hand():
    # Hazards 1/6, 1/5, 1/4 at 10, 20, 30. Scores of the arm: 5/6, 1 - 11/30, 1 - 37/60, of the baseline three
    # times -37/60: all three differences have the same sign, two of the eight exchanges.
    times, happened = (alone([10, 20, 30]), alone([40] * 3)), (alone([True] * 3), alone([False] * 3))
    assert statistics.log_rank_p(times, happened) == pytest.approx(2 / 8)
    scores = statistics.log_rank_scores([10, 20, 30, 40, 40, 40], [True] * 3 + [False] * 3)
    assert scores == pytest.approx([5 / 6, 19 / 30, 23 / 60, -37 / 60, -37 / 60, -37 / 60])


def test_log_rank_p_without_collapse_is_one():
    assert statistics.log_rank_p(([[5], [5]], [[5], [5]]), ([[False]] * 2, [[False]] * 2)) == 1.0
    assert math.isnan(statistics.log_rank_p(([], []), ([], [])))


def test_runs_with_more_policies_are_not_the_earlier_for_it():
    """Two policies that collapse as the one of the other arm does."""
    one, two = [[10], [20], [30]], [[10, 10], [20, 20], [30, 30]]
    happened = [[True], [True], [False]], [[True] * 2, [True] * 2, [False] * 2]
    assert statistics.log_rank_p((one, two), happened) == 1.0


def test_log_rank_p_of_many_runs_is_scipys():
    """With many pairs the exchanges agree with the normal approximation."""
    rng = np.random.default_rng(1)
    times = [rng.exponential(scale, 60) for scale in (1.0, 0.75)]
    happened = [rng.random(60) < 0.8 for _ in times]
    data = [stats.CensoredData(uncensored=t[e], right=t[~e]) for t, e in zip(times, happened, strict=True)]
    oracle = stats.logrank(*data)
    assert 0.01 < oracle.pvalue < 0.5
    p = statistics.log_rank_p(tuple(map(alone, times)), tuple(map(alone, happened)))
    assert p == pytest.approx(oracle.pvalue, abs=0.02)


def test_restricted_mean_without_censoring_is_the_mean_of_cut_times():
    times = [3, 8, 12, 40]
    curve = statistics.kaplan_meier(times, [True] * 4)
    assert statistics.restricted_mean(curve, 20) == pytest.approx((3 + 8 + 12 + 20) / 4)
