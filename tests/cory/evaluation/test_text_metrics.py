"""Text metrics, intervals and signs of collapse against closed forms, enumerations, simulations and scipy."""

from itertools import combinations
from math import comb, exp

import numpy as np
import pytest
from scipy.stats import bootstrap

from cory.evaluation import collapse, text_metrics
from cory.evaluation.bootstrap import Estimate, differences, estimates, interval


def test_pass_at_k_by_hand():
    assert text_metrics.pass_at_k(4, 1, 2) == 1 - 3 / 6
    assert text_metrics.pass_at_k(5, 2, 3) == 1 - 1 / 10
    assert text_metrics.pass_at_k(8, 0, 8) == 0
    assert text_metrics.pass_at_k(8, 3, 6) == 1  # 5 wrong ones cannot fill 6 places


def test_pass_at_k_is_the_share_of_subsets_that_hold_a_correct_response():
    for n in range(1, 7):
        for c in range(n + 1):
            for k in range(1, n + 1):
                subsets = list(combinations([True] * c + [False] * (n - c), k))
                share = sum(map(any, subsets)) / len(subsets)
                assert text_metrics.pass_at_k(n, c, k) == pytest.approx(share, abs=1e-15)


def test_pass_at_k_is_unbiased_unlike_the_simple_estimate():
    """Over c ~ Binomial(n, p): the mean is 1 - (1 - p)^k, what k fresh responses give."""
    n, p, k = 8, 0.2, 4
    chance = [comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)]
    ours = sum(chance[c] * text_metrics.pass_at_k(n, c, k) for c in range(n + 1))
    simple = sum(chance[c] * (1 - (1 - c / n) ** k) for c in range(n + 1))
    assert ours == pytest.approx(1 - (1 - p) ** k, abs=1e-12)
    assert simple < ours - 0.02


def test_distinct_n_and_the_influence_of_each_text_by_hand():
    """Bigrams ab ba ab | ba: 2 of 4. Without the first text 1 of 1, without the second 2 of 3, mean 5/6."""
    values = text_metrics.distinct(["A b a B", "b a"], 2)
    assert values == pytest.approx([0.5 + 5 / 6 - 1, 0.5 + 5 / 6 - 2 / 3])
    assert values.mean() == pytest.approx(0.5)
    assert text_metrics.distinct(["a", ""], 2).tolist() == [0, 0]
    assert text_metrics.distinct(["a b a b"], 2).tolist() == [2 / 3]


def test_distinct_without_a_text_is_distinct_of_the_others():
    letters = np.random.default_rng(0)
    texts = [" ".join(letters.choice(list("abcde"), size=n)) for n in letters.integers(0, 6, 12)]
    values = text_metrics.distinct(texts, 2)
    without = [text_metrics.distinct(texts[:i] + texts[i + 1 :], 2).mean() for i in range(12)]
    assert values == pytest.approx(values.mean() + 11 * (np.mean(without) - np.array(without)))


def test_the_interval_of_distinct_n_is_as_wide_as_fresh_texts_scatter():
    """A bootstrap over texts lies below its own value, since texts drawn twice add nothing. Ours does not."""
    chance = np.random.default_rng(0)
    words = np.array([f"w{i}" for i in range(300)])
    odds = 1 / np.arange(1, 301)

    def texts():
        return [" ".join(row) for row in chance.choice(words, size=(200, 8), p=odds / odds.sum())]

    values = [text_metrics.distinct(texts(), 2).mean() for _ in range(60)]
    once = texts()
    once_Q = text_metrics.distinct(once, 2)
    low, high = interval(once_Q)
    assert low < once_Q.mean() < high
    assert (high - low) / 3.92 == pytest.approx(np.std(values), rel=0.35)
    drawn = [text_metrics.distinct(chance.choice(once, 200).tolist(), 2).mean() for _ in range(50)]
    assert max(drawn) < low


def test_repetition_by_hand():
    assert text_metrics.repetition([1, 2, 1, 2]) == 1 - 2 / 3
    assert text_metrics.repetition([7, 7, 7, 7]) == 1 - 1 / 3
    assert text_metrics.repetition([1, 2, 3]) == 0
    assert text_metrics.repetition([7]) == text_metrics.repetition([]) == 0


def test_ratios_are_of_sums_with_the_influence_of_each_query():
    """Nats 1, 5 on tokens 1, 2: 6 / 3. Without the first 5 / 2, without the second 1 / 1, mean 7/4."""
    values = text_metrics.ratio(np.array([1.0, 5.0]), np.array([1.0, 2.0]))
    assert values == pytest.approx([2 + 7 / 4 - 5 / 2, 2 + 7 / 4 - 1])
    values = text_metrics.perplexity(np.array([1.0, 5.0]), np.array([1.0, 2.0]))
    assert values.mean() == pytest.approx(exp(2))
    assert text_metrics.ratio(np.array([3.0]), np.array([2.0])).tolist() == [1.5]
    assert text_metrics.perplexity(np.array([3.0]), np.array([2.0])).tolist() == [exp(1.5)]


def test_influences_on_a_mean_are_its_values():
    values_Q = np.random.default_rng(0).normal(size=9)
    without_Q = (values_Q.sum() - values_Q) / 8
    assert text_metrics.influences(values_Q.mean(), without_Q) == pytest.approx(values_Q)


def test_intervals_of_ratios_are_near_scipys_own_on_the_ratio():
    chance = np.random.default_rng(0)
    tokens_Q = chance.integers(4, 17, 300).astype(float)
    nats_Q = tokens_Q * chance.gamma(9, 0.4, 300)
    for ours_Q, statistic, near in (
        (text_metrics.ratio(nats_Q, tokens_Q), lambda a, b, axis: a.sum(axis) / b.sum(axis), 0.06),
        (
            text_metrics.perplexity(nats_Q, tokens_Q),
            lambda a, b, axis: np.exp(a.sum(axis) / b.sum(axis)),
            0.1,
        ),
    ):
        data = (nats_Q, tokens_Q)
        found = bootstrap(data, statistic, paired=True, n_resamples=2000, rng=np.random.default_rng(1))
        low, high = interval(ours_Q)
        width = found.confidence_interval.high - found.confidence_interval.low
        assert low == pytest.approx(found.confidence_interval.low, abs=near * width)
        assert high == pytest.approx(found.confidence_interval.high, abs=near * width)


def test_intervals_are_scipys():
    values_Q = np.random.default_rng(3).gamma(1.0, size=50)
    found = bootstrap((values_Q,), np.mean, n_resamples=2000, rng=np.random.default_rng(0), method="BCa")
    assert interval(values_Q) == pytest.approx(tuple(found.confidence_interval), abs=1e-12)
    low, high = interval(np.array([0.0, 1.0] * 200))
    assert (low, high) == pytest.approx((0.5 - 1.96 * 0.025, 0.5 + 1.96 * 0.025), abs=0.01)
    assert interval(np.ones(8)) == (1.0, 1.0)
    assert np.isnan(interval(np.ones(7))).all()


def test_paired_differences_show_what_two_intervals_hide():
    """Queries of very different rewards, each better by 1 or 2: the difference is clear, the means not."""
    theirs = np.arange(40.0)
    ours = theirs + np.array([1.0, 2.0] * 20)
    found = differences({"reward": ours, "only ours": ours}, {"reward": theirs})
    assert list(found) == ["reward"]
    assert found["reward"].value == 1.5
    assert 1.3 < found["reward"].low < 1.5 < found["reward"].high < 1.7
    assert interval(ours)[0] < theirs.mean()
    assert estimates({"same": ours - ours})["same"] == Estimate(0.0, 0.0, 0.0)


def test_overlap_of_two_texts_by_hand():
    """Words and pairs a, b, ab beside a, c, ac: 1 of 5 in both."""
    assert text_metrics.jaccard("A b", "a c") == 0.2
    assert text_metrics.jaccard("", "") == 1


FINE = {"distinct_2": 0.9, "repetition": 0.0, "eos_share": 0.5, "length": 10.0, "reference_perplexity": 50.0}


@pytest.mark.parametrize(
    ("quantity", "fine", "alarming"),
    [
        ("distinct_2", 0.46, 0.44),
        ("repetition", 0.09, 0.11),
        ("eos_share", 0.26, 0.24),
        ("length", 5.1, 4.9),
        ("reference_perplexity", 149.0, 151.0),
    ],
)
def test_signs_of_collapse_have_the_bounds_they_state(quantity, fine, alarming):
    assert collapse.signs(FINE | {quantity: fine}, FINE) == []
    (sign,) = collapse.signs(FINE | {quantity: alarming}, FINE)
    assert sign.startswith(f"{quantity} is ")
    assert f"{alarming:.3f}, {FINE[quantity]:.3f}" in sign


def test_a_reference_that_rarely_ends_its_responses_gives_no_sign_about_eos():
    assert collapse.signs(FINE | {"eos_share": 0.0}, FINE | {"eos_share": 0.04}) == []
    assert len(collapse.definitions()) == 5
