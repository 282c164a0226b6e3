"""Statistics of studies. The unit is the run: two arms are compared by their differences at equal seeds.

Imports no run and no file. Shapes: n seeds, P points of a frontier, R resamples.
"""

import itertools
import math
import warnings
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy import optimize, stats

RESAMPLES = 10_000
MIN_RUNS = 5
"""Fewest pairs of runs for an interval and a verdict: with fewer, a bootstrap knows too few values."""
EXACT_UP_TO = 14
"""Most pairs for which all 2^n signs are tried."""
RANDOM_SIGNS = 20_000
POWER, LEVEL = 0.80, 0.05

Values = Sequence[float] | np.ndarray
Result = Literal["supported", "refuted", "undecided"]


class Interval(NamedTuple):
    """The ends of a 95 % interval; NaN twice if there is none."""

    low: float
    high: float


NONE = Interval(math.nan, math.nan)


class Survival(NamedTuple):
    """A Kaplan-Meier curve: the share that survives from each time on, until the next."""

    times: list[float]
    shares: list[float]


def iqm(values: np.ndarray, axis: int = -1) -> np.ndarray:
    """Interquartile mean: the mean of the middle half of the sorted values.

    n values of weight 1/n lie side by side on [0, 1]; each counts by its part inside [1/4, 3/4]. Of four
    values it is the mean of the middle two, of two the mean of both.
    """
    ordered = np.sort(np.moveaxis(np.asarray(values, dtype=float), axis, -1), axis=-1)
    edges = np.linspace(0, 1, ordered.shape[-1] + 1)
    inside = np.clip(np.minimum(edges[1:], 0.75) - np.maximum(edges[:-1], 0.25), 0, None)
    mean: np.ndarray = (ordered * inside).sum(-1) / inside.sum()
    return mean


def mean(values: np.ndarray, axis: int = -1) -> np.ndarray:
    """Mean along an axis."""
    found: np.ndarray = np.mean(values, axis=axis)
    return found


def bca(
    values: Values, statistic: Literal["mean", "iqm"] = "mean", *, resamples: int = RESAMPLES
) -> Interval:
    """Bias-corrected and accelerated bootstrap interval of a statistic (Efron 1987).

    NaN twice for fewer than `MIN_RUNS` values or one that is not finite; of equal values, that value twice.
    Where the acceleration or the bias cannot be computed, the percentile interval.
    """
    sample = np.asarray(values, dtype=float)
    if len(sample) < MIN_RUNS or not np.isfinite(sample).all():
        return NONE
    function = iqm if statistic == "iqm" else mean
    if np.ptp(sample) == 0:
        return Interval(float(sample[0]), float(sample[0]))
    for method in ("BCa", "percentile"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of degenerate resamples, which NaN reports too
            found = stats.bootstrap(
                (sample,),
                function,
                vectorized=True,
                n_resamples=resamples,
                method=method,
                rng=np.random.default_rng(0),
            ).confidence_interval
        if math.isfinite(found.low) and math.isfinite(found.high):
            break
    return Interval(float(found.low), float(found.high))


def sign_flip_p(differences: Values) -> float:
    """Two-sided p of the mean difference if every difference could as well have the other sign.

    All 2^n signs for n <= `EXACT_UP_TO`, else `RANDOM_SIGNS` random ones beside those observed. NaN without
    differences.
    """
    d_n = np.asarray(differences, dtype=float)
    if not len(d_n) or not np.isfinite(d_n).all():
        return math.nan
    if len(d_n) <= EXACT_UP_TO:
        signs_Rn = np.array(list(itertools.product((1.0, -1.0), repeat=len(d_n))))
    else:
        drawn = np.random.default_rng(0).integers(0, 2, size=(RANDOM_SIGNS, len(d_n)))
        signs_Rn = np.vstack([np.ones(len(d_n)), 2.0 * drawn - 1.0])
    sums_R, observed = np.abs(signs_Rn @ d_n), abs(d_n.sum())
    return float((sums_R >= observed - 1e-12 * max(1.0, np.abs(d_n).sum())).mean())


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the order given; NaN (no runs yet) stays NaN and counts as a test."""
    adjusted = [math.nan] * len(p_values)
    order = sorted((p, i) for i, p in enumerate(p_values) if not math.isnan(p))
    largest = 0.0
    for rank, (p, i) in enumerate(order):
        largest = max(largest, min(1.0, p * (len(p_values) - rank)))
        adjusted[i] = largest
    return adjusted


def improvement(differences: Values) -> tuple[float, Interval]:
    """Share of seeds at which the arm is above the baseline, ties by half, with Wilson's 95 % interval."""
    d_n = np.asarray(differences, dtype=float)
    n = len(d_n)
    if not n or not np.isfinite(d_n).all():
        return math.nan, NONE
    share = float(((d_n > 0) + 0.5 * (d_n == 0)).mean())
    z = stats.norm.ppf(1 - LEVEL / 2)
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return share, Interval(max(0.0, float(middle - half)), min(1.0, float(middle + half)))


def effect(differences: Values) -> float:
    """Standardised paired effect: mean / sd of the differences, times Hedges' 1 - 3 / (4 (n - 1) - 1).

    NaN for fewer than three differences or without spread.
    """
    d_n = np.asarray(differences, dtype=float)
    if len(d_n) < 3 or not np.isfinite(d_n).all() or np.ptp(d_n) == 0:
        return math.nan
    return float(d_n.mean() / d_n.std(ddof=1) * (1 - 3 / (4 * (len(d_n) - 1) - 1)))


def seeds_needed(
    differences: Values, margin: float, direction: str = "higher", *, most: int = 1000
) -> int | None:
    """More seeds until the claim is decided with 80 % power, by a paired t-test at 5 % against its margin.

    A claim that the difference is within the margin (equal) takes two one-sided tests, one for each end. The
    true difference and standard deviation are taken to be those so far. No fewer than `MIN_RUNS` in all.
    None for fewer than three differences, or where `most` seeds would not do: the difference may be as large
    as the margin.
    """
    d_n = np.asarray(differences, dtype=float)
    if len(d_n) < 3 or not np.isfinite(d_n).all():
        return None
    difference, sd = float(d_n.mean()), float(d_n.std(ddof=1))
    counted = {"higher": difference, "lower": -difference, "equal": abs(difference)}[direction]
    within = direction == "equal" and counted < margin
    distances = [margin - counted, margin + counted] if within else [abs(counted - margin)]
    if min(distances) == 0:
        return None
    for n in range(MIN_RUNS, most + 1):
        missed = 0.0 if sd == 0 else sum(1 - _power(n, distance / sd) for distance in distances)
        if 1 - missed >= POWER:
            return max(0, n - len(d_n))
    return None


def _power(n: int, standardised: float) -> float:
    """Chance that a 95 % t-interval of n pairs lies wholly on the true side of a bound so far away."""
    critical = stats.t.ppf(1 - LEVEL / 2, n - 1)
    return float(stats.nct.sf(critical, n - 1, standardised * math.sqrt(n)))


def verdict(interval: Interval, margin: float, direction: str = "higher") -> Result:
    """Result of the claim that a difference is above `margin`, below -`margin` (lower) or no further (equal).

    Supported with the whole interval where the claim has it, refuted with none of it there, else undecided.
    """
    low, high = interval
    if direction == "equal":
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
    area, below = 0.0, reward
    points = sorted(zip(kl_P, reward_P, strict=True), key=lambda point: (-point[1], point[0]))
    right = kl
    front = []
    for point_kl, point_reward in points:  # from the highest reward down, each next with less KL
        if point_kl < right and point_reward > below:
            front.append((point_kl, point_reward))
            right = point_kl
    for i, (point_kl, point_reward) in enumerate(front):
        lower = front[i + 1][1] if i + 1 < len(front) else below
        area += (kl - point_kl) * (point_reward - lower)
    return area


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


def kaplan_meier(times: Sequence[float], happened: Sequence[bool]) -> Survival:
    """Survival estimate; `happened` is False for runs that ended without the event, which are censored."""
    curve = Survival([0.0], [1.0])
    for time in sorted({t for t, event in zip(times, happened, strict=True) if event}):
        at_risk = sum(t >= time for t in times)
        events = sum(t == time and event for t, event in zip(times, happened, strict=True))
        curve.times.append(float(time))
        curve.shares.append(curve.shares[-1] * (1 - events / at_risk))
    return curve


def restricted_mean(curve: Survival, horizon: float) -> float:
    """Mean time without the event up to `horizon`: the area under the survival curve."""
    ends = [min(time, horizon) for time in [*curve.times[1:], horizon]]
    starts = [min(time, horizon) for time in curve.times]
    return sum((b - a) * share for a, b, share in zip(starts, ends, curve.shares, strict=True))


def log_rank_scores(times: Sequence[float], happened: Sequence[bool]) -> np.ndarray:
    """Log-rank score of each run: 1 for an event, less the Nelson-Aalen hazard of all runs up to its time.

    The sum over an arm is its observed less its expected events, the numerator of the log-rank test
    (Kalbfleisch and Prentice 2002, section 7.2). With `happened` False a run is censored.
    """
    times_n, events_n = np.asarray(times, dtype=float), np.asarray(happened, dtype=float)
    at_risk_n = (times_n[None, :] >= times_n[:, None]).sum(1)
    earlier_nn = times_n[None, :] <= times_n[:, None]
    scores: np.ndarray = events_n - (earlier_nn * (events_n / at_risk_n)[None, :]).sum(1)
    return scores


def log_rank_p(
    times: tuple[Sequence[Sequence[float]], Sequence[Sequence[float]]],
    happened: tuple[Sequence[Sequence[bool]], Sequence[Sequence[bool]]],
) -> float:
    """Two-sided p that the runs of two arms, paired by seed, have equal times without an event.

    Args:
        times: Of each arm, for each run, the times of its policies.
        happened: Whether each of them ended with the event.

    The log-rank statistic under all exchanges of the arms within seeds (`sign_flip_p` of the differences of
    scores), for its normal approximation needs more runs than studies have. A run's score is the mean of its
    policies', so that one with more policies is not the likelier to be early. 1 without events.
    """
    runs = [*times[0], *times[1]]
    scores = log_rank_scores(
        [time for run in runs for time in run], [came for arm in happened for run in arm for came in run]
    )
    ends = np.cumsum([len(run) for run in runs])[:-1]
    scores_n = np.array([one.mean() for one in np.split(scores, ends)]) if runs else np.array([])
    n = len(times[0])
    return sign_flip_p(scores_n[:n] - scores_n[n:])
