"""Pages that compare run directories: arms are runs with equal settings but for the seed.

A study fixes arms and comparisons before the runs; here both are read off the runs that are given. Tables,
statistics and figures are those of a study.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cory.evaluation.records import differing, environment_of
from cory.report import html, samples
from cory.report.figures import section
from cory.report.tables import on_page as table_on_page
from cory.runtime.files import check_output, write_text
from cory.runtime.provenance import LEARNING_VERSION
from cory.study import records
from cory.study.analysis import TABLE, analyse
from cory.study.comparison import paper, paper_tables
from cory.study.comparison.arms import (
    Arm,
    arms_of,
    common_parent,
    unequal_lengths,
    unequal_penalties,
    unlike_evaluations,
)
from cory.study.report import DEFINITIONS, how_it_was_made, origin, result_tables, tables_and_figures
from cory.study.results import Results, check_one_learning_version
from cory.study.spec import Comparison, Frontier
from cory.tracking.tracker import METRICS, read_lines

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
    path = _checked(out, folders, PAGE)
    arms, warnings = arms_of(folders), check_runs(folders)
    results, task = results_of(arms), str(arms[0].settings["task"])
    tables = [
        # Without claims, margins and verdicts: the comparisons were not fixed before the runs.
        t._replace(title="Differences to the first arm", head=t.head[1:5], rows=[row[1:5] for row in t.rows])
        if t.title == "Claims"
        else t
        for t in result_tables(results)
    ]
    with TemporaryDirectory() as figures:
        parts = [
            html.heading(f"Comparison of {len(folders)} runs", level=1),
            *map(html.alert, warnings),
            html.paragraph(
                f"Arms on {task}: {len(arms)}, each of runs with equal settings but for the seed. The "
                "comparisons were not fixed before the runs."
            ),
            *_unfinished(arms),
            *tables_and_figures(results, tables, Path(figures)),
        ]
    for arm in arms:
        title = f"Samples of {arm.name}"
        parts += samples.first(arm.samples, title=title, continues=task == "reviews")
    parts += [*_runs(arms), *how_it_was_made([*origin(results), DEFINITIONS[0]])]
    write_text(path, html.page("Comparison of runs", parts))
    return path


def check_runs(folders: Sequence[Path]) -> list[str]:
    """What makes runs incomparable, a line each; ValueError as `write_comparison`. Reads settings only."""
    arms = arms_of(folders)
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
    tasks = list(dict.fromkeys(str(arm.settings["task"]) for arm in arms))
    made = [environment_of(run) for arm in arms for run in arm.runs.values()]
    check_one_learning_version([{"learning_version": LEARNING_VERSION, **one} for one in made])
    parts = [
        html.heading(f"The paper's figures and tables, from {len(folders)} runs", level=1),
        html.paragraph(
            "Means over the games of training, as in the paper (arXiv:2410.06101), unless a caption says "
            "held-out. Combined reward has the KL coefficient of the first arm."
        ),
    ]
    for task in tasks:
        of_task = [arm for arm in arms if arm.settings["task"] == task]
        warnings = [*unlike_evaluations(of_task), *unequal_lengths(of_task)]
        with TemporaryDirectory() as figures:
            plots, missing = paper.draw(of_task, Path(figures))
            parts += [html.heading(f"Task {task}"), *map(html.alert, warnings), *_unfinished(of_task)]
            for plot in plots:
                parts += section(plot, level=3)
        for table in paper_tables.make(of_task):
            parts += table_on_page(table, level=3)
        parts += [html.paragraph(f"Left out: {line}", muted=True) for line in missing]
    write_text(path, html.page("The paper's figures", [*parts, *_runs(arms)]))
    return path


def results_of(arms: Sequence[Arm]) -> Results:
    """Runs, statistics and comparisons with the first arm, in the form of a study's results."""
    first, task = arms[0], str(arms[0].settings["task"])
    kl_coef, names = float(first.settings["kl.coef"]), differing([arm.settings for arm in arms])
    runs = [_record(arm, seed) for arm in arms for seed in arm.runs]
    check_one_learning_version(runs)
    primary = [
        Comparison(
            arm=arm.name,
            baseline=first.name,
            metric=metric,
            direction="lower" if metric == "kl" else "higher",
        )
        for metric in TABLE[not kl_coef :]  # without KL penalty combined reward is task reward
        for arm in arms[1:]
        if arm.runs.keys() & first.runs.keys()
    ]
    return analyse(
        {
            "learning_version": LEARNING_VERSION,
            "kl_coef": {task: kl_coef},
            "frontier": asdict(Frontier()),
            "sweeps": {},
            "pools": {},
            "primary": [asdict(comparison) for comparison in primary],
            "arms": {
                arm.name: {
                    "settings": {name: arm.settings[name] for name in names if name in arm.settings},
                    "config": {task: arm.settings},
                }
                for arm in arms
            },
            "runs": runs,
        }
    )


def _record(arm: Arm, seed: int) -> dict[str, Any]:
    """A run as a study records it; an unfinished one as far as it was trained."""
    folder, planned = arm.runs[seed], arm.planned(seed)
    if seed not in arm.unfinished:
        return records.record(planned, folder)
    trained = sum("time/update/seconds" in logged for logged in read_lines(folder / METRICS))
    so_far = replace(planned, settings={**planned.settings, "iterations": trained})
    return {**records.record(so_far, folder), "status": "unfinished"}


def _unfinished(arms: Sequence[Arm]) -> list[html.Markup]:
    """A line on the runs that are counted as far as they were trained."""
    names = [f"{arm.name}, seed {seed}" for arm in arms for seed in arm.unfinished]
    return [html.paragraph(f"Not finished: {'; '.join(names)}.")] if names else []


def _runs(arms: Sequence[Arm]) -> list[html.Markup]:
    """The table of run directories."""
    rows = [
        [arm.name, str(seed), str(folder), environment_of(folder).get("commit") or ""]
        for arm in arms
        for seed, folder in arm.runs.items()
    ]
    table = html.table(["arm", "seed", "run directory", "commit"], rows, kind="runs")
    return [html.heading("Runs"), html.collapsible(f"{len(rows)} runs", table)]
