"""What the figures of a study share: groups of arms, their colours, labels, and panels by metric and task."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cory.report.figures import add_legend, fill, line_style
from cory.study.results import Results

TOGETHER = 12
"""Up to so many arms are one group."""
GROUP = 9
"""Most arms of a group where there are several."""
COLUMN = 2.2
"""Width in inches of a column of a legend, where no name needs more."""

Panel = Callable[[Axes, str, str, Sequence[str]], bool]
"""Draws a metric on a task for a group of names; whether anything was drawn."""


def sweep_of(results: Results, arm: str) -> str | None:
    """The first sweep that an arm belongs to."""
    return next((name for name, sweep in results["sweeps"].items() if arm in sweep["arms"]), None)


def groups_of(results: Results) -> list[list[str]]:
    """The arms in groups that are drawn apart: all together if they are few.

    Else the arms of a sweep are a group, and so are those of one number of seats, on which sums of scores
    depend; in parts of about equal size where they are more than `GROUP`.
    """
    arms = list(results["arms"])
    if len(arms) <= TOGETHER:
        return [arms]
    kinds: dict[Any, list[str]] = {}
    for arm in arms:
        seats = str([config.get("seats") for config in results["arms"][arm]["config"].values()])
        kinds.setdefault(sweep_of(results, arm) or seats, []).append(arm)
    return [part for kind in kinds.values() for part in _parts(kind)]


def _parts(arms: Sequence[str]) -> list[list[str]]:
    count = math.ceil(len(arms) / GROUP)
    ends = [round(i * len(arms) / count) for i in range(count + 1)]
    return [list(arms[start:end]) for start, end in pairwise(ends)]


def style_of(results: Results, arm: str) -> dict[str, Any]:
    """Colour and line of an arm in its group, the same in all figures; lines change after all colours."""
    place = next(group.index(arm) for group in groups_of(results) if arm in group)
    return line_style(place)


def grid(
    results: Results, metrics: Sequence[str], panel: Panel, groups: Sequence[Sequence[str]]
) -> Figure | None:
    """A figure with a panel per metric and task that has runs, once for each group; None if all are empty.

    Without KL coefficient combined reward is task reward, and is left out beside it.
    """
    played = {run["task"] for run in results["runs"]}
    pairs = [
        (metric, task)
        for metric in metrics
        for task, kl_coef in results["kl_coef"].items()
        if task in played and (metric != "combined_reward" or kl_coef or "task_reward" not in metrics)
    ]
    if not pairs:
        return None

    def draw(group: Sequence[str], axes: Axes, pair: tuple[str, str]) -> bool:
        if len(results["kl_coef"]) > 1:
            axes.set_title(pair[1])
        return panel(axes, *pair, group)

    alone = len(groups) == 1
    across = 1 if alone or len(pairs) > 1 else 2  # groups beside each other
    width = 11.1 if not alone else 9.5 if len(pairs) > 1 else 6.5
    figure = Figure(figsize=(width, 1), layout="constrained")
    spec = figure.add_gridspec(math.ceil(len(groups) / across), across)
    heights = [0.0] * spec.nrows
    for i, group in enumerate(groups):
        row, column = divmod(i, across)
        block = figure.add_subfigure(spec[row, column])
        columns = min(2 if alone else 3, len(pairs))
        lines = fill(block, pairs, partial(draw, group), columns)
        if lines is not None:
            names = add_legend(block, lines, "lower", COLUMN)
            tall = (3.1 if columns < 3 else 2.7) * math.ceil(len(pairs) / columns)
            heights[row] = max(heights[row], tall + 0.3 + 0.23 * math.ceil(len(lines) / names))
    if not any(heights):
        return None
    spec.set_height_ratios([height or 0.01 for height in heights])
    figure.set_figheight(sum(heights))
    return figure
