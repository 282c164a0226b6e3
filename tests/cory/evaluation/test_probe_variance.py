"""Nested variance components: a case worked by hand, and simulated scores with known components.

Q queries, P pioneer responses to a query, R observer responses to each.
"""

import math

import numpy as np
import pytest

from cory.evaluation.bootstrap import resampled
from cory.evaluation.probe import components

# Query 0: pioneer responses with the scores (0, 2) and (4, 6). Variances of the pairs 2 and 2, so
# observer_0 = 2; means 1 and 5, of variance 8, so pioneer_0 = 8 - 2/2 = 7.
# Query 1: (1, 1) and (1, 3). Variances 0 and 2, so observer_1 = 1; means 1 and 2, of variance 1/2, so
# pioneer_1 = 1/2 - 1/2 = 0.
# observer = 1.5, pioneer = 3.5. Queries' means 3 and 1.5, of variance 1.125, so
# query = 1.125 - 3.5/2 - 1.5/4 = -1.
BY_HAND = np.array([[[0, 2], [4, 6]], [[1, 1], [1, 3]]], dtype=float)


def simulated(rng, *shape, query=1.0, pioneer=1.0, observer=1.0):
    """Normal scores with these components."""
    Q, P, _ = shape
    scores = rng.normal(5, math.sqrt(query), (Q, 1, 1)) + rng.normal(0, math.sqrt(pioneer), (Q, P, 1))
    return scores + rng.normal(0, math.sqrt(observer), shape)


def test_components_of_a_case_worked_by_hand():
    found = components(BY_HAND)
    values = {name: estimate.value for name, estimate in found.items()}
    assert values == pytest.approx({"query": -1.0, "pioneer": 3.5, "observer": 1.5, "pioneer_share": 0.7})
    assert all(math.isnan(estimate.low) for estimate in found.values())  # two queries give no interval


def test_simulated_components_are_found_and_lie_in_their_intervals():
    truth = {"query": 4.0, "pioneer": 1.0, "observer": 0.25, "pioneer_share": 0.8}
    scores = simulated(np.random.default_rng(1), 400, 4, 4, query=4, pioneer=1, observer=0.25)
    for name, estimate in components(scores).items():
        assert estimate.low < truth[name] < estimate.high
        assert estimate.value == pytest.approx(truth[name], rel=0.2)
        assert estimate.high - estimate.low < 0.5 * truth[name]


def test_estimates_are_unbiased_and_negative_half_of_the_time_where_the_pioneer_causes_nothing():
    rng = np.random.default_rng(2)
    made = [components(simulated(rng, 6, 3, 2, query=0.5, pioneer=0, observer=2)) for _ in range(800)]
    for name, truth in {"query": 0.5, "pioneer": 0.0, "observer": 2.0}.items():
        values = np.array([found[name].value for found in made])
        assert values.mean() == pytest.approx(truth, abs=4 * values.std() / math.sqrt(len(values)))
    assert 0.4 < np.mean([found["pioneer"].value < 0 for found in made]) < 0.7


def test_intervals_of_the_pioneers_share_hold_the_truth_about_as_often_as_they_say():
    rng = np.random.default_rng(3)
    held = 0
    for _ in range(60):
        share = components(simulated(rng, 40, 3, 3, pioneer=1, observer=3))["pioneer_share"]
        held += share.low <= 0.25 <= share.high
    assert held >= 51  # of 60; 57 expected, 51 is the 1 % quantile of a coverage of 0.95


def test_a_share_of_no_variance_is_not_defined():
    found = components(np.broadcast_to(np.arange(10.0)[:, None, None], (10, 2, 2)))
    assert math.isnan(found["pioneer_share"].value)
    assert (found["pioneer"].value, found["observer"]) == (0, (0, 0, 0))
    assert found["query"].value == pytest.approx(110 / 12)  # variance of 0 to 9


def test_intervals_draw_the_same_queries_of_every_array():
    values_Q = np.random.default_rng(0).normal(size=20)
    difference = resampled(lambda a, b, axis=-1: (a - b).mean(axis), values_Q + 3, values_Q)
    assert difference == pytest.approx((3, 3, 3))
