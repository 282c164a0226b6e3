"""From runs to statistics and verdicts: one value per run, differences at equal seeds, margins."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cory.evaluation import averaging
from cory.study import statistics, survival
from cory.study.metric import TEAM, Metric
from cory.study.plan import setting_value
from cory.study.records import Points, reference_of, trained
from cory.study.results import Results

TABLE = ("combined_reward", "task_reward", "kl")
"""Metrics in the table of arms, and those of the comparisons after them."""
GAME_TOTAL = "game/collective_reward"
OF_TEAM = "team/combined_reward"

COPIED = ("arm", "baseline", "metric", "baseline_metric", "margin", "direction", "source")
"""What a row of statistics has from its comparison."""

CLAIMS = {"higher": "is better than", "lower": "is lower than", "equal": "is equal to"}
"""The claim of a comparison that has none in words, by its direction."""

Run = Mapping[str, Any]


def runs_of(results: Results, task: str, *arms: str) -> list[Run]:
    """The runs on a task, of these arms; of all where none is given."""
    return [run for run in results["runs"] if run["task"] == task and (not arms or run["arm"] in arms)]


def run_value(
    run: Run, metric: str, *, kl_coef: float, frontier: Mapping[str, Any], horizon: float = math.inf
) -> float:
    """One number for a run: at its end, mean over its policies. NaN if it was not measured, or not there.

    `survival` are the iterations without a sign of collapse, up to `horizon`, `survival_kl` the nats.
    """
    if metric in survival.METRICS:
        return survival.lifetime(run, metric, horizon)[0]
    named = Metric.named(metric)
    if named.is_of_frontier:
        values = []
        for name in trained(run["eval"]):
            metrics = run["eval"][name]
            kl, reward = (dict(metrics.get(quantity, ())) for quantity in ("kl", "task_reward"))
            shared = [at for at in kl if at in reward]  # without evaluations whose KL was not finite
            kl_N, reward_N = [kl[at] for at in shared], [reward[at] for at in shared]
            values.append(_frontier_value(kl_N, reward_N, named, frontier, run, [name]))
        return _mean(values)
    ends = [points[-1][1] for points in _series(run, named, kl_coef) if points]
    if named.place == "apart":
        return max(ends) - min(ends) if len(ends) > 1 else math.nan
    return _mean(ends)


def curve(run: Run, metric: str, *, kl_coef: float) -> dict[int, float]:
    """A metric of the standalone evaluations over the iterations, mean over the policies; or of the game."""
    series = _series(run, Metric.named(metric), kl_coef)
    by_iteration: dict[int, list[float]] = {}
    for points in series:
        for iteration, value in points:
            if math.isfinite(value):
                by_iteration.setdefault(int(iteration), []).append(value)
    return {i: _mean(values) for i, values in sorted(by_iteration.items()) if len(values) == len(series)}


def values_by_seed(results: Results, name: str, task: str, metric: str) -> dict[int, float]:
    """The finite values of an arm, a sweep or a pool by seed; survival ends with the task's shortest run."""
    if name in results["sweeps"]:
        return _sweep_values(results, results["sweeps"][name], task, metric)
    if name in results["pools"]:
        arms = [values_by_seed(results, arm, task, metric) for arm in results["pools"][name]]
        return {
            seed: _mean([values[seed] for values in arms])
            for seed in sorted(set.intersection(*map(set, arms)))
        }
    named = Metric.named(metric)
    tested = named.of if named.place == "on" else task
    kl_coef = results["kl_coef"].get(tested, results["kl_coef"][task])
    horizon = min((run.get("iterations", math.inf) for run in runs_of(results, task)), default=math.inf)
    values = {
        run["seed"]: run_value(run, metric, kl_coef=kl_coef, frontier=results["frontier"], horizon=horizon)
        for run in runs_of(results, task, name)
    }
    return {seed: value for seed, value in sorted(values.items()) if math.isfinite(value)}


def metrics_of(results: Results) -> list[str]:
    """The metrics in tables: combined reward in every one, the team's if measured, those of comparisons."""
    team = [OF_TEAM] if any(run.get("team") for run in results["runs"]) else []
    declared = [*results["primary"], *results.get("suite", {}).values()]
    return list(dict.fromkeys([*TABLE, *team, *(row["metric"] for row in declared)]))


def judged_by_team(results: Results) -> bool:
    """Whether the first comparison is of held-out games: what is learned need not show standalone then."""
    return bool(results["primary"]) and Metric.named(results["primary"][0]["metric"]).place == "team"


def analyse(results: Results) -> Results:
    """The results with `statistics` of every primary comparison and their `verdicts`."""
    rows = [
        compare(results, comparison, task)
        for comparison in results["primary"]
        for task in results["kl_coef"]
        if comparison["task"] in (None, task)
    ]
    verdicts = [
        {
            "claim": row["claim"],
            "source": row["source"],
            "test": f"{measured_by(results, row)} on {row['task']}, {row['arm']} against {baseline_of(row)}",
            "margin": row["margin"],
            "result": row["result"],
            "words": words(row),
        }
        for row in rows
    ]
    return {**results, "statistics": rows, "verdicts": verdicts}


def compare(results: Results, comparison: Mapping[str, Any], task: str) -> dict[str, Any]:
    """Statistics of one comparison on one task; differences are arm minus baseline, undefined ones null."""
    metric, margin, direction = comparison["metric"], float(comparison["margin"]), comparison["direction"]
    expected = comparison.get("expected", 0.0)
    arm = values_by_seed(results, comparison["arm"], task, metric)
    baseline = values_by_seed(results, comparison["baseline"], task, comparison["baseline_metric"] or metric)
    seeds = sorted(arm.keys() & baseline.keys())
    d_n = np.array([arm[seed] - baseline[seed] for seed in seeds])
    low, high = statistics.interval(d_n)
    lives = _lives(results, comparison, task, seeds)
    are_arms = {comparison["arm"], comparison["baseline"]} <= results["arms"].keys()
    counted = statistics.verdict(statistics.Interval(low, high), margin, direction, expected)
    # Longer runs would have gone to more nats; in iterations all end alike, and to be ahead there is enough.
    lower = metric == survival.IN_KL or direction == "equal" or counted != "supported"
    bounds = [sum(not collapsed for _, collapsed in side) if lower else 0 for side in lives]
    possible = statistics.Interval(-math.inf if bounds[1] else low, math.inf if bounds[0] else high)
    row = {
        **{key: comparison[key] for key in COPIED},
        "task": task,
        "claim": comparison["claim"]
        or f"{comparison['arm']} {CLAIMS[direction]} {baseline_of(comparison)} in {metric}",
        "n": len(seeds),
        "seeds": seeds,
        "arm_mean": _mean([arm[seed] for seed in seeds]),
        "baseline_mean": _mean([baseline[seed] for seed in seeds]),
        "difference": float(d_n.mean()) if seeds else math.nan,
        "low": low,
        "high": high,
        "log_rank_p": survival.log_rank_p(*lives) if are_arms and all(lives) else math.nan,
        "result": statistics.verdict(possible, margin, direction, expected),
        **({"expected": expected} if expected else {}),
        **({"bounds": sum(bounds)} if any(bounds) else {}),
    }
    return {key: None if value != value else value for key, value in row.items()}  # NaN is null in JSON


def result_words(row: Mapping[str, Any]) -> str:
    """The result of a comparison; of a refuted claim also that the difference has its sign all the same."""
    match row["result"], row["direction"]:
        case _ if not row["n"]:
            return "without runs"
        case "refuted", "higher" if row["low"] > 0:
            return "refuted, though above zero"
        case "refuted", "lower" if row["high"] < 0:
            return "refuted, though below zero"
    return str(row["result"])


def baseline_of(row: Mapping[str, Any]) -> str:
    """The baseline of a comparison, with its metric if that is another one."""
    other = row["baseline_metric"]
    return f"{row['baseline']} in {other}" if other else str(row["baseline"])


def measured_by(results: Results, row: Mapping[str, Any]) -> str:
    """The metric of a comparison; of a sweep that is no frontier, its area over the setting."""
    metric, sweep = str(row["metric"]), results["sweeps"].get(row["arm"])
    if sweep is None or Metric.named(metric).is_of_frontier:
        return metric
    return f"area of {metric} over {'log ' if sweep['log'] else ''}{sweep['setting']}"


def words(row: Mapping[str, Any]) -> str:
    """A comparison in one sentence."""
    if not row["n"]:
        return f"No seed has runs of both {row['arm']} and {row['baseline']} with {row['metric']}."
    text = (
        f"{row['arm']} has {row['arm_mean']:.3f} and {baseline_of(row)} {row['baseline_mean']:.3f}, a "
        f"difference of {row['difference']:+.3f}"
    )
    if row["low"] is None:
        return f"{text} over n = {row['n']}, too few for an interval ({statistics.MIN_RUNS} are needed)."
    claim = {
        "higher": f"above {row['margin']:g}",
        "lower": f"below {0.0 - row['margin']:g}",
        "equal": f"within {row['margin']:g} of {row['expected']:+g}"
        if "expected" in row
        else f"less than {row['margin']:g} either way",
    }[row["direction"]]
    ends = f"({row['low']:+.3f} to {row['high']:+.3f})"
    more = f" Log-rank p = {row['log_rank_p']:.2g}." if row["log_rank_p"] is not None else ""
    if bounds := row.get("bounds"):
        more += f" {bounds} runs did not collapse; a verdict that longer runs could change is undecided."
    return f"{text} {ends} over {row['n']} seeds; the claim is one {claim}.{more}"


def _lives(
    results: Results, comparison: Mapping[str, Any], task: str, seeds: Sequence[int]
) -> list[list[survival.Life]]:
    """The lives of the compared runs on both sides, up to the task's shortest run; none for other metrics."""
    if comparison["metric"] not in survival.METRICS:
        return [[], []]
    horizon = min((run["iterations"] for run in runs_of(results, task)), default=math.inf)
    members = results["pools"] | {name: sweep["arms"] for name, sweep in results["sweeps"].items()}
    return [
        [
            survival.lifetime(run, comparison["metric"], horizon)
            for run in runs_of(results, task, *members.get(name, (name,)))
            if run["seed"] in seeds
        ]
        for name in (comparison["arm"], comparison["baseline"])
    ]


def sweep_settings(results: Results, sweep: Mapping[str, Any], task: str) -> list[float]:
    """The number that each arm of a sweep has for its setting."""
    configs = [results["arms"][arm]["config"][task] for arm in sweep["arms"]]
    return [setting_value(config, sweep["setting"]) for config in configs]


def _sweep_values(results: Results, sweep: Mapping[str, Any], task: str, metric: str) -> dict[int, float]:
    """One value per seed at which every arm of the sweep has one: an area, or a frontier of final points."""
    named = Metric.named(metric)
    columns = ("kl", "task_reward") if named.is_of_frontier else (metric,)
    tables = [[values_by_seed(results, arm, task, name) for arm in sweep["arms"]] for name in columns]
    seeds = set.intersection(*(set(values) for table in tables for values in table))
    setting = sweep_settings(results, sweep, task)
    by_seed = {}
    for seed in sorted(seeds):
        points = [[values[seed] for values in table] for table in tables]
        if named.is_of_frontier:
            run = next(run for run in runs_of(results, task, *sweep["arms"]) if run["seed"] == seed)
            kl, reward = points
            by_seed[seed] = _frontier_value(kl, reward, named, results["frontier"], run, trained(run["eval"]))
        else:
            by_seed[seed] = statistics.area(setting, points[0], log=sweep["log"])
    return {seed: value for seed, value in by_seed.items() if math.isfinite(value)}


def _frontier_value(
    kl: Sequence[float],
    reward: Sequence[float],
    metric: Metric,
    frontier: Mapping[str, Any],
    run: Run,
    policies: Sequence[str],
) -> float:
    """Volume or reward at a KL of a curve; its reference point is the mean reference of the policies."""
    if metric.place == "reward_at_kl":
        return statistics.reward_at_kl(kl, reward, float(metric.quantity))
    base = _mean([_last(reference_of(run["eval"], name).get("task_reward")) for name in policies])
    if not kl or math.isnan(base):
        return math.nan
    return statistics.hypervolume(kl, reward, kl=frontier["kl"], reward=base)


def _series(run: Run, metric: Metric, kl_coef: float) -> list[Points]:
    """The points of every trained policy, or seat, over which a metric is the mean.

    Combined reward has the coefficient that all arms share.
    """
    quantity = metric.quantity
    if metric.place == "team":
        team = run.get("team", {})
        if quantity == "combined_reward" and not metric.of:
            seats = [team[name] for name in team if name not in ("all", *TEAM)]
            return [_total([_quantity(seat, quantity, kl_coef) for seat in seats])]
        return [_quantity(team.get(metric.of or "all", {}), quantity, kl_coef)]
    if metric.place == "game":
        of_seat = "task_reward" if metric.is_sum_of_seats else quantity
        seats = [_quantity(seat, of_seat, kl_coef) for seat in run["game"].values()]
        return [] if not all(seats) else [_total(seats)] if metric.is_sum_of_seats else seats
    evaluated = run.get("on", {}).get(metric.of, {}).get("eval", {}) if metric.place == "on" else run["eval"]
    names = [averaging.NAME] if metric.place == "average" else trained(evaluated)
    policies = [evaluated[name] for name in names if name in evaluated]
    measured = [metrics for metrics in policies if quantity != "combined_reward" or "kl" in metrics]
    return [_quantity(metrics, quantity, kl_coef) for metrics in measured]


def _quantity(metrics: Mapping[str, Points], quantity: str, kl_coef: float) -> Points:
    """The points of a quantity; combined reward by `kl_coef`, where KL could be measured.

    Values that were not finite are not stored. If the last one was not it is NaN, so that none of before
    stands for it.
    """
    points = metrics.get(quantity, [])
    if quantity == "combined_reward" and "kl" in metrics:
        kl = {point[0]: point[1] for point in metrics["kl"]}
        points = [[at, reward - kl_coef * kl[at]] for at, reward in metrics["task_reward"] if at in kl]
    last = max((of[-1][0] for of in metrics.values() if of), default=math.nan)
    return [*points, [last, math.nan]] if points and points[-1][0] < last else points


def _total(seats: Sequence[Points]) -> Points:
    """The sum over seats at each point that all of them have."""
    by_time = [{point[0]: point[1] for point in points} for points in seats]
    shared = [at for at, _ in seats[0] if all(at in one for one in by_time)] if seats else []
    return [[at, sum(one[at] for one in by_time)] for at in shared]


def _last(points: Points | None) -> float:
    return points[-1][1] if points else math.nan


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan
