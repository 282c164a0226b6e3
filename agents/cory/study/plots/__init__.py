"""Figures of a study: differences, learning curves, frontier, sweeps, survival."""

from pathlib import Path

from cory.report.figures import Kind, Plot, draw_kinds
from cory.study import statistics
from cory.study.plots.curves import draw_curves, draw_differences, draw_survival, draw_sweeps
from cory.study.plots.frontier import draw_frontier
from cory.study.plots.panels import groups_of
from cory.study.plots.payoff import draw_payoff
from cory.study.plots.suite import draw_suite
from cory.study.results import Results

PAYOFF = (
    "Left: the sum of the seats' scores; right: the observer's over the pioneer's. Small points are runs, "
    "large ones means of arms; bars are 95 % intervals."
)
FOREST = (
    "Difference of arm and baseline at equal seeds with its 95 % interval; dots: seeds; dotted line: the "
    f"margin. No interval below {statistics.MIN_RUNS} seeds."
)
CURVES = f"Mean over the runs of each arm; shaded: its 95 % interval, from {statistics.MIN_RUNS} runs on."
FRONTIER = (
    "Task reward against KL at the end of training: small points are runs, large ones means of arms, with 95 "
    "% intervals; lines join the arms of a sweep, named by their settings. Dotted: means at an equal KL "
    "during training, where a claim is at one. The cross is the reference, where it is near."
)
SWEEPS = "A metric over one setting: mean over the runs of each arm, bars are 95 % intervals; dots: runs."
SURVIVAL = (
    "Share of policies without a sign of collapse (Kaplan-Meier) over the evaluated iterations, or KL. "
    "Each line is thinner than the one before it, so that equal ones can be seen."
)
SUITE = (
    "Left: interquartile mean of the scores over all tasks with its 95 % bootstrap interval; 0 is the "
    "reference, 1 the best known. Right: the share of runs with a score above each one."
)
GROUPS = " Arms are drawn in groups, each with its own colours and scale."


def draw(results: Results, folder: Path) -> list[Plot]:
    """Draw every figure the results have numbers for, as `folder/*.png`."""
    groups = GROUPS if len(groups_of(results)) > 1 else ""
    kinds: list[Kind[Results]] = [
        ("suite", "All tasks", SUITE, draw_suite),
        ("payoff", "From competition to cooperation", PAYOFF, draw_payoff),
        ("differences", "Comparisons", FOREST, draw_differences),
        ("curves", "Learning curves", CURVES + groups, draw_curves),
        ("frontier", "Task reward against KL", FRONTIER, draw_frontier),
        ("sweeps", "Sweeps", SWEEPS, draw_sweeps),
        ("survival", "Collapse", SURVIVAL, draw_survival),
    ]
    return draw_kinds(kinds, results, folder)
