"""The figure of a suite: arms over all tasks, and how their runs are spread."""

import numpy as np
from matplotlib.figure import Figure

from cory.report.figures import REFERENCE
from cory.study import suite
from cory.study.plots.panels import style_of
from cory.study.results import Results

THRESHOLDS = 201
"""Points of a performance profile."""


def draw_suite(results: Results) -> Figure | None:
    """Interquartile means with intervals beside performance profiles; None without arms with all tasks."""
    scores = suite.scores_of(results)
    if not scores:
        return None
    figure = Figure(figsize=(9.5, max(3.2, 0.8 + 0.3 * len(scores))), layout="constrained")
    left, right = figure.subplots(1, 2)
    runs = np.concatenate([n for of_arm in scores.values() for n in of_arm.values()])
    thresholds_P = np.linspace(min(0.0, runs.min()), max(1.0, runs.max()), THRESHOLDS)
    for y, (arm, of_arm) in enumerate(scores.items()):
        style = style_of(results, arm)
        value, low, high = suite.estimate(suite.interquartile_mean, of_arm)
        left.plot([low, high], [-y, -y], color=style["color"])
        left.plot(value, -y, "o", color=style["color"])
        right.plot(thresholds_P, suite.profile(of_arm, thresholds_P), label=arm, **style)
    left.set_yticks([-y for y in range(len(scores))], list(scores))
    left.set_ylim(0.5 - len(scores), 0.5)
    left.set_xlabel("score, interquartile mean")
    left.axvline(1, color=REFERENCE, linestyle=":")
    right.set_xlabel("score")
    right.set_ylabel("runs above it (share)")
    right.legend(fontsize=8)
    return figure
