"""Figure of a sweep over the payoff: what the seats earn together, and each of them."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure

from cory.report.figures import PALETTE
from cory.study import statistics
from cory.study.analysis import GAME_TOTAL, runs_of, sweep_settings, values_by_seed
from cory.study.metric import Metric
from cory.study.results import Results
from cory.tracking.labels import setting_label

COLOURS = LinearSegmentedColormap.from_list("payoff", [PALETTE[1], PALETTE[6], PALETTE[0]])
"""From competition to cooperation; the middle is seen on a white page and on a black one."""


def payoff_sweep(results: Results) -> Mapping[str, Any] | None:
    """The first sweep over the payoff of which two arms or more have runs."""
    played = {run["arm"] for run in results["runs"]}
    sweeps = (sweep for sweep in results["sweeps"].values() if sweep["setting"] == "payoff")
    return next((sweep for sweep in sweeps if len(played & set(sweep["arms"])) > 1), None)


def collective_by_payoff(results: Results, task: str) -> dict[float, list[float]]:
    """The collective reward of every run by lambda: of held-out games, else of the last training games."""
    sweep, by_lambda = payoff_sweep(results), {}
    for arm, at in zip(sweep["arms"], sweep_settings(results, sweep, task), strict=True) if sweep else ():
        by_lambda[at] = list(values_by_seed(results, arm, task, collective_metric(results, task)).values())
    return {at: values for at, values in sorted(by_lambda.items()) if values}


def collective_metric(results: Results, task: str) -> str:
    """The collective reward of held-out games where the runs played them, else of the last training games."""
    played = all(run.get("team") for run in runs_of(results, task))
    return "team/collective_reward" if played else GAME_TOTAL


def draw_payoff(results: Results) -> Figure | None:
    """Collective reward over lambda, and the observer's score over the pioneer's; a row for each task."""
    tasks = {task: by for task in results["kl_coef"] if (by := collective_by_payoff(results, task))}
    if not tasks:
        return None
    figure = Figure(figsize=(9.5, 3.3 * len(tasks)), layout="constrained")
    for (together, apart), (task, by_lambda) in zip(
        figure.subplots(len(tasks), 2, squeeze=False), tasks.items(), strict=True
    ):
        norm = Normalize(min(by_lambda), max(by_lambda))
        for at, values in by_lambda.items():
            colour = COLOURS(norm(at))
            together.plot([at] * len(values), values, ".", color=colour, alpha=0.5)
            together.plot(at, np.mean(values), "o", color=colour, markeredgecolor="0.3")
            if math.isfinite((ends := statistics.interval(values)).low):
                together.plot([at, at], ends, color=colour)
        means = [float(np.mean(values)) for values in by_lambda.values()]
        together.plot(list(by_lambda), means, color=PALETTE[6], linewidth=1, zorder=0)
        together.set_xlabel(setting_label("payoff"))
        together.set_ylabel(Metric.named(collective_metric(results, task)).label.replace(" (", "\n("))
        _draw_seats(apart, results, task, norm)
        figure.colorbar(
            ScalarMappable(norm, COLOURS),
            ax=apart,
            label="competition \N{LEFTWARDS ARROW} λ \N{RIGHTWARDS ARROW} cooperation",
        )
        if len(tasks) > 1:
            together.set_title(task)
    return figure


def _draw_seats(axes: Axes, results: Results, task: str, norm: Normalize) -> None:
    """The runs and their means: the last observer's score over the pioneer's."""
    sweep = payoff_sweep(results)
    assert sweep is not None
    place = Metric.named(collective_metric(results, task)).place
    seats = "held-out" if place == "team" else "training"
    for arm, at in zip(sweep["arms"], sweep_settings(results, sweep, task), strict=True):
        points = []
        for run in runs_of(results, task, arm):
            scores = [run[place][seat]["task_reward"][-1][1] for seat in run["game"]]
            points.append((scores[0], scores[-1]))
        if points:
            axes.plot(*np.array(points).T, ".", color=COLOURS(norm(at)), alpha=0.5)
            axes.plot(*np.mean(points, 0), "o", color=COLOURS(norm(at)), markersize=8, markeredgecolor="0.3")
    axes.set_xlabel(f"pioneer's score, {seats} games")
    axes.set_ylabel(f"observer's score, {seats} games")
