"""Figure of task reward against KL."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cory.report.figures import PALETTE, REFERENCE
from cory.study import statistics
from cory.study.analysis import sweep_settings, values_by_seed
from cory.study.plots.panels import TOGETHER, grid, groups_of, sweep_of
from cory.study.plots.sweeps import written
from cory.study.results import Results
from cory.tracking.labels import label

MARKERS = "os^D"
OF_KL = "KL to the reference (nats)"
NEAR = 3.0
"""How many times wider than the arms' range a panel may become to hold the reference."""
BESIDE = 0.08
"""Share of a panel's width and height below which the next mean is in the way of a setting's number."""
SAME = 0.03
"""Share of a panel's width and height below which two means are at the same place."""
FEW = 3
"""Up to so many arms of a reference are named beside others'; more are the other arms."""

Point = tuple[float, float, float]
"""Setting, KL and task reward."""


def draw_frontier(results: Results) -> Figure | None:
    """Task reward against KL at the end of training, a panel per group of arms."""

    def panel(axes: Axes, _metric: str, task: str, arms: Sequence[str]) -> bool:
        styles = _styles(results, arms)
        for arm in arms:
            _draw_arm(axes, results, arm, task, styles)
        named: list[Point] = []
        for name in results["sweeps"]:
            if name in styles:
                named += _draw_sweep(axes, results, name, task, arms, styles[name]["color"], named)
        drawn = bool(axes.lines)
        if drawn:
            _draw_references(axes, references(results, task, arms))
        axes.set_xlabel(OF_KL)
        axes.set_ylabel(label("task_reward"))
        return drawn

    return grid(results, ["frontier"], panel, frontier_groups(results))


def frontier_groups(results: Results) -> list[list[str]]:
    """The arms of each panel: all together if sweeps, each in one colour, and other arms are few."""
    arms = list(results["arms"])
    return [arms] if len({sweep_of(results, arm) or arm for arm in arms}) <= TOGETHER else groups_of(results)


def _styles(results: Results, arms: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colour and marker of the sweeps and of the other arms of a group; markers change after all colours."""
    sweeps = [name for name, sweep in results["sweeps"].items() if set(sweep["arms"]) & set(arms)]
    places = {name: divmod(i, len(PALETTE)) for i, name in enumerate([*sweeps, *_alone(results, arms)])}
    return {
        name: {"color": PALETTE[colour], "marker": MARKERS[turn % len(MARKERS)], "linestyle": "none"}
        for name, (turn, colour) in places.items()
    }


def _alone(results: Results, arms: Sequence[str]) -> list[str]:
    return [arm for arm in arms if sweep_of(results, arm) is None]


def _draw_arm(
    axes: Axes, results: Results, arm: str, task: str, styles: Mapping[str, Mapping[str, Any]]
) -> None:
    """The runs and the mean of an arm."""
    name = sweep_of(results, arm) or arm
    kl, reward = (values_by_seed(results, arm, task, one) for one in ("kl", "task_reward"))
    if seeds := sorted(kl.keys() & reward.keys()):
        x, y = [kl[seed] for seed in seeds], [reward[seed] for seed in seeds]
        axes.plot(x, y, markersize=3, alpha=0.5, **styles[name])
        axes.plot(np.mean(x), np.mean(y), label=name, markersize=8, **styles[name])


def _draw_sweep(
    axes: Axes,
    results: Results,
    name: str,
    task: str,
    arms: Sequence[str],
    color: str,
    named: Sequence[Point],
) -> list[Point]:
    """The line through a sweep's means by rising setting, in a band of the intervals of their rewards.

    Returns the means whose setting is written beside them: not where one of `named` has it at nearly the
    same place.
    """
    sweep, points, band = results["sweeps"][name], [], []
    for arm, setting in zip(sweep["arms"], sweep_settings(results, sweep, task), strict=True):
        kl, reward = (list(values_by_seed(results, arm, task, one).values()) for one in ("kl", "task_reward"))
        if kl and reward and arm in arms:
            centre, mean = float(np.mean(kl)), float(np.mean(reward))
            points.append((setting, centre, mean))
            if math.isfinite((interval := statistics.interval(reward)).low):
                axes.plot([centre, centre], interval, color=color, linewidth=1)
                band.append((setting, centre, *interval))
    points.sort()
    if len(band) > 1:
        _, x, low, high = np.array(sorted(band)).T
        axes.fill([*x, *x[::-1]], [*low, *high[::-1]], color=color, alpha=0.15, linewidth=0)
    if len(points) > 1:
        axes.plot([x for _, x, _ in points], [y for _, _, y in points], color=color, linewidth=1, alpha=0.7)
    shown = [
        point
        for point in points
        if not any(point[0] == other[0] and _apart(axes, point, other) < SAME for other in named)
    ]
    for point in shown:
        i = points.index(point)
        place = i if len(results["sweeps"]) == 1 else list(results["sweeps"]).index(name)
        _name_setting(axes, point, [*points[:i], *points[i + 1 :]], above=place % 2 == 0, color=color)
    return shown


def _apart(axes: Axes, point: Point, other: Point) -> float:
    """The distance of two means along the axis on which it is longer, as a share of the panel."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    return max(abs(point[1] - other[1]) / (right - left), abs(point[2] - other[2]) / (high - low))


def _name_setting(axes: Axes, point: Point, others: Sequence[Point], *, above: bool, color: str) -> None:
    """The setting beside its mean: above on the left or below on the right, but not towards a near mean."""
    setting, x, mean = point
    nearest = min(others, key=lambda other: _apart(axes, point, other), default=None)
    near = nearest is not None and nearest[1] != x and _apart(axes, point, nearest) < BESIDE
    to_the_left = nearest[1] > x if nearest and near else above
    offset = (-7 if to_the_left else 7, 5 if above else -12)
    at: dict[str, Any] = {"xytext": offset, "textcoords": "offset points", "fontsize": 9}
    axes.annotate(written(setting), (x, mean), ha="right" if to_the_left else "left", color=color, **at)


def references(results: Results, task: str, arms: Sequence[str]) -> list[tuple[float, str]]:
    """Task reward of each reference of the arms, and what it is; rewards that are written alike are one.

    Of several, each is that of named arms or sweeps; where one has many, these are the other arms.
    """
    found: dict[str, dict[str, float]] = {}
    for run in results["runs"]:
        points = run["eval"].get("reference", {}).get("task_reward")
        if points and run["task"] == task and run["arm"] in arms:
            found.setdefault(f"{points[-1][1]:z.2f}", {})[run["arm"]] = points[-1][1]
    everyone = {arm for rewards in found.values() for arm in rewards}
    names = {shown: _names(results, list(rewards), everyone) for shown, rewards in found.items()}
    most = max(names, key=lambda shown: len(names[shown]), default="")
    described = []
    for shown, rewards in found.items():
        many = shown == most and len(names[shown]) > FEW
        owners = "the other arms" if many else ", ".join(names[shown])
        words = f"reference of\n{owners}: {shown}" if len(found) > 1 else f"reference: {shown}"
        described.append((float(np.mean(list(rewards.values()))), words))
    return sorted(described)


def _names(results: Results, arms: Sequence[str], everyone: set[str]) -> list[str]:
    """The arms, those of a whole sweep by its name."""
    whole = {name for name, sweep in results["sweeps"].items() if everyone & set(sweep["arms"]) <= set(arms)}
    return list(dict.fromkeys(s if (s := sweep_of(results, arm)) in whole and s else arm for arm in arms))


def _draw_references(axes: Axes, found: Sequence[tuple[float, str]]) -> None:
    """A cross and words for each reference; only words where it is far from the arms.

    The arms keep their scale.
    """
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    far: list[str] = []
    beside: dict[str, Any] = {"textcoords": "offset points", "color": REFERENCE, "fontsize": 8}
    for reward, words in found:
        wide, tall = max(right, 0) - min(left, 0), max(high, reward) - min(low, reward)
        if wide <= NEAR * (right - left) and tall <= NEAR * (high - low):
            axes.plot(0, reward, "x", color=REFERENCE, markersize=8, markeredgewidth=1.6)
            axes.annotate(words, (0, reward), xytext=(8, -3), va="bottom", **beside)
        else:
            far.append(f"{words}, outside".replace("\n", " "))
    if far:
        lines = "\n".join(far)
        axes.annotate(lines, (0, 0), xycoords="axes fraction", xytext=(4, 4), va="bottom", **beside)
