"""Bootstrap confidence intervals over queries: of means, paired differences and other statistics.

Shapes: Q queries.
"""

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import DegenerateDataWarning, bootstrap

from cory.evaluation.text_metrics import INFLUENCES, UNBOUNDED, Bounds, bounds, difference_bounds

RESAMPLES = 2000

MIN_QUERIES = 8
"""Fewest queries for an interval."""

EDGE = 1e-9
"""Distance from the end of its range at which a value has no interval."""

NONE = (math.nan, math.nan)
"""The ends of an interval that does not exist."""


class Estimate(NamedTuple):
    """A value with its 95 % interval, a mean over queries or runs; both ends are NaN if there is none."""

    value: float
    low: float
    high: float


def resampled(statistic: Callable[..., Any], *arrays_Q: np.ndarray) -> Estimate:
    """Estimate `statistic(*arrays_Q, axis=-1)` with its 95 % BCa bootstrap interval over queries.

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
            rng=np.random.default_rng(0),
        )
    if np.ptp(result.bootstrap_distribution) == 0:
        return Estimate(value, value, value)
    return Estimate(value, float(result.confidence_interval.low), float(result.confidence_interval.high))


def interval(values_Q: np.ndarray) -> tuple[float, float]:
    """The interval of the mean over queries, between the smallest and the largest value.

    NaN twice for fewer than `MIN_QUERIES` queries, or where a value is NaN.
    """
    return resampled(np.mean, values_Q)[1:]


def interval_within(values_Q: np.ndarray, within: Bounds, *, transform: bool) -> tuple[float, float]:
    """The interval of a quantity whose range is `within`; NaN twice at the edge of that range.

    Influences x_i can lie outside of the range, and so can the interval of their mean v. With `transform`
    the interval is that of g(v) + g'(v) (x_i - v), the influences on g(v), transformed back: g is the
    arcsine of the square root for shares, the log above a lower end.
    """
    value = float(values_Q.mean())
    if value <= within.low + EDGE or value >= within.high - EDGE:
        return NONE
    low, high = interval(values_Q)
    if not transform or within == UNBOUNDED:
        return low, high
    return _move(value, low - value, within), _move(value, high - value, within)


def estimates(
    per_query: Mapping[str, np.ndarray], *, bounds_of: Callable[[str], Bounds] = bounds
) -> dict[str, Estimate]:
    """The mean and interval of every quantity; `bounds_of` returns the range of a quantity by name."""
    return {
        name: Estimate(
            float(values_Q.mean()),
            *interval_within(values_Q, bounds_of(name), transform=name in INFLUENCES),
        )
        for name, values_Q in per_query.items()
    }


def differences(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> dict[str, Estimate]:
    """Ours minus theirs, query by query, of every quantity both have; the queries must be the same."""
    per_query = {name: ours[name] - theirs[name] for name in ours if name in theirs}
    return estimates(per_query, bounds_of=difference_bounds)


def as_json(
    by_quantity: Mapping[str, Estimate], *, value: str = "value"
) -> dict[str, dict[str, float | None]]:
    """Estimates as JSON objects with the keys `value`, low and high."""
    return {
        name: {value: finite(e.value), "low": finite(e.low), "high": finite(e.high)}
        for name, e in by_quantity.items()
    }


def finite(number: float) -> float | None:
    """The number, or None if it is not finite: JSON has neither NaN nor infinity."""
    return number if math.isfinite(number) else None


def _move(value: float, step: float, within: Bounds) -> float:
    """g^-1(g(value) + g'(value) step), with g the scale of the range `within`.

    Between two ends g is the arcsine of the square root, which stabilises the variance of a share: in
    simulations of distinct-2 near 1 its intervals cover as often as those of the logit at two thirds of the
    width. Above one end, g is the log of the distance from it.
    """
    low, high = within
    if math.isinf(high):
        exponent = step / (value - low)
        return low + (value - low) * (math.inf if exponent > 700 else math.exp(exponent))
    width = high - low
    share = (value - low) / width
    angle = math.asin(math.sqrt(share)) + step / width / (2 * math.sqrt(share * (1 - share)))
    return low + width * math.sin(float(np.clip(angle, 0, math.pi / 2))) ** 2
