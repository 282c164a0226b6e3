"""A suite: arms compared over several tasks at once, by scores from 0 (the reference) to 1 (the best known).

Interquartile mean over the runs of all tasks, its 95 % interval by a stratified bootstrap (runs are drawn
anew within each task), performance profile, and probability of improvement (Agarwal et al. 2021, arXiv
2108.13264). All runs of an arm are enough for a bootstrap, where the seeds of one task are not.

Shapes: n runs of an arm on a task, M resamples (or none), P thresholds.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from scipy import stats

from cory.evaluation.bootstrap import NONE, Estimate
from cory.report.tables import Table
from cory.study.analysis import values_by_seed
from cory.study.results import Results

MIN_RUNS = 3
"""Runs of an arm on each task below which there is no interval; of a single one it would have no width."""
RESAMPLES = 2000
TRIMMED = 0.25
"""Share of runs that the interquartile mean leaves out at either end."""

Scores = Mapping[str, np.ndarray]
"""By task: the scores [n] of an arm's runs, or resamples of them [M, n]."""


def scores_of(results: Results) -> dict[str, Scores]:
    """The scores of every arm for the seeds that it has on all tasks, so that each task counts the same.

    Best arm first; without those that have no such seed.
    """
    scores: dict[str, Scores] = {}
    suite = results.get("suite", {})
    for arm in results["arms"] if suite else ():
        values = {task: values_by_seed(results, arm, task, scale["metric"]) for task, scale in suite.items()}
        if seeds := set.intersection(*map(set, values.values())):
            scores[arm] = {
                task: (np.array([values[task][seed] for seed in sorted(seeds)]) - scale["reference"])
                / (scale["best"] - scale["reference"])
                for task, scale in suite.items()
            }
    return dict(sorted(scores.items(), key=lambda item: -interquartile_mean(item[1])))


def interquartile_mean(scores: Scores) -> np.ndarray:
    """Mean [M] of the middle half of the runs of all tasks."""
    return np.asarray(stats.trim_mean(np.concatenate(list(scores.values()), axis=-1), TRIMMED, axis=-1))


def probability_of_improvement(scores: Scores, baseline: Scores) -> np.ndarray:
    """Probability [M] that a run of an arm is ahead of one of the baseline; ties count half.

    Mean over the tasks.
    """
    signs = [np.sign(scores[task][..., :, None] - baseline[task][..., None, :]) for task in scores]
    return np.asarray(np.mean([sign_Mnn.mean((-1, -2)) for sign_Mnn in signs], axis=0) + 1) / 2


def profile(scores: Scores, thresholds_P: np.ndarray) -> np.ndarray:
    """Share of runs [P] with a score above each threshold, mean over tasks."""
    return np.asarray(np.mean([(n[:, None] > thresholds_P).mean(0) for n in scores.values()], axis=0))


def estimate(statistic: Callable[..., np.ndarray], *arms: Scores) -> Estimate:
    """A statistic of arms with its percentile interval over resamples of the runs within each task.

    NaN for both ends with fewer than `MIN_RUNS` runs on a task.
    """
    value = float(statistic(*arms))
    if not _enough(*arms):
        return Estimate(value, *NONE)
    generator = np.random.default_rng(0)
    resamples = [
        {task: generator.choice(n, (RESAMPLES, len(n))) for task, n in scores.items()} for scores in arms
    ]
    low, high = np.quantile(statistic(*resamples), [0.025, 0.975])
    return Estimate(value, float(low), float(high))


def _enough(*arms: Scores) -> bool:
    return all(len(n) >= MIN_RUNS for scores in arms for n in scores.values())


def table(results: Results) -> list[Table]:
    """The table of the suite, best arm first; none without an arm that has scores (`scores_of`)."""
    scores = scores_of(results)
    if not scores:
        return []
    first = next(iter(results["arms"]))
    rows = []
    for arm, of_arm in scores.items():
        over_tasks = [estimate(interquartile_mean, of_arm)]
        if arm != first and first in scores:
            over_tasks.append(estimate(probability_of_improvement, of_arm, scores[first]))
        cells = [_cell(one) for one in over_tasks]
        by_task = [f"{n.mean():.2f}" for n in of_arm.values()]
        rows.append([arm, str(sum(map(len, of_arm.values()))), *[*cells, "-"][:2], *by_task])
    missing = [arm for arm in results["arms"] if arm not in scores]
    note = (
        "Scores: 0 is the reference, 1 the best known. Interquartile mean over the runs of all tasks, for "
        f"the seeds that an arm has on every task, and the probability that a run is ahead of one of {first} "
        "on the same task, with 95 % intervals of a bootstrap within tasks where each has "
        f"{MIN_RUNS} runs; for each task the mean score."
        + (f" Without runs on every task: {', '.join(missing)}." if missing else "")
    )
    head = ["arm", "runs", "interquartile mean", f"ahead of {first}", *results["suite"]]
    return [Table("Scores over all tasks", head, rows, note=note)]


def _cell(one: Estimate) -> str:
    return f"{one.value:.3f}" + ("" if math.isnan(one.low) else f" ({one.low:.3f} to {one.high:.3f})")


def badge(results: Results) -> Sequence[tuple[str, str, str]]:
    """The best arm over all tasks, and by how much it is ahead of the first of the study."""
    scores = scores_of(results)
    if not scores:
        return []
    best, first = next(iter(scores)), next(iter(results["arms"]))
    other = f", {first} {interquartile_mean(scores[first]):.2f}" if first in scores and first != best else ""
    few = "" if _enough(scores[best]) else ", too few seeds"
    return [("over all tasks", f"{best} {interquartile_mean(scores[best]):.2f}{other}{few}", "open")]
