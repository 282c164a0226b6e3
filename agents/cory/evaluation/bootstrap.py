"""Bootstrap confidence intervals of means over queries and of paired differences.

Shapes: Q queries.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy.stats import bootstrap

RESAMPLES = 2000


class Estimate(NamedTuple):
    """A mean over queries with its 95 % interval."""

    value: float
    low: float
    high: float


def interval(values_Q: np.ndarray, *, level: float = 0.95, seed: int = 0) -> tuple[float, float]:
    """Return the BCa bootstrap interval of the mean over queries; of a constant, the constant twice."""
    if len(values_Q) < 2 or np.ptp(values_Q) == 0:
        return float(values_Q.mean()), float(values_Q.mean())
    result = bootstrap(
        (values_Q,),
        np.mean,
        confidence_level=level,
        n_resamples=RESAMPLES,
        batch=200,
        rng=np.random.default_rng(seed),
    )
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


def estimates(per_query: Mapping[str, np.ndarray]) -> dict[str, Estimate]:
    """Return the mean and interval of every quantity."""
    return {
        name: Estimate(float(values_Q.mean()), *interval(values_Q)) for name, values_Q in per_query.items()
    }


def differences(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> dict[str, Estimate]:
    """Return ours minus theirs, query by query, of every quantity both have; the queries must be the same."""
    return estimates({name: ours[name] - theirs[name] for name in ours if name in theirs})
