"""Figures of a study: differences, learning curves, frontier, sweeps, survival."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cory.report.plots import DASHES, PALETTE, REFERENCE, Kind, Plot, draw_kinds, over_iterations
from cory.study import statistics
from cory.study.analysis import (
    between,
    curve,
    judged_by_team,
    metrics_of,
    survival,
    sweep_settings,
    values_by_seed,
)
from cory.study.results import Results
from cory.study.spec import BETWEEN, ON

MARKERS = "os^D"
FEW = 12
"""Up to so many evaluations of a run, each is marked on its curve."""
APART = 0.008
"""How far below the line before it an arm's share without collapse is drawn, so that both show."""
OF_KL = "KL to the reference (nats)"
NEAR = 3.0
"""How many times wider than the arms' range a panel may become to hold the reference."""
FOREST = (
    "Difference of arm and baseline over the runs at equal seeds, with its 95 % interval; small dots: single "
    "seeds. The dotted line is the margin of the study file. Without an interval: fewer than "
    f"{statistics.MIN_RUNS} seeds."
)
EXPLORED = (
    "Difference to the first arm over the runs at equal seeds, with its 95 % interval; small dots: single "
    "seeds. Green: the whole interval is on the better side of zero; red: none of it. These comparisons were "
    f"not fixed before the runs. Without an interval: fewer than {statistics.MIN_RUNS} seeds."
)
CURVES = (
    "Interquartile mean over the runs of each arm (a run is the mean of its policies); shaded: the middle "
    "half of the runs."
)
FRONTIER = (
    "Task reward against KL at the end of training: one small point per run, a large one per arm (mean). "
    "Lines join the arms of a sweep, whose settings stand beside them; shaded: 95 % intervals of the mean "
    "reward. The cross is the reference, named below the axis where it is far from the arms. "
    "Dashed: weights between the reference's and the policies'."
)
SWEEPS = (
    "A metric over one setting: mean over the runs of each arm, bars are 95 % intervals; dots: runs. "
    "Dashed: the best possible play, where the study file knows it."
)
LADDER = (
    "Combined reward of arms of which each changes one thing more than the one to its left: mean over the "
    "runs with its 95 % interval; dots: runs. Dashed: arms that primary comparisons compare them with."
)
SURVIVAL = (
    "Share of policies without a sign of collapse (Kaplan-Meier) over the evaluated iterations. "
    "Each line is drawn slightly below the one before it, so that equal ones can be seen."
)


def draw(results: Results, folder: Path, *, declared: bool = True) -> list[Plot]:
    """Draw every figure the results have numbers for, as `folder/*.png`.

    `declared` is whether the comparisons were fixed before the runs.
    """
    forest = ("Primary comparisons", FOREST) if declared else ("Differences to the first arm", EXPLORED)
    kinds: list[Kind[Results]] = [
        ("differences", *forest, _forest),
        ("curves", "Learning curves", CURVES, _curves),
        ("frontier", "Task reward against KL", FRONTIER, _frontier),
        ("ladder", "Step by step", LADDER, _ladder),
        ("sweeps", "Sweeps", SWEEPS, _sweeps),
        ("survival", "Collapse", SURVIVAL, _survival),
    ]
    return draw_kinds(kinds, results, folder)


def style_of(results: Results, arm: str) -> dict[str, Any]:
    """Colour and line of an arm, the same in all figures; lines change when colours are used up."""
    turn, place = divmod(list(results["arms"]).index(arm), len(PALETTE))
    return {"color": PALETTE[place], "linestyle": DASHES[turn % len(DASHES)]}


def sweep_of(results: Results, arm: str) -> str | None:
    """The first sweep that an arm belongs to."""
    return next((name for name, sweep in results["sweeps"].items() if arm in sweep["arms"]), None)


def frontier_style(results: Results, arm: str) -> dict[str, Any]:
    """Colour and marker of an arm, or of its sweep; markers change when colours are used up."""
    alone = [one for one in results["arms"] if sweep_of(results, one) is None]
    turn, place = divmod([*results["sweeps"], *alone].index(sweep_of(results, arm) or arm), len(PALETTE))
    return {"color": PALETTE[place], "marker": MARKERS[turn % len(MARKERS)], "linestyle": "none"}


def _forest(results: Results) -> Figure | None:
    rows = [row for row in results["statistics"] if row["n"]]
    if not rows:
        return None
    names = list(dict.fromkeys(row["metric"] for row in rows))
    figure = Figure(figsize=(9, 0.5 * len(rows) + 0.8 * len(names) + 0.4), layout="constrained")
    heights = [1.0 + sum(row["metric"] == name for row in rows) for name in names]
    grid = figure.subplots(len(names), 1, squeeze=False, gridspec_kw={"height_ratios": heights}).flatten()
    for axes, name in zip(grid, names, strict=True):
        shown = [row for row in rows if row["metric"] == name]
        for y, row in enumerate(reversed(shown)):
            _draw_difference(axes, y, row, results)
        axes.axvline(0, color=REFERENCE, linewidth=0.8)
        axes.set_yticks(range(len(shown)), [_name(row, results) for row in reversed(shown)])
        axes.set_ylim(-0.6, len(shown) - 0.4)
        axes.set_xlabel(f"difference in {name}")
    return figure


def _draw_difference(axes: Axes, y: int, row: Mapping[str, Any], results: Results) -> None:
    color = {"supported": PALETTE[2], "refuted": PALETTE[1]}.get(row["result"], "#666666")
    arm, baseline = (values_by_seed(results, row[k], row["task"], row["metric"]) for k in ("arm", "baseline"))
    axes.plot([arm[s] - baseline[s] for s in row["seeds"]], [y - 0.2] * row["n"], ".", color=color, alpha=0.4)
    if row["low"] is not None:
        axes.plot([row["low"], row["high"]], [y, y], color=color, solid_capstyle="butt")
    axes.plot(row["difference"], y, "o", color=color)
    signs = {"higher": (1,), "lower": (-1,), "equal": (-1, 1)}[row["direction"]]
    for margin in (sign * row["margin"] for sign in signs if row["margin"]):
        axes.plot([margin, margin], [y - 0.4, y + 0.4], color=REFERENCE, linestyle=":")


def _name(row: Mapping[str, Any], results: Results) -> str:
    task = f" ({row['task']})" if len(results["kl_coef"]) > 1 else ""
    return f"{row['arm']} - {row['baseline']}{task}"


def _curves(results: Results) -> Figure | None:
    no_curve = ("hypervolume", "survival", "reward_at_kl/", BETWEEN, ON)
    shown = [metric for metric in metrics_of(results) if not metric.startswith(no_curve)]

    def panel(axes: Axes, metric: str, task: str) -> bool:
        drawn = False
        for arm in results["arms"]:
            runs = [run for run in results["runs"] if (run["arm"], run["task"]) == (arm, task)]
            found = [curve(run, metric, kl_coef=results["kl_coef"][task]) for run in runs]
            times = sorted(set.intersection(*map(set, found))) if found else []
            if times:
                values_nT = np.array([[one[t] for t in times] for one in found])
                style = style_of(results, arm) | {"marker": "o" if len(times) <= FEW else "", "markersize": 3}
                axes.plot(times, statistics.iqm(values_nT, axis=0), label=arm, **style)
                low_T, high_T = np.quantile(values_nT, [0.25, 0.75], axis=0)
                axes.fill_between(times, low_T, high_T, color=style["color"], alpha=0.15)
                drawn = True
        over_iterations(axes)
        axes.set_ylabel(metric)
        return drawn

    return _grid(results, shown, panel)


def _frontier(results: Results) -> Figure | None:
    def panel(axes: Axes, _metric: str, task: str) -> bool:
        for arm in results["arms"]:
            kl, reward = (values_by_seed(results, arm, task, one) for one in ("kl", "task_reward"))
            if seeds := sorted(kl.keys() & reward.keys()):
                x, y, style = [kl[s] for s in seeds], [reward[s] for s in seeds], frontier_style(results, arm)
                axes.plot(x, y, markersize=3, alpha=0.5, **style)
                axes.plot(np.mean(x), np.mean(y), label=sweep_of(results, arm) or arm, markersize=8, **style)
            _draw_between(axes, results, arm, task)
        for sweep in results["sweeps"]:
            _draw_sweep(axes, results, sweep, task)
        axes.set_xlabel(OF_KL)
        _draw_references(axes, sorted(_references(results, task)) if axes.lines else [])
        axes.set_ylabel("task reward")
        return bool(axes.lines)

    return _grid(results, ["frontier"], panel)


def _draw_references(axes: Axes, rewards: Sequence[float]) -> None:
    """A cross for each reference; where it is far from the arms, which keep their scale, words below them."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    for reward in rewards:
        wide, tall = max(right, 0) - min(left, 0), max(high, reward) - min(low, reward)
        if wide <= NEAR * (right - left) and tall <= NEAR * (high - low):
            axes.plot(0, reward, "x", color=REFERENCE, markersize=8, markeredgewidth=1.6)
        else:
            axes.set_xlabel(f"{OF_KL}, which has {reward:z.2f}")


def _draw_sweep(axes: Axes, results: Results, name: str, task: str) -> None:
    """The line through a sweep's means by rising KL, with the intervals of their rewards and the settings."""
    sweep, points = results["sweeps"][name], []
    color = frontier_style(results, sweep["arms"][0])["color"]
    above = list(results["sweeps"]).index(name) % 2 == 0
    side, offset = ("right", (-7, 5)) if above else ("left", (7, -12))
    beside: dict[str, Any] = {"xytext": offset, "textcoords": "offset points", "ha": side, "color": color}
    for arm, setting in zip(sweep["arms"], sweep_settings(results, sweep, task), strict=True):
        kl, reward = (list(values_by_seed(results, arm, task, one).values()) for one in ("kl", "task_reward"))
        if kl and reward:
            centre, mean = float(np.mean(kl)), float(np.mean(reward))
            low, high = (mean if math.isnan(end) else end for end in statistics.bca(reward))
            points.append((centre, mean, low, high))
            if sweep_of(results, arm) == name:
                axes.annotate(f"{setting:g}", (centre, mean), **beside)
    if len(points) > 1:
        x, means, lows, highs = np.array(sorted(points)).T
        axes.plot(x, means, color=color, linewidth=1, alpha=0.7)
        axes.fill_between(x, lows, highs, color=color, alpha=0.12, linewidth=0)


def _draw_between(axes: Axes, results: Results, arm: str, task: str) -> None:
    """The dashed line through interpolated weights: means over the policies of the arm's runs."""
    runs = [run for run in results["runs"] if (run["arm"], run["task"]) == (arm, task)]
    if curves := [curve for run in runs for curve in between(run)]:
        x, y = np.mean(np.array(curves), axis=0)
        axes.plot(x, y, "--", color=frontier_style(results, arm)["color"], linewidth=1, alpha=0.7)


def _references(results: Results, task: str) -> set[float]:
    """The task rewards of the runs' references."""
    found = [
        run["eval"].get("reference", {}).get("task_reward") for run in results["runs"] if run["task"] == task
    ]
    return {points[-1][1] for points in found if points}


def _ladder(results: Results) -> Figure | None:
    steps = results["ladder"]
    if len(steps) < 2:
        return None
    pairs = [(one["arm"], one["baseline"]) for one in results["primary"]]
    compared = dict.fromkeys(b for a, b in pairs if a in steps and b in results["arms"] and b not in steps)

    def panel(axes: Axes, metric: str, task: str) -> bool:
        found = [list(values_by_seed(results, arm, task, metric).values()) for arm in steps]
        shown = [(x, values) for x, values in enumerate(found) if values]
        for x, values in shown:
            axes.plot([x] * len(values), values, ".", color=PALETTE[0], alpha=0.3)
            axes.plot([x, x], statistics.bca(values), color=PALETTE[0])
        axes.plot([x for x, _ in shown], [np.mean(values) for _, values in shown], "o-", color=PALETTE[0])
        for arm in compared:
            if values := list(values_by_seed(results, arm, task, metric).values()):
                color = style_of(results, arm)["color"]
                axes.axhline(float(np.mean(values)), color=color, linestyle="--", linewidth=1.2, label=arm)
        axes.set_xticks(range(len(steps)), steps, rotation=20, ha="right")
        axes.set_xlim(-0.3, len(steps) - 0.7)
        axes.set_ylabel(metric)
        return bool(shown)

    return _grid(results, ["combined_reward"], panel)


def _sweeps(results: Results) -> Figure | None:
    if not results["sweeps"]:
        return None

    def panel(axes: Axes, metric: str, task: str) -> bool:
        for i, (name, sweep) in enumerate(results["sweeps"].items()):
            points = []
            settings = sweep_settings(results, sweep, task)
            for arm, at in zip(sweep["arms"], settings, strict=True):
                values = list(values_by_seed(results, arm, task, metric).values())
                if values:
                    points.append((at, float(np.mean(values)), statistics.bca(values)))
                    axes.plot([at] * len(values), values, ".", color=PALETTE[i % len(PALETTE)], alpha=0.3)
            points.sort()
            color = PALETTE[i % len(PALETTE)]
            axes.plot([p[0] for p in points], [p[1] for p in points], "o-", color=color, label=name)
            for at, _, interval in points:
                if math.isfinite(interval.low):
                    axes.plot([at, at], interval, color=color)
            if metric in sweep["best_play"]:
                best = sorted(zip(settings, sweep["best_play"][metric], strict=True))
                axes.plot(*zip(*best, strict=True), "k--", label="best play")
            if sweep["log"]:
                axes.set_xscale("log")
            axes.set_xlabel(sweep["setting"])
        axes.set_ylabel(metric)
        return bool(axes.lines)

    return _grid(results, [m for m in metrics_of(results) if "hypervolume" not in m], panel)


def _survival(results: Results) -> Figure | None:
    lost = any(at is not None for run in results["runs"] for at in run["collapsed_at"].values())
    if judged_by_team(results) or not lost:
        return None

    def panel(axes: Axes, _metric: str, task: str) -> bool:
        for place, arm in enumerate(results["arms"]):
            runs = [run for run in results["runs"] if (run["arm"], run["task"]) == (arm, task)]
            if runs:
                times, shares = survival(runs)
                horizon = max(run["iterations"] for run in runs)
                x, y = [*times, horizon], [share - APART * place for share in (*shares, shares[-1])]
                axes.step(x, y, where="post", label=arm, **style_of(results, arm))
        axes.set_ylim(-0.03 - APART * len(results["arms"]), 1.03)
        over_iterations(axes)
        axes.set_ylabel("share without collapse")
        return bool(axes.lines)

    return _grid(results, ["survival"], panel)


def _grid(results: Results, metrics: list[str], panel: Callable[[Axes, str, str], bool]) -> Figure | None:
    """A figure with a panel per metric and task that has runs, two to a row; None if nothing is drawn."""
    played = {run["task"] for run in results["runs"]}
    pairs = [(metric, task) for metric in metrics for task in results["kl_coef"] if task in played]
    if not pairs:
        return None
    columns = min(2, len(pairs))
    rows = math.ceil(len(pairs) / columns)
    figure = Figure(figsize=(9.5 if columns == 2 else 6.5, 3.1 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).flatten()
    drawn = False
    handles: dict[Any, Any] = {}
    for axes, (metric, task) in zip(grid, pairs, strict=False):
        if not panel(axes, metric, task):
            axes.remove()
            continue
        drawn = True
        if len(results["kl_coef"]) > 1:
            axes.set_title(task)
        lines, labels = axes.get_legend_handles_labels()
        handles |= dict(zip(labels, lines, strict=True))
    for axes in grid[len(pairs) :]:
        axes.remove()
    if not drawn:
        return None
    figure.set_figheight(3.1 * rows + 0.3 + 0.23 * math.ceil(len(handles) / (2 * columns)))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=2 * columns)
    return figure
