"""Figures over one setting."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from cory.report.figures import PALETTE
from cory.study import statistics
from cory.study.analysis import metrics_of, sweep_settings, values_by_seed
from cory.study.plots.panels import grid, metric_label
from cory.study.results import Results
from cory.tracking.labels import setting_label


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
        axes.set_ylabel(metric_label(metric))
        return bool(axes.lines)

    shown = [metric for metric in metrics_of(results) if "hypervolume" not in metric]
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
