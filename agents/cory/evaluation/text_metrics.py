"""What is said of answers beside their scores: diversity, repetition, pass@k. Plain functions of texts, ids
and numbers.

Every quantity is given as one number per query whose mean it is, so that intervals and paired differences are
those of a mean, whatever the quantity. Where a quantity belongs to a whole set of answers (a ratio of sums,
distinct-n), the numbers are `influences`.

Shapes: Q queries, S samples (responses to a query).
"""

from collections.abc import Sequence
from itertools import pairwise
from math import comb

import numpy as np

Gram = tuple[str, ...]


def influences(value: float, without_Q: np.ndarray) -> np.ndarray:
    """How much each query has to do with `value`: v + (Q - 1) (mean of without - without_i); their mean is v.

    `without_Q[i]` is the quantity of all queries but i: the jackknife's influence values (Efron and
    Tibshirani 1993, section 21.3). For a mean they are the numbers it is the mean of. A plain bootstrap would
    draw some texts twice, and texts drawn twice make distinct-n fall by construction.
    """
    influences_Q: np.ndarray = value + (len(without_Q) - 1) * (without_Q.mean() - without_Q)
    return influences_Q


def ratio(above_Q: np.ndarray, below_Q: np.ndarray) -> np.ndarray:
    """Influences on the ratio of two sums, such as nats per token."""
    above, below = above_Q.sum(), below_Q.sum()
    if len(above_Q) < 2:
        return np.full(len(above_Q), above / below)
    return influences(float(above / below), (above - above_Q) / (below - below_Q))


def perplexity(nats_Q: np.ndarray, tokens_Q: np.ndarray) -> np.ndarray:
    """Influences on exp(all nats / all tokens)."""
    nats, tokens = nats_Q.sum(), tokens_Q.sum()
    if len(nats_Q) < 2:
        return np.full(len(nats_Q), np.exp(nats / tokens))
    return influences(float(np.exp(nats / tokens)), np.exp((nats - nats_Q) / (tokens - tokens_Q)))


def distinct(texts: Sequence[str], n: int) -> np.ndarray:
    """Influences on distinct-n: different n-grams of words over all n-grams of all texts (Li et al. 2016).

    Without any n-gram it is 0. It falls as texts are added: compare it between equally many only.
    """
    rows = [ngrams(text, n) for text in texts]
    owner: dict[Gram, int] = {}
    for i, grams in enumerate(rows):
        for gram in grams:
            owner[gram] = i if owner.get(gram, i) == i else -1  # -1: of several texts
    count_Q = np.array([len(grams) for grams in rows])
    own_Q = np.bincount([i for i in owner.values() if i >= 0], minlength=len(rows))
    value = len(owner) / max(1, count_Q.sum())
    if len(rows) < 2:
        return np.full(len(rows), value)
    return influences(value, (len(owner) - own_Q) / np.maximum(1, count_Q.sum() - count_Q))


def ngrams(text: str, n: int) -> list[Gram]:
    """The n-grams of the words of `text` in lower case, in order; words are what white space parts."""
    words = text.lower().split()
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]


def repetition(ids: Sequence[int]) -> float:
    """Share of the token pairs of one response that occurred in it before (Welleck et al. 2020, with n = 2).

    1 - different pairs / pairs; 0 where there is no pair. Give the ids without EOS.
    """
    pairs = list(pairwise(ids))
    return 1 - len(set(pairs)) / len(pairs) if pairs else 0.0


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """1 - C(n - c, k) / C(n, k): whether one of k responses is correct, estimated without bias from n of
    which c are (Chen et al. 2021, eq. 1)."""
    if not 1 <= k <= samples or not 0 <= correct <= samples:
        raise ValueError(
            f"pass@{k} of {samples} samples, {correct} of them correct; k goes from 1 to the samples"
        )
    return 1 - comb(samples - correct, k) / comb(samples, k)


def passes(score_QS: np.ndarray, threshold: float | None) -> np.ndarray | None:
    """Which responses are correct: those that score `threshold` or more.

    Without a threshold, those that score 1 where every score is 0 or 1, and None where some are not.
    """
    if threshold is not None:
        return score_QS >= threshold
    return score_QS == 1 if np.isin(score_QS, (0, 1)).all() else None


def overlap(ours: str, theirs: str) -> float:
    """Jaccard overlap of two texts: words and word pairs in both, over those in either; 1 where both are
    empty."""
    a, b = ({*ngrams(text, 1), *ngrams(text, 2)} for text in (ours, theirs))
    return len(a & b) / len(a | b) if a | b else 1.0


def diversity(ours_QS: Sequence[Sequence[str]], theirs_QS: Sequence[Sequence[str]]) -> dict[str, np.ndarray]:
    """How differently two policies answer the same queries, per query.

    `differing`: the share of responses that are not the same text. `ngram_distance`: 1 - `overlap`, mean over
    samples. Both policies face the same chance, so that equal weights give 0 in both.
    """
    pairs = [list(zip(ours, theirs, strict=True)) for ours, theirs in zip(ours_QS, theirs_QS, strict=True)]
    return {
        "differing": np.array([np.mean([a != b for a, b in of_query]) for of_query in pairs]),
        "ngram_distance": np.array([np.mean([1 - overlap(a, b) for a, b in of_query]) for of_query in pairs]),
    }
