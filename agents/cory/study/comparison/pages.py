"""Pages that compare run directories: arms are runs with equal settings but for the seed.

A comparison is a study that is made of runs at hand: its arms and comparisons are read off them, and were
not fixed before the runs.
"""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from cory.report import html, samples
from cory.report.figures import section
from cory.report.tables import on_page as table_on_page
from cory.runtime.files import check_output, write_text
from cory.study.analysis import analyse
from cory.study.comparison import paper, paper_tables
from cory.study.comparison.arms import (
    Arm,
    arms_of,
    as_study,
    common_parent,
    unequal_lengths,
    unequal_penalties,
    unfinished,
    unlike_evaluations,
)
from cory.study.report import page
from cory.study.results import Results, check_one_learning_version

PAGE, PAPER_PAGE = "comparison.html", "paper_figures.html"


def write_comparison(folders: Sequence[Path], out: Path | None = None) -> Path:
    """Write one self-contained page that compares runs; the path of the page.

    Args:
        folders: Two run directories or more, of one task, scored and evaluated alike.
        out: The page; by default `comparison.html` in the folder that holds all runs.

    Raises:
        ValueError: For a folder that holds no run, two runs with the same settings and seed, and runs of
            several tasks. What else makes them incomparable stands at the top of the page.
    """
    path, arms = _checked(out, folders, PAGE), arms_of(folders)
    continues = arms[0].settings["task"] == "reviews"
    details = [
        part
        for arm in arms
        for part in samples.first(arm.samples, title=f"Samples of {arm.name}", continues=continues)
    ]
    alerts = [*_limits(arms), *unfinished(arms)]
    with TemporaryDirectory() as figures:
        parts = [*details, *_runs(arms)]
        write_text(path, page("Comparison of runs", results_of(arms), Path(figures), alerts, parts))
    return path


def check_runs(folders: Sequence[Path]) -> list[str]:
    """What makes runs incomparable, a line each; ValueError as `write_comparison`. Reads settings only."""
    return _limits(arms_of(folders))


def _limits(arms: Sequence[Arm]) -> list[str]:
    """What makes arms of one task incomparable, a line each."""
    return [*unlike_evaluations(arms), *unequal_lengths(arms), *unequal_penalties(arms)]


def _checked(out: Path | None, folders: Sequence[Path], name: str) -> Path:
    """The file of a page; ValueError if it cannot be written there, or would replace another file."""
    path = out or common_parent(folders) / name
    check_output(path, html.GENERATOR)
    return path


def write_paper_figures(folders: Sequence[Path], out: Path | None = None) -> Path:
    """Write one self-contained page with the paper's kinds of figures and tables; the path of the page.

    A figure the runs have no data for is left out, with a line on what it needs. Arguments and errors are
    those of `write_comparison`, but one run is enough and there may be several tasks, one section each.
    """
    path, arms = _checked(out, folders, PAPER_PAGE), arms_of(folders)
    check_one_learning_version([row for arm in arms for row in arm.rows])
    parts = [
        html.heading(f"The paper's figures and tables, from {len(folders)} runs", level=1),
        html.paragraph(
            "Means over the games of training, as in the paper (arXiv:2410.06101), unless a caption says "
            "held-out. Combined reward has the KL coefficient of the first arm."
        ),
    ]
    for task in dict.fromkeys(str(arm.settings["task"]) for arm in arms):
        of_task = [arm for arm in arms if arm.settings["task"] == task]
        alerts = [*unlike_evaluations(of_task), *unequal_lengths(of_task), *unfinished(of_task)]
        parts += [html.heading(f"Task {task}"), *map(html.alert, alerts)]
        with TemporaryDirectory() as figures:
            plots, missing = paper.draw(of_task, Path(figures))
            parts += [part for plot in plots for part in section(plot, level=3)]
        for table in paper_tables.make(of_task):
            parts += table_on_page(table, level=3)
        parts += [html.paragraph(f"Left out: {line}", muted=True) for line in missing]
    write_text(path, html.page("The paper's figures", [*parts, *_runs(arms)]))
    return path


def results_of(arms: Sequence[Arm]) -> Results:
    """The results of the runs; without verdicts, since nothing was claimed before them."""
    results = as_study(arms, [row for arm in arms for row in arm.rows])
    return {**analyse(results), "verdicts": []}


def _runs(arms: Sequence[Arm]) -> list[html.Markup]:
    """The table of run directories."""
    rows = [
        [arm.name, str(row["seed"]), str(arm.runs[row["seed"]]), row["commit"] or ""]
        for arm in arms
        for row in arm.rows
    ]
    table = html.table(["arm", "seed", "run directory", "commit"], rows, kind="runs")
    return [html.heading("Runs"), html.collapsible(f"{len(rows)} runs", table)]
