"""Figures of differences between arms, and of arms that change one thing after another."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cory.report.plots import PALETTE, REFERENCE
from cory.study import statistics
from cory.study.analysis import OF_AVERAGE, values_by_seed
from cory.study.plots.panels import grid, metric_label, style_of
from cory.study.results import Results

AVERAGED = OF_AVERAGE + "combined_reward"


def draw_differences(results: Results) -> Figure | None:
    """The comparisons that have seeds, one row each, a panel per metric."""
    rows = [row for row in results["statistics"] if row["n"]]
    if not rows:
        return None
    names = list(dict.fromkeys(row["metric"] for row in rows))
    figure = Figure(figsize=(9, 0.5 * len(rows) + 0.8 * len(names) + 0.4), layout="constrained")
    heights = [1.0 + sum(row["metric"] == name for row in rows) for name in names]
    panels = figure.subplots(len(names), 1, squeeze=False, gridspec_kw={"height_ratios": heights}).flatten()
    for axes, name in zip(panels, names, strict=True):
        shown = [row for row in rows if row["metric"] == name]
        for y, row in enumerate(reversed(shown)):
            _draw_difference(axes, y, row, results)
        axes.axvline(0, color=REFERENCE, linewidth=0.8)
        axes.set_yticks(range(len(shown)), [_name(row, results) for row in reversed(shown)])
        axes.set_ylim(-0.6, len(shown) - 0.4)
        axes.set_xlabel(f"difference in {metric_label(name)}")
    return figure


def _draw_difference(axes: Axes, y: int, row: Mapping[str, Any], results: Results) -> None:
    color = {"supported": PALETTE[2], "refuted": PALETTE[1]}.get(row["result"], "#666666")
    arm = values_by_seed(results, row["arm"], row["task"], row["metric"])
    baseline = values_by_seed(results, row["baseline"], row["task"], row["baseline_metric"] or row["metric"])
    axes.plot([arm[s] - baseline[s] for s in row["seeds"]], [y - 0.2] * row["n"], ".", color=color, alpha=0.4)
    if row["low"] is not None:
        axes.plot([row["low"], row["high"]], [y, y], color=color, solid_capstyle="butt")
    axes.plot(row["difference"], y, "o", color=color)
    signs = {"higher": (1,), "lower": (-1,), "equal": (-1, 1)}[row["direction"]]
    for margin in (sign * row["margin"] for sign in signs if row["margin"]):
        axes.plot([margin, margin], [y - 0.4, y + 0.4], color=REFERENCE, linestyle=":")


def _name(row: Mapping[str, Any], results: Results) -> str:
    task = f" ({row['task']})" if len(results["kl_coef"]) > 1 else ""
    other = f" in {metric_label(row['baseline_metric'])}".partition(" (")[0] if row["baseline_metric"] else ""
    return f"{row['arm']} - {row['baseline']}{other}{task}"


def draw_ladder(results: Results) -> Figure | None:
    """Combined reward of the steps of the ladder, and of their averaged weights where all runs have it."""
    steps = results["ladder"]
    if len(steps) < 2:
        return None
    pairs = [(one["arm"], one["baseline"]) for one in results["primary"]]
    compared = dict.fromkeys(b for a, b in pairs if a in steps and b in results["arms"] and b not in steps)

    def values_of(arm: str, task: str, metric: str) -> list[float]:
        return list(values_by_seed(results, arm, task, metric).values())

    tasks = {run["task"] for run in results["runs"] if run["arm"] in steps}
    metrics = ["combined_reward"]
    if all(values_of(step, task, AVERAGED) for step in steps for task in tasks):
        metrics.append(AVERAGED)

    def limits(task: str) -> tuple[float, float]:
        shown = [
            value for arm in (*steps, *compared) for name in metrics for value in values_of(arm, task, name)
        ]
        room = 0.05 * (max(shown) - min(shown))
        return min(shown) - room, max(shown) + room

    def panel(axes: Axes, metric: str, task: str, _steps: Sequence[str]) -> bool:
        found = [values_of(arm, task, metric) for arm in steps]
        shown = [(x, values) for x, values in enumerate(found) if values]
        for x, values in shown:
            axes.plot([x] * len(values), values, ".", color=PALETTE[0], alpha=0.3)
            axes.plot([x, x], statistics.interval(values), color=PALETTE[0])
        axes.plot([x for x, _ in shown], [np.mean(values) for _, values in shown], "o-", color=PALETTE[0])
        for arm in compared:
            if values := values_of(arm, task, metric):
                color = style_of(results, arm)["color"]
                axes.axhline(float(np.mean(values)), color=color, linestyle="--", linewidth=1.2, label=arm)
        axes.set_xticks(range(len(steps)), steps, rotation=20, ha="right")
        axes.set_xlim(-0.3, len(steps) - 0.7)
        axes.set_ylabel(metric_label(metric))
        if shown and len(metrics) > 1:
            axes.set_ylim(limits(task))
        return bool(shown)

    return grid(results, metrics, panel, [steps])
