"""Pages that compare run directories: arms are runs with equal settings but for the seed.

A study fixes arms and comparisons before the runs; here both are read off the runs that are given. Tables,
statistics and figures are those of a study.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cory.evaluation.records import differing
from cory.report import html
from cory.report.figures import on_page
from cory.report.overview import read_environment
from cory.runtime.files import check_output, write_text
from cory.runtime.provenance import LEARNING_VERSION
from cory.study import records
from cory.study.analysis import TABLE, analyse
from cory.study.comparison import paper
from cory.study.comparison.arms import (
    Arm,
    arms_of,
    common_parent,
    families_of,
    unequal_lengths,
    unlike_evaluations,
)
from cory.study.plan import setting_value
from cory.study.report import how_it_was_made, samples, settings_that_differ, tables_and_figures
from cory.study.results import Results, check_one_learning_version
from cory.study.spec import Comparison, Frontier, Sweep
from cory.tracking.tracker import METRICS, read_lines

PAGE, PAPER_PAGE = "comparison.html", "paper_figures.html"
MIN_SWEEP = 3
"""Fewest arms for a curve over a setting."""


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
    results = results_of(arms)
    words = f"{len(arms)} arm{'s' if len(arms) > 1 else ''} on {arms[0].settings['task']}"
    with TemporaryDirectory() as figures:
        parts = [
            html.heading(f"Comparison of {len(folders)} runs", level=1),
            *map(html.alert, warnings),
            html.paragraph(f"{words}: runs with equal settings but for the seed."),
            *map(html.paragraph, notes(arms, results)),
            *tables_and_figures(results, Path(figures), declared=False),
            *samples({arm.name: arm.runs[min(arm.runs)] for arm in arms}, title="Samples"),
            *_runs(arms),
            *how_it_was_made(results, declared=False),
        ]
    write_text(path, html.page("Comparison of runs", parts))
    return path


def check_runs(folders: Sequence[Path]) -> list[str]:
    """What makes runs incomparable, a line each; ValueError as `write_comparison`. Reads settings only."""
    arms = arms_of(folders)
    return [*unlike_evaluations(arms), *unequal_lengths(arms)]


def _checked(out: Path | None, folders: Sequence[Path], name: str) -> Path:
    """The file of a page; ValueError if it cannot be written there, or would replace another file."""
    path = out or common_parent(folders) / name
    check_output(path, html.GENERATOR)
    return path


def write_paper_figures(folders: Sequence[Path], out: Path | None = None) -> Path:
    """Write one self-contained page with the paper's kinds of figures; the path of the page.

    A figure the runs have no data for is left out, with a line on what it needs. Arguments and errors are
    those of `write_comparison`, but one run is enough and there may be several tasks, one section each.
    """
    path, arms = _checked(out, folders, PAPER_PAGE), arms_of(folders)
    tasks = list(dict.fromkeys(str(arm.settings["task"]) for arm in arms))
    parts = [
        html.heading(f"The paper's figures, from {len(folders)} runs", level=1),
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
            parts += [html.heading(f"Task {task}"), *map(html.alert, warnings), *_settings(of_task)]
            for plot in plots:
                parts.append(html.heading(plot.title, level=3))
                parts.append(on_page(plot.figure, title=plot.title, caption=plot.caption))
        parts += [html.paragraph(f"Left out: {line}", muted=True) for line in missing]
    write_text(path, html.page("The paper's figures", [*parts, *_runs(arms)]))
    return path


def results_of(arms: Sequence[Arm]) -> Results:
    """Runs, statistics and comparisons with the first arm, in the form of a study's results."""
    first, task = arms[0], str(arms[0].settings["task"])
    kl_coef = float(first.settings["kl.coef"])
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
            "sweeps": {name: asdict(sweep) for name, sweep in _sweeps(arms).items()},
            "pools": {},
            "primary": [asdict(comparison) for comparison in primary],
            "arms": {arm.name: {"config": {task: arm.settings}} for arm in arms},
            "runs": runs,
        }
    )


def _sweeps(arms: Sequence[Arm]) -> dict[str, Sweep]:
    """The settings, as numbers, in which alone three arms or more differ."""
    found = {}
    for name in differing([arm.settings for arm in arms]):
        family = max(families_of(arms, name), key=len)
        if len(family) < MIN_SWEEP:
            continue
        with contextlib.suppress(ValueError):
            values = [setting_value(arm.settings, name) for arm in family]
            log = min(values) > 0 and max(values) >= 10 * min(values)
            found[name] = Sweep(setting=name, arms=tuple(arm.name for arm in family), log=log)
    return found


def _record(arm: Arm, seed: int) -> dict[str, Any]:
    """A run as a study records it; an unfinished one as far as it was trained."""
    planned, folder = arm.planned(seed), arm.runs[seed]
    found = records.record(planned, folder)
    if records.finished(folder, planned):
        return found
    return {**found, "status": "unfinished", "iterations": _trained(folder)}


def notes(arms: Sequence[Arm], results: Results) -> list[str]:
    """What a reader must know about the runs."""
    notes = []
    coefs = {float(arm.settings["kl.coef"]) for arm in arms}
    if len(coefs) > 1:
        notes.append(
            f"The arms were trained with different KL coefficients. Combined reward has that of "
            f"{arms[0].name}, {float(arms[0].settings['kl.coef']):g}, in all."
        )
    if len(arms) > 1 and not results["primary"]:
        notes.append(f"No other arm has a seed that {arms[0].name} has: no paired differences.")
    notes += [
        f"{run['arm']}, seed {run['seed']}, is not finished: its numbers are those of iteration "
        f"{run['iterations']} or before."
        for run in results["runs"]
        if run["status"] != "finished"
    ]
    if len({run["commit"] for run in results["runs"]}) > 1:
        notes.append("The runs began at different commits (see the runs below).")
    return notes


def _settings(arms: Sequence[Arm]) -> list[html.Markup]:
    """The table of the settings in which the arms differ."""
    table = settings_that_differ({arm.name: arm.settings for arm in arms})
    if not table.rows:
        return []
    return [html.heading(table.title, level=3), html.table(table.head, table.rows, kind=table.kind)]


def _runs(arms: Sequence[Arm]) -> list[html.Markup]:
    """The table of run directories."""
    rows = [
        [arm.name, str(seed), str(folder), str(read_environment(folder).get("commit"))]
        for arm in arms
        for seed, folder in arm.runs.items()
    ]
    table = html.table(["arm", "seed", "run directory", "commit"], rows, kind="runs")
    return [html.heading("Runs"), html.collapsible(f"{len(rows)} runs", table)]


def _trained(folder: Path) -> int:
    return sum("time/update/seconds" in row for row in read_lines(folder / METRICS))
