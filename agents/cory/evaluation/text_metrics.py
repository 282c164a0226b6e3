"""Text metrics: distinct-n, repetition, perplexity, pass@k, overlap of two texts.

Every quantity is returned as one number per query whose mean is the quantity, so that intervals and paired
differences are those of a mean. For a quantity of a whole set of responses (a ratio of sums, distinct-n) the
numbers are its `influences`.

Shapes: Q queries, S samples (responses to a query).
"""

from collections.abc import Sequence
from itertools import pairwise
from math import comb, inf
from typing import NamedTuple

import numpy as np

Gram = tuple[str, ...]


class Bounds(NamedTuple):
    """The range of a quantity."""

    low: float
    high: float


UNBOUNDED = Bounds(-inf, inf)
SHARES = (
    *("accuracy", "honesty", "belief", "probability"),
    *("eos_share", "repetition", "distinct_1", "distinct_2"),
)
"""Quantities from 0 to 1, beside pass@k."""

POSITIVE = ("kl", "kl_per_token", "length")
INFLUENCES = ("kl_per_token", "reference_perplexity", "distinct_1", "distinct_2")
"""Quantities of a whole set of responses, whose numbers per query are influences."""


def bounds(quantity: str) -> Bounds:
    """The range of a quantity by its name; no bounds for other names, such as rewards."""
    if quantity in SHARES or quantity.startswith("pass_at_"):
        return Bounds(0, 1)
    if quantity == "reference_perplexity":
        return Bounds(1, inf)
    return Bounds(0, inf) if quantity in POSITIVE else UNBOUNDED


def difference_bounds(quantity: str) -> Bounds:
    """The range of the difference of two values of a quantity: -1 to 1 for shares."""
    return Bounds(-1, 1) if bounds(quantity) == (0, 1) else UNBOUNDED


def influences(value: float, without_Q: np.ndarray) -> np.ndarray:
    """The jackknife influence of each query on `value`: v + (Q - 1) (mean of without - without_i).

    Their mean is v. `without_Q[i]` is the quantity of all queries but i (Efron and Tibshirani 1993, section
    21.3). The influences on a mean are the averaged numbers themselves. A bootstrap over texts would draw
    some texts twice, and duplicates lower distinct-n by construction.
    """
    influences_Q: np.ndarray = value + (len(without_Q) - 1) * (without_Q.mean() - without_Q)
    return influences_Q


def ratio(numerator_Q: np.ndarray, denominator_Q: np.ndarray) -> np.ndarray:
    """The influences on the ratio of two sums, such as nats per token."""
    numerator, denominator = numerator_Q.sum(), denominator_Q.sum()
    if len(numerator_Q) < 2:
        return np.full(len(numerator_Q), numerator / denominator)
    without_Q = (numerator - numerator_Q) / (denominator - denominator_Q)
    return influences(float(numerator / denominator), without_Q)


def perplexity(nats_Q: np.ndarray, tokens_Q: np.ndarray) -> np.ndarray:
    """The influences on exp(all nats / all tokens)."""
    nats, tokens = nats_Q.sum(), tokens_Q.sum()
    if len(nats_Q) < 2:
        return np.full(len(nats_Q), np.exp(nats / tokens))
    return influences(float(np.exp(nats / tokens)), np.exp((nats - nats_Q) / (tokens - tokens_Q)))


def distinct(texts: Sequence[str], n: int) -> np.ndarray:
    """The influences on distinct-n: distinct n-grams of words over all n-grams (Li et al. 2016).

    Without any n-gram it is 0. It falls as texts are added: compare it between equal numbers of texts only.
    """
    rows = [ngrams(text, n) for text in texts]
    owner: dict[Gram, int] = {}
    for i, grams in enumerate(rows):
        for gram in grams:
            owner[gram] = i if owner.get(gram, i) == i else -1  # -1: in several texts
    count_Q = np.array([len(grams) for grams in rows])
    own_Q = np.bincount([i for i in owner.values() if i >= 0], minlength=len(rows))
    value = len(owner) / max(1, count_Q.sum())
    if len(rows) < 2:
        return np.full(len(rows), value)
    return influences(value, (len(owner) - own_Q) / np.maximum(1, count_Q.sum() - count_Q))


def ngrams(text: str, n: int) -> list[Gram]:
    """The n-grams of the words of `text` in lower case, in order; white space separates words."""
    words = text.lower().split()
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]


def repetition(ids: Sequence[int]) -> float:
    """The share of token pairs of a response that repeat an earlier one (Welleck et al. 2020, n = 2).

    1 - distinct pairs / pairs; 0 without any pair. Pass the ids without EOS.
    """
    pairs = list(pairwise(ids))
    return 1 - len(set(pairs)) / len(pairs) if pairs else 0.0


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """1 - C(n - c, k) / C(n, k): the unbiased estimate of pass@k (Chen et al. 2021, eq. 1).

    pass@k is the probability that at least one of k responses is correct; c of n samples are correct.
    """
    return 1 - comb(samples - correct, k) / comb(samples, k)


def jaccard(ours: str, theirs: str) -> float:
    """The Jaccard index of the words and word pairs of two texts; 1 if both are empty."""
    a, b = ({*ngrams(text, 1), *ngrams(text, 2)} for text in (ours, theirs))
    return len(a & b) / len(a | b) if a | b else 1.0
