"""Figures of a study over iterations, over settings and of differences."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from cory.report.figures import PALETTE, REFERENCE, band, over_iterations
from cory.study import statistics, survival
from cory.study.analysis import (
    curve,
    judged_by_team,
    metrics_of,
    runs_of,
    sweep_settings,
    values_by_seed,
)
from cory.study.metric import Metric
from cory.study.plots.panels import grid, groups_of, style_of
from cory.study.results import Results
from cory.tracking.labels import label, setting_label

FEW = 12
"""Up to so many evaluations of a run, each is marked on its curve."""
THINNEST, WIDEST = 1.3, 6.0
"""Width in points of the last arm's share without collapse and of the first's, so that equal ones show."""


def draw_curves(
    results: Results, *, spread: Callable[[np.ndarray], tuple[Any, Any]] = statistics.interval
) -> Figure | None:
    """Every metric over the iterations, by group of arms; `spread` is the band of the values [n, T]."""
    shown = [metric for metric in metrics_of(results) if not Metric.named(metric).is_once]

    def panel(axes: Axes, metric: str, task: str, arms: Sequence[str]) -> bool:
        drawn = False
        for arm in arms:
            kl_coef = results["kl_coef"][task]
            curves = [curve(run, metric, kl_coef=kl_coef) for run in runs_of(results, task, arm)]
            times = sorted(set.intersection(*map(set, curves))) if curves else []
            if times:
                values_nT = np.array([[values[t] for t in times] for values in curves])
                style = style_of(results, arm) | {"marker": "o" if len(times) <= FEW else "", "markersize": 3}
                band(axes, times, values_nT.mean(0), *spread(values_nT), label=arm, **style)
                drawn = True
        over_iterations(axes)
        axes.set_ylabel(Metric.named(metric).label)
        return drawn

    return grid(results, shown, panel, groups_of(results))


def draw_survival(results: Results) -> Figure | None:
    """The share of policies without a sign of collapse, for groups of arms in which any policy has one.

    Over the iterations, and over the KL where a comparison is of that.
    """
    lost = {
        run["arm"] for run in results["runs"] if any(at is not None for at in run["collapsed_at"].values())
    }
    groups = [group for group in groups_of(results) if lost.intersection(group)]
    if judged_by_team(results) or not groups:
        return None

    def panel(axes: Axes, metric: str, task: str, arms: Sequence[str]) -> bool:
        played = [(arm, runs) for arm in arms if (runs := runs_of(results, task, arm))]
        widths = np.linspace(WIDEST, THINNEST, len(played))
        for width, (arm, runs) in zip(widths, played, strict=True):
            x, y = survival.shares([life for run in runs for life in survival.lives_of(run, metric)])
            if metric == "survival":
                x, y = [*x, max(run["iterations"] for run in runs)], [*y, y[-1]]
            style = style_of(results, arm) | {"linewidth": width}
            axes.step(x, y, where="post", label=arm, solid_capstyle="butt", **style)
        axes.set_ylim(-0.05, 1.05)
        if metric == "survival":
            over_iterations(axes)
        else:
            axes.set_xlabel(label("kl"))
        axes.set_ylabel("policies without a sign of collapse (share)")
        return bool(played)

    shown = [metric for metric in survival.METRICS if metric in ("survival", *metrics_of(results))]
    return grid(results, shown, panel, groups)


def draw_sweeps(results: Results) -> Figure | None:
    """Every metric over the settings of the sweeps; those over one setting share panels."""
    by_setting: dict[str, list[str]] = {}
    for name, sweep in results["sweeps"].items():
        by_setting.setdefault(sweep["setting"], []).append(name)

    def panel(axes: Axes, metric: str, task: str, names: Sequence[str]) -> bool:
        shown = [results["sweeps"][name] for name in names]
        for name, sweep in zip(names, shown, strict=True):
            color = PALETTE[list(results["sweeps"]).index(name) % len(PALETTE)]
            _draw_sweep(axes, results, metric, task, sweep, {"color": color, "label": name})
        settings = {at for sweep in shown for at in sweep_settings(results, sweep, task)}
        if any(sweep["log"] for sweep in shown):
            axes.set_xscale("log")
            axes.set_xticks(sorted(settings), [written(at) for at in sorted(settings)])
            axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel(setting_label(shown[0]["setting"]))
        axes.set_ylabel(Metric.named(metric).label)
        return bool(axes.lines)

    shown = [metric for metric in metrics_of(results) if metric != "hypervolume"]
    return grid(results, shown, panel, list(by_setting.values())) if by_setting else None


def written(number: float) -> str:
    """A setting as short as it can be written: 0.4, 1.5e-4."""
    if not 0 < abs(number) < 1e-3:
        return f"{number:g}"
    digits, exponent = f"{number:e}".split("e")
    return f"{float(digits):g}e{int(exponent)}"


def _draw_sweep(
    axes: Axes, results: Results, metric: str, task: str, sweep: Mapping[str, Any], style: Mapping[str, Any]
) -> None:
    """The line through the means of a sweep's arms, their intervals and their runs."""
    points, color, settings = [], style["color"], sweep_settings(results, sweep, task)
    for arm, at in zip(sweep["arms"], settings, strict=True):
        if values := list(values_by_seed(results, arm, task, metric).values()):
            points.append((at, float(np.mean(values))))
            axes.plot([at] * len(values), values, ".", color=color, alpha=0.3)
            if math.isfinite((interval := statistics.interval(values)).low):
                axes.plot([at, at], interval, color=color)
    if points:
        axes.plot(*zip(*sorted(points), strict=True), "o-", **style)


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
        axes.set_xlabel(f"difference in {Metric.named(name).label}")
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
    for margin in (row.get("expected", 0.0) + sign * row["margin"] for sign in signs if row["margin"]):
        axes.plot([margin, margin], [y - 0.4, y + 0.4], color=REFERENCE, linestyle=":")


def _name(row: Mapping[str, Any], results: Results) -> str:
    task = f" ({row['task']})" if len(results["kl_coef"]) > 1 else ""
    metric = row["baseline_metric"]
    other = f" in {Metric.named(metric).label}".partition(" (")[0] if metric else ""
    return f"{row['arm']} - {row['baseline']}{other}{task}"
