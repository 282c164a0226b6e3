"""Statistics of studies against literals and simulations with known coverage."""

import math

import numpy as np
import pytest

from cory.study import statistics
from cory.study.statistics import Interval


@pytest.mark.parametrize("runs", [5, 10])
def test_intervals_of_few_runs_hold_the_true_mean_as_often_as_stated(runs):
    """2,000 samples of normal differences; a binomial share of 0.95 lies in these bounds with 0.98."""
    samples = np.random.default_rng(runs).normal(0.3, 1, size=(runs, 2000))
    low, high = statistics.interval(samples)
    assert 0.94 <= np.mean((low <= 0.3) & (high >= 0.3)) <= 0.97


def test_interval_of_five_runs_is_the_mean_and_2_776_standard_errors():
    # Mean 3, sd sqrt(2.5), n = 5; the 97.5 % quantile of t with 4 degrees of freedom is 2.7764 (any table).
    half = 2.7764 * math.sqrt(2.5 / 5)
    assert statistics.interval([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx((3 - half, 3 + half), abs=1e-4)


def test_interval_of_paired_differences_is_narrower_than_that_of_unpaired_runs():
    seeds = np.array([0.0, 1.0, 2.0, 3.0, 4.0])
    d = statistics.interval((seeds + 0.5 + 0.01 * np.array([1, -1, 0, 1, -1])) - seeds)
    assert d.low > 0.48
    assert d.high < 0.52


def test_intervals_of_several_samples_are_those_of_each():
    samples = np.random.default_rng(0).normal(size=(6, 3))
    low, high = statistics.interval(samples)
    assert [(low[i], high[i]) for i in range(3)] == [
        pytest.approx(statistics.interval(samples[:, i])) for i in range(3)
    ]


def test_interval_of_too_few_or_missing_values_does_not_exist_and_of_equal_ones_is_their_value():
    assert statistics.interval([0.25] * 6) == (0.25, 0.25)
    assert all(map(math.isnan, statistics.interval([])))
    assert all(map(math.isnan, statistics.interval([1.0, 2.0, 3.0, 4.0])))
    assert all(map(math.isnan, statistics.interval([1.0, 2.0, 3.0, 4.0, math.nan])))


def test_false_verdicts_are_one_in_forty_where_the_difference_is_the_margin():
    low, high = statistics.interval(np.random.default_rng(2).normal(0.5, 1, size=(5, 4000)))
    verdicts = [statistics.verdict(Interval(*ends), 0.5) for ends in zip(low, high, strict=True)]
    assert verdicts.count("supported") / 4000 == pytest.approx(0.025, abs=0.008)
    assert verdicts.count("refuted") / 4000 == pytest.approx(0.025, abs=0.008)


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


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ((0.11, 0.3), "supported"),
        ((0.05, 0.3), "undecided"),
        ((-0.02, 0.1), "refuted"),
        ((-0.5, -0.2), "refuted"),
        ((math.nan, math.nan), "undecided"),
    ],
)
def test_verdict_compares_the_whole_interval_with_the_margin(ends, expected):
    assert statistics.verdict(Interval(*ends), 0.1) == expected


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
