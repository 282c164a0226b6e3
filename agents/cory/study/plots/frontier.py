"""Figure of task reward against KL."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cory.report.figures import PALETTE, REFERENCE
from cory.study import statistics
from cory.study.analysis import runs_of, sweep_settings, values_by_seed
from cory.study.metric import Metric
from cory.study.plots.curves import written
from cory.study.plots.panels import TOGETHER, grid, groups_of, sweep_of
from cory.study.records import references
from cory.study.results import Results
from cory.tracking.labels import label

MARKERS = "os^D"
OF_KL = "KL to the reference (nats)"
STEPS = 200
"""Points of a way over the width of its axes."""
NEAR = 3.0
"""How many times wider than the arms' range a panel may become to hold the reference."""


def draw_frontier(results: Results) -> Figure | None:
    """Task reward against KL at the end of training, a panel per group of arms."""
    compared = {
        row[side]
        for row in results["primary"]
        if Metric.named(row["metric"]).place == "reward_at_kl"
        for side in ("arm", "baseline")
    }

    def panel(axes: Axes, _metric: str, task: str, arms: Sequence[str]) -> bool:
        names = list(dict.fromkeys(sweep_of(results, arm) or arm for arm in arms))
        for place, name in enumerate(names):
            turn, colour = divmod(place, len(PALETTE))  # markers change after all colours
            style = (PALETTE[colour], MARKERS[turn % len(MARKERS)])
            _draw(
                axes,
                results,
                name,
                [arm for arm in arms if name in (arm, sweep_of(results, arm))],
                task,
                style,
            )
            if name in compared & results["arms"].keys():
                _draw_path(axes, results, name, task, style[0])
        if not axes.lines:
            return False
        (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
        for reward in _references(results, task, arms):
            wide, tall = max(right, 0) - min(left, 0), max(high, reward) - min(low, reward)
            if wide <= NEAR * (right - left) and tall <= NEAR * (high - low):
                axes.plot(0, reward, "x", color=REFERENCE, markersize=8, label="reference")
        axes.set_xlabel(OF_KL)
        axes.set_ylabel(label("task_reward"))
        return True

    arms = list(results["arms"])  # all together if sweeps, each in one colour, and other arms are few
    few = len({sweep_of(results, arm) or arm for arm in arms}) <= TOGETHER
    return grid(results, ["frontier"], panel, [arms] if few else groups_of(results))


def _draw(
    axes: Axes, results: Results, name: str, arms: Sequence[str], task: str, style: tuple[str, str]
) -> None:
    """The runs, means and intervals of an arm or of a sweep's arms, joined by rising setting."""
    (colour, marker), sweep = style, results["sweeps"].get(name)
    settings = dict(zip(sweep["arms"], sweep_settings(results, sweep, task), strict=True)) if sweep else {}
    means = []
    for arm in sorted(arms, key=lambda arm: settings.get(arm, 0)):
        kl, reward = (values_by_seed(results, arm, task, metric) for metric in ("kl", "task_reward"))
        seeds = sorted(kl.keys() & reward.keys())
        if seeds:
            x, y = [kl[seed] for seed in seeds], [reward[seed] for seed in seeds]
            mean = float(np.mean(x)), float(np.mean(y))
            means.append(mean)
            axes.plot(x, y, marker, color=colour, markersize=3, alpha=0.5)
            if math.isfinite((interval := statistics.interval(y)).low):
                axes.plot([mean[0]] * 2, interval, color=colour, linewidth=1)
            if sweep and name in list(results["sweeps"])[:2]:  # more would cover each other
                above = name == next(iter(results["sweeps"]))
                at: dict[str, Any] = {"xytext": (-7, 5) if above else (7, -12), "textcoords": "offset points"}
                side = "right" if above else "left"
                axes.annotate(written(settings[arm]), mean, color=colour, fontsize=9, ha=side, **at)
    if means:
        axes.plot(
            *zip(*means, strict=True), f"{marker}-", color=colour, markersize=8, linewidth=1, label=name
        )


def _draw_path(axes: Axes, results: Results, arm: str, task: str, colour: str) -> None:
    """The way of an arm during training: the mean over its runs at each KL that all its policies reach.

    Means at each iteration would lie below it: policies are then at other KLs, and the way bends down.
    """
    seeds = {run["seed"] for run in runs_of(results, task, arm)}
    points = []
    for at in np.linspace(0, axes.get_xlim()[1], STEPS):
        reward = values_by_seed(results, arm, task, f"reward_at_kl/{at:.9f}")
        if reward and reward.keys() == seeds:
            points.append((at, np.mean(list(reward.values()))))
    if len(points) > 1:
        axes.plot(*zip(*points, strict=True), ":", color=colour, linewidth=1.5)


def _references(results: Results, task: str, arms: Sequence[str]) -> list[float]:
    """Task rewards of the arms' references; those that are written alike are one."""
    rewards = {
        f"{points[-1][1]:.2f}": points[-1][1]
        for run in runs_of(results, task, *arms)
        for reference in references(run["eval"])
        if (points := reference.get("task_reward"))
    }
    return sorted(rewards.values())
