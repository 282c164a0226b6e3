"""How long policies last without a sign of collapse, in iterations and in KL; without one, censored."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

IN_KL = "survival_kl"
METRICS = ("survival", IN_KL)

Life = tuple[float, bool]
"""Iterations or nats without collapse, and whether collapse ended them."""


def lives_of(run: Mapping[str, Any], metric: str, horizon: float = math.inf) -> list[Life]:
    """The life of each policy of a run.

    In iterations up to `horizon`; in nats the KL at the first evaluation with a sign of collapse, whenever
    that was, else at the last evaluation, which the policy outlived. NaN where KL was not measured.
    """
    ends = run["collapsed_at"]
    if metric != IN_KL:
        return [
            (float(min(horizon, run["iterations"] if at is None else at)), at is not None and at <= horizon)
            for at in ends.values()
        ]
    lives = []
    for policy, at in ends.items():
        kl = dict(run["eval"][policy].get("kl", ()))
        lives.append((kl.get(max(kl, default=0) if at is None else at, math.nan), at is not None))
    return lives


def lifetime(run: Mapping[str, Any], metric: str, horizon: float = math.inf) -> Life:
    """The mean life of a run's policies; with one that has not collapsed, a lower bound: it is censored."""
    lives = lives_of(run, metric, horizon)
    mean = sum(time for time, _ in lives) / len(lives) if lives else math.nan
    return mean, all(collapsed for _, collapsed in lives)


def log_rank_p(*arms: Sequence[Life]) -> float:
    """The p of the log-rank test of two arms; NaN where no run collapsed, or all at one iteration."""
    with np.errstate(invalid="ignore"):
        return float(stats.logrank(*map(_censored, arms)).pvalue)


def shares(lives: Sequence[Life]) -> tuple[list[float], list[float]]:
    """Iterations or nats, from 0 to the longest life, and the share without collapse there (Kaplan-Meier)."""
    curve = stats.ecdf(_censored(lives)).sf
    return [0.0, *map(float, curve.quantiles)], [1.0, *map(float, curve.probabilities)]


def _censored(lives: Sequence[Life]) -> stats.CensoredData:
    lives = [life for life in lives if life[0] == life[0]]  # nats that were not measured
    return stats.CensoredData(
        uncensored=[time for time, collapsed in lives if collapsed],
        right=[time for time, collapsed in lives if not collapsed],
    )
