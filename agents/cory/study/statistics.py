"""Statistics of studies. The unit is the run: two arms are compared by their differences at equal seeds.

Imports no run and no file. Shapes: n seeds, P points of a frontier.
"""

import math
import warnings
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import optimize, stats

MIN_RUNS = 5
"""Fewest pairs of runs for an interval and a verdict: with fewer, all hangs on differences being normal."""

Result = Literal["supported", "refuted", "undecided"]


class Interval(NamedTuple):
    """The ends of a 95 % interval; NaN twice if there is none."""

    low: Any
    high: Any


NONE = Interval(math.nan, math.nan)


def interval(values_n: Sequence[float] | np.ndarray) -> Interval:
    """The two-sided 95 % t interval of a mean, for every mean over runs and every difference of paired runs.

    Of differences at equal seeds it is the paired t interval. Runs lie on the first axis; with more axes the
    ends are arrays. Of equal values, that value twice; NaN twice for fewer than `MIN_RUNS` values or one that
    is not finite.
    """
    sample = np.asarray(values_n, dtype=float)
    if len(sample) < MIN_RUNS or not np.isfinite(sample).all():
        return NONE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of equal values, whose interval is exact
        low, high = stats.ttest_1samp(sample, 0, axis=0).confidence_interval()
    return Interval(low, high) if sample.ndim > 1 else Interval(float(low), float(high))


def verdict(ends: Interval, margin: float, direction: str = "higher", expected: float = 0.0) -> Result:
    """Result of the claim that a difference is above `margin`, below -`margin`, or equal to the expected one.

    Equal is no further than `margin` from it. Supported with the whole interval where the claim has it,
    refuted with none of it there, else undecided.
    """
    low, high = ends
    if direction == "equal":
        low, high = low - expected, high - expected
        if -margin <= low and high <= margin:
            return "supported"
        return "refuted" if high < -margin or low > margin else "undecided"
    if direction == "lower":
        low, high = -high, -low
    if low > margin:
        return "supported"
    return "refuted" if high <= margin else "undecided"


def hypervolume(kl_P: Sequence[float], reward_P: Sequence[float], *, kl: float, reward: float) -> float:
    """Area between the Pareto front of (more reward, less KL) and a reference point (kl, reward).

    Points that are worse than the reference point in either add nothing.
    """
    order = np.argsort(kl_P, kind="stable")
    right_P = np.minimum(np.asarray(kl_P, dtype=float)[order], kl)
    best_P = np.maximum.accumulate(np.asarray(reward_P, dtype=float)[order])
    # The exact sum, which a product of vectors is not: its last bits depend on the processor.
    return math.fsum(np.diff(right_P, append=kl) * np.maximum(best_P - reward, 0))


def reward_at_kl(kl_P: Sequence[float], reward_P: Sequence[float], at: float) -> float:
    """Reward at a KL, linear between the isotonic fit of reward on KL; NaN outside of the points."""
    kl, reward = np.asarray(kl_P, dtype=float), np.asarray(reward_P, dtype=float)
    if not len(kl) or not (np.isfinite(kl).all() and np.isfinite(reward).all()):
        return math.nan
    unique, position = np.unique(kl, return_inverse=True)
    counts = np.bincount(position)
    fitted = optimize.isotonic_regression(np.bincount(position, reward) / counts, weights=counts).x
    return float(np.interp(at, unique, fitted, left=math.nan, right=math.nan))


def area(setting: Sequence[float], values: Sequence[float], *, log: bool) -> float:
    """Mean height of a metric over a setting (trapezoids), over its logarithm with `log`.

    The area divided by the width, so that its unit is the metric's.
    """
    x = np.log(setting) if log else np.asarray(setting, dtype=float)
    order = np.argsort(x)
    x, y = np.asarray(x)[order], np.asarray(values, dtype=float)[order]
    return float(np.trapezoid(y, x) / (x[-1] - x[0]))
