"""Figures over the iterations: learning curves, and the share of policies without collapse."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cory.report.figures import band, over_iterations
from cory.study import statistics
from cory.study.analysis import APART, curve, judged_by_team, metrics_of, survival
from cory.study.plots.panels import AT_KL, grid, groups_of, metric_label, style_of
from cory.study.results import Results
from cory.study.spec import ON

FEW = 12
"""Up to so many evaluations of a run, each is marked on its curve."""
NO_CURVE = ("hypervolume", "survival", AT_KL, APART, ON)
"""Beginnings of metrics that a run has once."""
THINNEST, WIDEST = 1.3, 6.0
"""Width in points of the last arm's share without collapse and of the first's, so that equal ones show."""


def draw_curves(
    results: Results, *, spread: Callable[[np.ndarray], tuple[Any, Any]] = statistics.interval
) -> Figure | None:
    """Every metric over the iterations, by group of arms; `spread` is the band of the values [n, T]."""
    shown = [metric for metric in metrics_of(results) if not metric.startswith(NO_CURVE)]

    def panel(axes: Axes, metric: str, task: str, arms: Sequence[str]) -> bool:
        drawn = False
        for arm in arms:
            runs = [run for run in results["runs"] if (run["arm"], run["task"]) == (arm, task)]
            found = [curve(run, metric, kl_coef=results["kl_coef"][task]) for run in runs]
            times = sorted(set.intersection(*map(set, found))) if found else []
            if times:
                values_nT = np.array([[one[t] for t in times] for one in found])
                style = style_of(results, arm) | {"marker": "o" if len(times) <= FEW else "", "markersize": 3}
                band(axes, times, values_nT.mean(0), *spread(values_nT), label=arm, **style)
                drawn = True
        over_iterations(axes)
        axes.set_ylabel(metric_label(metric))
        return drawn

    return grid(results, shown, panel, groups_of(results))


def draw_survival(results: Results) -> Figure | None:
    """The share of policies without a sign of collapse, for groups of arms in which any policy has one."""
    lost = {
        run["arm"] for run in results["runs"] if any(at is not None for at in run["collapsed_at"].values())
    }
    groups = [group for group in groups_of(results) if lost.intersection(group)]
    if judged_by_team(results) or not groups:
        return None

    def panel(axes: Axes, _metric: str, task: str, arms: Sequence[str]) -> bool:
        played = [
            (arm, runs)
            for arm in arms
            if (runs := [run for run in results["runs"] if (run["arm"], run["task"]) == (arm, task)])
        ]
        widths = np.linspace(WIDEST, THINNEST, len(played))
        for width, (arm, runs) in zip(widths, played, strict=True):
            times, shares = survival(runs)
            x, y = [*times, max(run["iterations"] for run in runs)], [*shares, shares[-1]]
            style = style_of(results, arm) | {"linewidth": width}
            axes.step(x, y, where="post", label=arm, solid_capstyle="butt", **style)
        axes.set_ylim(-0.05, 1.05)
        over_iterations(axes)
        axes.set_ylabel("policies without a sign of collapse (share)")
        return bool(played)

    return grid(results, ["survival"], panel, groups)
