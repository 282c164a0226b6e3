"""Figures of a study: differences, learning curves, frontier, sweeps, survival."""

from pathlib import Path

from cory.report.figures import Kind, Plot, draw_kinds
from cory.study import statistics
from cory.study.plots.comparisons import draw_differences
from cory.study.plots.curves import draw_curves, draw_survival
from cory.study.plots.frontier import draw_frontier, frontier_groups
from cory.study.plots.panels import groups_of
from cory.study.plots.sweeps import draw_sweeps
from cory.study.results import Results

FOREST = (
    "Difference of arm and baseline at equal seeds with its 95 % interval; dots: seeds; dotted line: the "
    f"margin. No interval below {statistics.MIN_RUNS} seeds."
)
EXPLORED = (
    "Difference to the first arm over the runs at equal seeds, with its 95 % interval; small dots: single "
    "seeds. Green: the whole interval is on the better side of zero; red: none of it. These comparisons were "
    f"not fixed before the runs. Without an interval: fewer than {statistics.MIN_RUNS} seeds."
)
CURVES = f"Mean over the runs of each arm; shaded: its 95 % interval, from {statistics.MIN_RUNS} runs on."
FRONTIER = (
    "Task reward against KL at the end of training: small points are runs, large ones means of arms, with 95 "
    "% intervals; lines join the arms of a sweep, named by their settings. The cross is the reference."
)
SWEEPS = "A metric over one setting: mean over the runs of each arm, bars are 95 % intervals; dots: runs."
SURVIVAL = (
    "Share of policies without a sign of collapse (Kaplan-Meier) over the evaluated iterations. "
    "Each line is thinner than the one before it, so that equal ones can be seen."
)
GROUPS = " Arms are drawn in groups, each with its own colours and scale."
LEFT_OUT = " Groups in which no policy collapsed are left out."


def draw(results: Results, folder: Path, *, declared: bool = True) -> list[Plot]:
    """Draw every figure the results have numbers for, as `folder/*.png`.

    `declared` is whether the comparisons were fixed before the runs.
    """
    forest = ("Primary comparisons", FOREST) if declared else ("Differences to the first arm", EXPLORED)
    groups = GROUPS if len(groups_of(results)) > 1 else ""
    panels = GROUPS if len(frontier_groups(results)) > 1 else ""
    kinds: list[Kind[Results]] = [
        ("differences", *forest, draw_differences),
        ("curves", "Learning curves", CURVES + groups, draw_curves),
        ("frontier", "Task reward against KL", FRONTIER + panels, draw_frontier),
        ("sweeps", "Sweeps", SWEEPS, draw_sweeps),
        ("survival", "Collapse", SURVIVAL + (groups and groups + LEFT_OUT), draw_survival),
    ]
    return draw_kinds(kinds, results, folder)
