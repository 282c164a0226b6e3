"""What two seats do to each other: measures of a probe's games, as estimates with intervals over queries.

Shapes: Q queries, P pioneer responses to a query, R observer responses to a pioneer response.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from cory.evaluation.bootstrap import Estimate, estimates, resampled
from cory.evaluation.probe_games import OBSERVER, ProbeGames
from cory.evaluation.text_metrics import jaccard

SMALLEST = 1e-12
"""Variances up to this are rounding errors: nothing is divided by them."""

Estimates = dict[str, Estimate]


def influence(games: ProbeGames) -> Estimates:
    """Estimate the `components` of the observer's score and its `slope` on the pioneer's."""
    observer_QPR = games.observer_scores["own"]
    return {**components(observer_QPR), "slope": slope(games.pioneer_scores_QP, observer_QPR)}


def components(scores_QPR: np.ndarray) -> Estimates:
    """Estimate the variance components of the observer's score_qpo = mean + a_q + b_qp + c_qpo.

    `query` (a), `pioneer` (b, what the pioneer's response causes given the query), `observer` (c, the
    observer's own chance), and `pioneer_share` = b / (b + c), NaN where nothing varies given the query.
    With s^2 the sample variance, within each query

        observer_q = mean over p of s^2(score_qp1, ..., score_qpR)
        pioneer_q  = s^2(mean score of pioneer response 1, ..., P) - observer_q / R

    as in the nested analysis of variance of balanced data (Searle et al. 1992, section 3.6): unbiased, so
    that components near 0 can be negative. Q, P and R are two or more.
    """
    _, P, R = scores_QPR.shape
    mean_QP = scores_QPR.mean(2)
    observer_Q = scores_QPR.var(2, ddof=1).mean(1)
    pioneer_Q = mean_QP.var(1, ddof=1) - observer_Q / R

    def query(mean_Q: np.ndarray, pioneer_Q: np.ndarray, observer_Q: np.ndarray, axis: int = -1) -> Any:
        return mean_Q.var(axis, ddof=1) - pioneer_Q.mean(axis) / P - observer_Q.mean(axis) / (P * R)

    return {
        "query": resampled(query, mean_QP.mean(1), pioneer_Q, observer_Q),
        "pioneer": resampled(np.mean, pioneer_Q),
        "observer": resampled(np.mean, observer_Q),
        "pioneer_share": resampled(_ratio_of_sums, pioneer_Q, pioneer_Q + observer_Q),
    }


def slope(pioneer_QP: np.ndarray, observer_QPR: np.ndarray) -> Estimate:
    """Estimate the slope of the observer's score on the pioneer's within a query.

    sum over q, p of x y / sum of x^2, both scores less their query's mean; NaN if no pioneer's score varies
    within a query.
    """
    mean_QP = observer_QPR.mean(2)
    x_QP = pioneer_QP - pioneer_QP.mean(1, keepdims=True)
    y_QP = mean_QP - mean_QP.mean(1, keepdims=True)
    return resampled(_ratio_of_sums, (x_QP * y_QP).sum(1), (x_QP**2).sum(1))


def reading(games: ProbeGames) -> Estimates:
    """Estimate the observer's mean score by what it reads, and paired differences from its own pioneer's."""
    by_text = {text: scores.mean((1, 2)) for text, scores in games.observer_scores.items()}
    gaps = {f"own minus {text}": by_text["own"] - by_text[text] for text in ("unrelated", "none")}
    return estimates({**by_text, **gaps})


def copying(games: ProbeGames) -> Estimates:
    """Estimate the overlap (`jaccard`) of the observer's response with pioneer responses to its query.

    `read` is the one that the observer read, `same_query` another one, which shows what the query explains.
    """
    per_query: dict[str, np.ndarray] = {}
    for name, later in (("read", 0), ("same_query", 1)):
        per_query[name] = np.array([
            np.mean([
                jaccard(text, pioneer[(p + later) % len(pioneer)])
                for p, texts in enumerate(observer)
                for text in texts
            ])
            for pioneer, observer in zip(games.pioneer_texts, games.observer_texts, strict=True)
        ])  # fmt: skip
    return estimates({**per_query, "read minus same_query": per_query["read"] - per_query["same_query"]})


def free_riding(
    standalone: Mapping[str, np.ndarray],
    games: Iterable[tuple[Mapping[str, str], ProbeGames]],
    references: Mapping[str, str],
) -> dict[str, Estimates]:
    """Estimate what each policy that was an observer scores beyond its score without a partner.

    `standalone` has mean scores [Q] by policy, `references` the reference of each trained policy. By
    policy: `standalone`, `observer`, `gap` = observer - standalone, and where there is a reference
    `free-riding` = the gap less the reference's: what training added as the observer, beside the trained
    pioneer, less what it added standalone.
    """
    observer = {seating[OBSERVER]: played.observer_scores["own"].mean((1, 2)) for seating, played in games}
    gaps = {name: score_Q - standalone[name] for name, score_Q in observer.items()}
    result = {}
    for name, score_Q in observer.items():
        per_query = {"standalone": standalone[name], "observer": score_Q, "gap": gaps[name]}
        if (reference := references.get(name)) in gaps:
            per_query["free-riding"] = gaps[name] - gaps[reference]
        result[name] = estimates(per_query)
    return result


def _ratio_of_sums(numerator_Q: np.ndarray, denominator_Q: np.ndarray, axis: int = -1) -> Any:
    below = denominator_Q.sum(axis)
    defined = below > SMALLEST
    return np.where(defined, numerator_Q.sum(axis) / np.where(defined, below, 1.0), np.nan)
