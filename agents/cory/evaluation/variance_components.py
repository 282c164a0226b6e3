"""Nested variance components of scores, and bootstrap intervals of statistics that are not means.

Shapes: Q queries, P pioneer responses to a query, R observer responses to a pioneer response.
"""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import DegenerateDataWarning, bootstrap

from cory.evaluation.bootstrap import MIN_QUERIES, NONE, RESAMPLES, Estimate

SMALLEST = 1e-12
"""Variances up to this are rounding errors: nothing is divided by them."""

Statistic = Callable[..., Any]
"""A function (arrays [..., Q], axis=-1) -> statistic [...]."""


class PerQuery(NamedTuple):
    """What the components are made of, one number per query [Q]."""

    mean: np.ndarray
    """Mean score."""
    pioneer: np.ndarray
    """Unbiased estimate of the variance that the pioneer's response causes; it can be negative."""
    observer: np.ndarray
    """Unbiased estimate of the variance between observers of the same pioneer response."""


def per_query(scores_QPR: np.ndarray) -> PerQuery:
    """Estimate the components within each query; s^2 is the sample variance.

        observer_q = mean over p of s^2(score_qp1, ..., score_qpR)
        pioneer_q  = s^2(mean score of pioneer response 1, ..., P) - observer_q / R

    ValueError with fewer than two queries, pioneer responses or observer responses.
    """
    if scores_QPR.ndim != 3 or min(scores_QPR.shape) < 2:
        raise ValueError(
            f"scores have shape {scores_QPR.shape}; give [queries, pioneer responses, observer responses] "
            "with 2 or more of each"
        )
    R = scores_QPR.shape[2]
    mean_QP = scores_QPR.mean(2)
    observer_Q = scores_QPR.var(2, ddof=1).mean(1)
    return PerQuery(mean_QP.mean(1), mean_QP.var(1, ddof=1) - observer_Q / R, observer_Q)


def components(scores_QPR: np.ndarray) -> dict[str, Estimate]:
    """Estimate the variance components of the model score_qpo = mean + a_q + b_qp + c_qpo.

    `query` (a), `pioneer` (b, what the pioneer's response causes given the query), `observer` (c, the
    observer's own chance), and `pioneer_share` = b / (b + c), NaN where nothing varies given the query. They
    are those of the nested analysis of variance of balanced data (Searle et al. 1992, section 3.6): unbiased,
    so that components near 0 can be negative. Intervals are bootstrapped over queries.
    """
    found = per_query(scores_QPR)
    _, P, R = scores_QPR.shape
    between = _between(P, R)
    return {
        "query": resampled(between, *found),
        "pioneer": resampled(np.mean, found.pioneer),
        "observer": resampled(np.mean, found.observer),
        "pioneer_share": resampled(_share, found.pioneer, found.observer),
    }


def two_components(scores_QS: np.ndarray) -> dict[str, Estimate]:
    """Estimate `query` and `chance` (within the query) of S scores for each query.

    Unbiased; with intervals over queries.
    """
    if scores_QS.ndim != 2 or scores_QS.shape[1] < 2:
        raise ValueError(f"scores have shape {scores_QS.shape}; give [Q, S] with 2 or more for each query")
    S = scores_QS.shape[1]

    def between(mean_Q: np.ndarray, chance_Q: np.ndarray, axis: int = -1) -> Any:
        return mean_Q.var(axis, ddof=1) - chance_Q.mean(axis) / S

    mean_Q, chance_Q = scores_QS.mean(1), scores_QS.var(1, ddof=1)
    return {"query": resampled(between, mean_Q, chance_Q), "chance": resampled(np.mean, chance_Q)}


def signal_share(advantage_QPR: np.ndarray, signal: str) -> Estimate:
    """Estimate the share of a seat's advantage variance that its own response causes.

    `signal` is the component of the seat, `pioneer` or `observer`. The others are noise in its gradient:
    for a pioneer the query (an imperfect baseline) and the observer's chance; for an observer the query and
    the pioneer's response, which are given before it responds.
    """
    found = per_query(advantage_QPR)
    _, P, R = advantage_QPR.shape
    between = _between(P, R)

    def share(mean_Q: np.ndarray, pioneer_Q: np.ndarray, observer_Q: np.ndarray, axis: int = -1) -> Any:
        parts = {"pioneer": pioneer_Q.mean(axis), "observer": observer_Q.mean(axis)}
        total = between(mean_Q, pioneer_Q, observer_Q, axis) + parts["pioneer"] + parts["observer"]
        return _divided(parts[signal], total)

    return resampled(share, *found)


def resampled(statistic: Statistic, *arrays_Q: np.ndarray, seed: int = 0) -> Estimate:
    """Estimate `statistic(*arrays_Q, axis=-1)` with its 95 % BCa interval over queries.

    Queries are drawn with replacement, the same of every array. NaN for both ends with fewer than
    `MIN_QUERIES` queries or where the statistic of some resamples is not defined.
    """
    value = float(statistic(*arrays_Q, axis=-1))
    if len(arrays_Q[0]) < MIN_QUERIES or not np.isfinite(value):
        return Estimate(value, *NONE)
    with warnings.catch_warnings(), np.errstate(invalid="ignore", divide="ignore"):
        warnings.simplefilter("ignore", DegenerateDataWarning)
        result = bootstrap(
            arrays_Q,
            statistic,
            paired=True,
            vectorized=True,
            n_resamples=RESAMPLES,
            batch=200,
            rng=np.random.default_rng(seed),
        )
    if np.ptp(result.bootstrap_distribution) == 0:
        return Estimate(value, value, value)
    return Estimate(value, float(result.confidence_interval.low), float(result.confidence_interval.high))


def _between(P: int, R: int) -> Statistic:
    """The component of the query: the variance of the queries' means less the chance in them."""

    def between(mean_Q: np.ndarray, pioneer_Q: np.ndarray, observer_Q: np.ndarray, axis: int = -1) -> Any:
        chance = pioneer_Q.mean(axis) / P + observer_Q.mean(axis) / (P * R)
        return mean_Q.var(axis, ddof=1) - chance

    return between


def _share(pioneer_Q: np.ndarray, observer_Q: np.ndarray, axis: int = -1) -> Any:
    pioneer = pioneer_Q.mean(axis)
    return _divided(pioneer, pioneer + observer_Q.mean(axis))


def _divided(part: Any, whole: Any) -> Any:
    """part / whole; NaN where the whole is not above `SMALLEST`."""
    defined = whole > SMALLEST
    return np.where(defined, part / np.where(defined, whole, 1.0), np.nan)
