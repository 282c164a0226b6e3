"""Intervals stay within the range of their quantity and cover its value in 95 of 100 data sets."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cory.evaluation import text_metrics
from cory.evaluation.bootstrap import MIN_QUERIES, differences, estimates

WORDS = np.array([f"w{i}" for i in range(300)])
ODDS = 1 / np.arange(1, 301)
TEXTS = st.lists(st.text("ab ", max_size=12), min_size=1, max_size=20)
ROWS = st.lists(st.tuples(st.floats(0, 200), st.integers(1, 16)), min_size=1, max_size=20)


def texts(chance, queries, *, words=8, odds=ODDS):
    return [" ".join(row) for row in chance.choice(WORDS, size=(queries, words), p=odds / odds.sum())]


def per_query(sentences, rows):
    """The quantities that are computed from influences, and a share that is a mean."""
    nats_Q, tokens_Q = np.array(rows, dtype=float).T
    return {
        "distinct_1": text_metrics.distinct(sentences, 1),
        "distinct_2": text_metrics.distinct(sentences, 2),
        "kl_per_token": text_metrics.ratio(nats_Q, tokens_Q),
        "reference_perplexity": text_metrics.perplexity(nats_Q, tokens_Q),
        "eos_share": (tokens_Q > 4).astype(float),
        "length": tokens_Q,
    }


@settings(deadline=None, max_examples=60)
@given(TEXTS, ROWS)
def test_no_interval_leaves_the_range_of_its_quantity(sentences, rows):
    for name, estimate in estimates(per_query(sentences, rows)).items():
        if math.isnan(estimate.low):
            assert math.isnan(estimate.high)
            continue
        least, most = (0, 1) if name in text_metrics.SHARES else (0, math.inf)
        assert least <= estimate.low <= estimate.high <= most
        if name in text_metrics.POSITIVE:
            assert estimate.low > 0


@settings(deadline=None, max_examples=40)
@given(TEXTS)
def test_differences_of_shares_stay_between_minus_1_and_1(sentences):
    others = [sentence + " a b a b a b" for sentence in sentences]
    ours, theirs = ({"distinct_2": text_metrics.distinct(of, 2)} for of in (sentences, others))
    found = differences(ours, theirs)["distinct_2"]
    assert math.isnan(found.low) or -1 <= found.low <= found.high <= 1


def test_distinct_2_near_1_has_an_interval_up_to_1():
    """Two of 12 texts have the same 2 bigrams, 24 - 2 of 24 are distinct: the bootstrap ends above 1."""
    sentences = [f"a{i} b{i} c{i}" for i in range(11)] + ["a0 b0 c0"]
    influences_Q = text_metrics.distinct(sentences, 2)
    found = estimates({"distinct_2": influences_Q, "influences": influences_Q})
    assert found["distinct_2"].value == pytest.approx(22 / 24)
    assert found["influences"].high > 1
    assert 0.3 < found["distinct_2"].low < 22 / 24 < found["distinct_2"].high <= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("queries", "words", "odds"),
    [(12, 8, ODDS), (50, 8, ODDS), (50, 12, ODDS**2), (120, 8, ODDS)],
    ids=["12 queries, near 1", "50 queries", "few words", "120 queries"],
)
def test_the_interval_of_distinct_2_covers_its_expectation(queries, words, odds):
    """The expectation is the mean over 600 other sets of as many texts."""
    chance = np.random.default_rng(0)

    def influences():
        return text_metrics.distinct(texts(chance, queries, words=words, odds=odds), 2)

    expected = np.mean([influences().mean() for _ in range(600)])
    covered = [
        found.low <= expected <= found.high
        for found in (estimates({"distinct_2": influences()})["distinct_2"] for _ in range(300))
        if not math.isnan(found.low)
    ]
    assert len(covered) > 280
    assert 0.9 <= np.mean(covered) <= 0.98


@pytest.mark.parametrize("name", ["kl_per_token", "reference_perplexity"])
@pytest.mark.parametrize("shape", [0.5, 2.0], ids=["skewed", "mild"])
def test_intervals_of_ratios_cover_the_ratio_of_expectations(name, shape):
    """Nats per token are a gamma variable of mean 1, at any length: the ratio is 1, the perplexity e."""
    chance = np.random.default_rng(2)
    compute = {"kl_per_token": text_metrics.ratio, "reference_perplexity": text_metrics.perplexity}[name]
    truth = {"kl_per_token": 1.0, "reference_perplexity": math.e}[name]
    covered = []
    for _ in range(300):
        tokens_Q = chance.integers(4, 17, 60).astype(float)
        found = estimates({name: compute(tokens_Q * chance.gamma(shape, 1 / shape, 60), tokens_Q)})[name]
        covered.append(found.low <= truth <= found.high)
    assert 0.9 <= np.mean(covered) <= 0.98


@pytest.mark.parametrize(
    ("name", "value"),
    [("accuracy", 1.0), ("eos_share", 0.0), ("pass_at_4", 1.0), ("kl", 0.0), ("reference_perplexity", 1.0)],
)
def test_a_value_at_the_edge_of_its_range_has_no_interval(name, value):
    found = estimates({name: np.full(40, value)})[name]
    assert found.value == value
    assert math.isnan(found.low)
    assert math.isnan(found.high)


def test_fewer_than_8_queries_have_no_interval():
    values_Q = np.arange(MIN_QUERIES - 1.0)
    assert math.isnan(estimates({"task_reward": values_Q})["task_reward"].low)
    assert estimates({"task_reward": np.append(values_Q, 9.0)})["task_reward"].low > 0
