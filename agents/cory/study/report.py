"""The report of a study: Markdown and one self-contained HTML page, from the results only."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cory.evaluation.records import differing, written
from cory.report import html
from cory.report.figures import on_page
from cory.report.samples import ROWS
from cory.report.tables import Table
from cory.report.tables import markdown as table_markdown
from cory.report.tables import on_page as table_on_page
from cory.runtime.files import check_output, write_text
from cory.study import export, statistics
from cory.study.analysis import (
    GAME_TOTAL,
    OF_AVERAGE,
    baseline_of,
    is_across_processors,
    is_measured,
    judged_by_team,
    metrics_of,
    result_words,
    values_by_seed,
)
from cory.study.plots import draw
from cory.study.results import Results
from cory.study.spec import tested_on
from cory.tracking.tracker import SAMPLES, read_samples

MARKDOWN, PAGE = "report.md", "report.html"
RESULT_WORDS = {
    "supported": "the whole interval lies beyond the margin; for a claim of equality, within both margins",
    "refuted": "no part of the interval lies there; though above (below) zero: all of it between zero and "
    "margin",
    "undecided": f"the interval holds the margin, or there are fewer than {statistics.MIN_RUNS} runs",
}
GAME = (
    "seats",
    "sees",
    "payoff",
    "exchange.every",
    "algorithm",
    "kl.coef",
    "learner.lr",
    "batch",
    "iterations",
)
"""Settings that a reader asks for first."""


def check_folder(folder: Path) -> None:
    """Raise ValueError if a report would replace files that are no study's."""
    if not folder.is_dir():
        return
    files = {PAGE: html.GENERATOR, MARKDOWN: "# Study ", export.FILE: f'"{export.ENVIRONMENT}": {{'}
    for name, word in files.items():
        check_output(folder / name, word)
    if (folder / "plots").exists() and not any((folder / name).exists() for name in files):
        raise ValueError(f"{folder / 'plots'} is no study's; name another --out")


def write_report(results: Results, folder: Path, failures: Sequence[str] = ()) -> Path:
    """Write `report.md`, `report.html` and `plots/` into a folder; the path of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = [html.heading(results["study"], level=1), html.paragraph(results["question"])]
    parts += [html.paragraph(f"Note: {text}") for text in notes(results)]
    parts += [html.paragraph(f"Not in these numbers: {text}") for text in failures]
    parts += tables_and_figures(results, folder / "plots")
    for task in results["kl_coef"]:
        parts += samples(_folders(results, task, folder), title=f"Samples on {task}")
    parts += how_it_was_made(results)
    write_text(folder / MARKDOWN, markdown(results, failures))
    write_text(folder / PAGE, html.page(f"Study {results['study']}", parts))
    return folder / PAGE


def tables_and_figures(results: Results, folder: Path, *, declared: bool = True) -> list[html.Markup]:
    """The tables of comparisons and of arms, all figures, which are drawn into `folder`, and the settings."""
    figures = []
    for plot in draw(results, folder, declared=declared):
        figures += [html.heading(plot.title), on_page(plot.figure, title=plot.title, caption=plot.caption)]
    before, after = (
        [part for table in found for part in table_on_page(table)]
        for found in (result_tables(results, declared=declared), setting_tables(results))
    )
    return [*before, *figures, *after]


def samples(folders: Mapping[str, Path], *, title: str) -> list[html.Markup]:
    """The last held-out responses of one run of each arm, side by side; empty without samples.

    Args:
        folders: A run directory of each arm.
        title: Heading of the section.
    """
    by_arm = {arm: _last_samples(folder) for arm, folder in folders.items()}
    by_arm = {arm: rows for arm, rows in by_arm.items() if rows}
    queries = [query for query in next(iter(by_arm.values()), {}) if all(query in r for r in by_arm.values())]
    if not queries:
        return []
    columns = {
        (arm, policy): [rows[query]["eval"].get(policy, "") for query in queries]
        for arm, rows in by_arm.items()
        for policy in rows[queries[0]]["eval"]
    }
    references = {tuple(texts) for (_, policy), texts in columns.items() if policy == "reference"}
    head, shown = ["query"], [queries]
    for (arm, policy), texts in columns.items():
        is_common = policy == "reference" and len(references) == 1
        name = policy if is_common else f"{arm}: {policy}"
        if name not in head:
            head.append(name)
            shown.append([text.strip() or "(empty)" for text in texts])
    note = "Each policy standalone at the last evaluation, in one run of each arm (the smallest seed)."
    rows = list(zip(*shown, strict=True))[:ROWS]
    return [html.heading(title), html.paragraph(note, muted=True), html.table(head, rows, kind="samples")]


def how_it_was_made(results: Results, *, declared: bool = True) -> list[html.Markup]:
    """The last section of the page."""
    lines = [*origin(results, declared=declared), *definitions(declared=declared)]
    return [html.heading("How it was made"), *(html.paragraph(line, muted=True) for line in lines)]


def markdown(results: Results, failures: Sequence[str] = (), *, figures: Sequence[str] = ()) -> str:
    """The report as Markdown.

    Args:
        results: Of a study.
        failures: What is not in the results, and why.
        figures: Lines that show figures, to stand behind the tables of results.
    """
    lines = [f"# Study {results['study']}", "", results["question"]]
    lines += [f"\nNot in these numbers: {text}" for text in failures]
    lines += [line for table in result_tables(results) for line in table_markdown(table)]
    lines += [f"\n**Note:** {text}" for text in notes(results)]
    lines += ["", *figures] if figures else []
    lines += [line for table in setting_tables(results) for line in table_markdown(table)]
    return "\n".join([*lines, "", *(f"{line}  " for line in origin(results))]) + "\n"


def notes(results: Results) -> list[str]:
    """The study's note, if it has one."""
    return [text] if (text := results["notes"]) else []


def margin(row: Mapping[str, Any]) -> str:
    """Direction and margin of a comparison in words."""
    return f"{row['direction']} {'within' if row['direction'] == 'equal' else 'by'} {row['margin']:g}"


def difference(row: Mapping[str, Any]) -> str:
    """The difference of a comparison, with its interval if it has one."""
    if row["difference"] is None:
        return "-"
    return f"{row['difference']:+.3f}" + (
        "" if row["low"] is None else f" ({row['low']:+.3f} to {row['high']:+.3f})"
    )


def verdict_lines(results: Results) -> list[str]:
    """Each result with the claim and numbers in words; last, claims without runs."""
    measured, waiting = [], []
    for one, row in zip(results["verdicts"], results["statistics"], strict=True):
        claim = f"{one['claim']} ({row['task']})"
        if is_measured(results, row):
            words = f"{result_words(row)}: {claim}. {one['words']}"
            if is_across_processors(results, row):
                words += " Its two sides were run on different processors."
            measured.append(words)
        else:
            waiting.append(claim)
    return [*measured, *([f"Without runs: {'; '.join(waiting)}."] if waiting else [])]


def result_tables(results: Results, *, declared: bool = True) -> list[Table]:
    """The comparisons that have runs, and the arms of each task that has runs.

    Comparisons that were not `declared` before the runs have no claim, no margin and no verdict.
    """
    names = [*results["arms"], *(results["sweeps"] if declared else ()), *results["pools"]]
    played = {run["task"] for run in results["runs"]}
    comparisons = _comparisons(results, declared=declared)
    return [
        *([comparisons] if comparisons.rows or comparisons.note else []),
        *(_arms(results, names, task) for task in results["kl_coef"] if task in played),
    ]


def settings_that_differ(arms: Mapping[str, Mapping[str, Any]]) -> Table:
    """Each arm but the first with its settings that are not the first's; no rows if all are equal."""
    first, *others = arms
    rows = [[arm, written(arms[arm], differing([arms[first], arms[arm]]))] for arm in others]
    rows = rows if any(text for _, text in rows) else []
    return Table(f"Settings that differ from those of {first}", ["arm", "settings"], rows, kind="runs")


def origin(results: Results, *, declared: bool = True) -> list[str]:
    """Command, commits, machine and KL coefficients."""
    eta = ", ".join(f"{coef:g} ({task})" for task, coef in results["kl_coef"].items())
    command = f"Command: {results['command']}. " if declared else ""  # else a table names the runs
    commits = ", ".join(sorted({str(run["commit"]) for run in results["runs"]}))
    return [
        f"{command}Runs of {commits or 'no commit'}; learning version {results['learning_version']}.",
        *_processors(results),
        f"Combined reward is task reward - eta KL, with the same eta for all arms: {eta}.",
    ]


def definitions(*, declared: bool) -> list[str]:
    """What the numbers and verdicts are."""
    results_of = "; ".join(f"{name}: {text}" for name, text in RESULT_WORDS.items())
    verdicts = f"Verdicts by the margin declared in the study file. {results_of}."
    late = "" if declared else " The comparisons were not fixed before the runs."
    return [
        "The unit is the run: the mean over its policies at the end of training. Intervals are two-sided "
        f"95 % t intervals over runs, of differences paired by seed.{late}",
        *([verdicts] if declared else []),
    ]


def _processors(results: Results) -> list[str]:
    """The processors of the runs; with several also which arms were run on which."""
    arms: dict[str, dict[str, list[str]]] = {}
    for run in results["runs"]:
        by_task = arms.setdefault(run["processor"] or "an unknown processor", {})
        if run["arm"] not in (names := by_task.setdefault(run["task"], [])):
            names.append(run["arm"])
    if len(arms) < 2:
        return [f"Processor: {processor}." for processor in arms]
    lines = []
    for processor, by_task in arms.items():
        listed = "; ".join(f"{', '.join(names)} ({task})" for task, names in by_task.items())
        lines.append(f"{processor}: {listed}")
    return [
        f"Processors, of which each rounds in its own way, so that a seed is not the same run on both: "
        f"{'. '.join(lines)}."
    ]


def _folders(results: Results, task: str, folder: Path) -> dict[str, Path]:
    """The run directory with the smallest seed of each arm."""
    found: dict[str, Path] = {}
    for run in results["runs"]:
        place = folder / run["arm"] / task / f"seed-{run['seed']}"
        if run["task"] == task and place.is_dir():
            found.setdefault(run["arm"], place)
    return found


def _last_samples(folder: Path) -> dict[str, dict[str, Any]]:
    """The rows of the last evaluation by query; of equal queries the first."""
    path = folder / SAMPLES
    rows = [row for row in read_samples(path) if "eval" in row] if path.is_file() else []
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["iteration"] == rows[-1]["iteration"]:
            found.setdefault(row["query"], row)
    return found


def _arms(results: Results, names: Sequence[str], task: str) -> Table:
    metrics = metrics_of(results)
    seats = {len(run["game"]) for run in results["runs"] if run["game"]}
    if len(seats) == 1 and GAME_TOTAL not in metrics:  # a sum of two scores says nothing beside one score
        metrics.append(GAME_TOTAL)
    runs = [run for run in results["runs"] if run["task"] == task]
    tested = {other for run in runs for other in run.get("on", ())}
    metrics = [metric for metric in metrics if tested_on(metric)[0] in (None, *tested)]
    rows, waiting, team = [], [], judged_by_team(results)
    for arm in names:
        by_metric = {metric: values_by_seed(results, arm, task, metric) for metric in metrics}
        n = max((len(values) for values in by_metric.values()), default=0)
        if not n:
            waiting.append(arm)
            continue
        cells = [
            _estimate(list(values.values())) + (f", n = {len(values)}" if 0 < len(values) < n else "")
            for values in by_metric.values()
        ]
        used = [run["budget"]["judge_calls"] for run in runs if run["arm"] == arm]
        responses = f"{np.mean(used):,.0f}" if used else "-"
        cells += [responses] if team else [_collapsed(results, arm, task), responses]
        rows.append([arm, str(n), *cells])
    rows.append(
        ["before training", "", *(_untrained(runs, m) for m in metrics), *([""] if team else ["", ""])]
    )
    note = f"Mean over runs (95 % interval); with fewer than {statistics.MIN_RUNS} [smallest, largest]."
    if not team and any(at is not None for run in runs for at in run["collapsed_at"].values()):
        note += " Collapsed: policies with a sign of collapse (mean iterations without one)."
    note += f" Without runs: {', '.join(waiting)}." if waiting else ""
    head = ["arm", "runs", *metrics, *([] if team else ["collapsed"]), "responses"]
    return Table(f"Arms on {task}", head, rows, note=note)


def _untrained(runs: Sequence[Mapping[str, Any]], metric: str) -> str:
    """A metric of the reference, standalone or in all seats; its range where arms differ in it.

    On another task it is the reference's there, and of averaged weights its own.
    """
    tested, quantity = tested_on(metric)
    team = quantity.startswith("team/")
    quantity = quantity.removeprefix("team/").removeprefix(OF_AVERAGE)
    evaluated = [run if tested is None else run.get("on", {}).get(tested, {}) for run in runs]
    sides = [
        run.get("team", {}).get("all", {}) if team else run.get("eval", {}).get("reference", {})
        for run in evaluated
    ]
    if not team and quantity == "combined_reward":
        quantity = "task_reward"  # its KL is 0
    found = sorted({round(points[0][1], 3) for side in sides if (points := side.get(quantity))})
    return " to ".join(f"{value:.3f}" for value in dict.fromkeys([*found[:1], *found[-1:]])) or "-"


def _estimate(values: Sequence[float]) -> str:
    if not values:
        return "-"
    low, high = statistics.interval(values)
    if low != low:
        low, high = min(values), max(values)
        return f"{np.mean(values):.3f}" + (f" [{low:.3f}, {high:.3f}]" if len(values) > 1 else "")
    return f"{np.mean(values):.3f} ({low:.3f} to {high:.3f})"


def _collapsed(results: Results, arm: str, task: str) -> str:
    runs = [run for run in results["runs"] if (run["arm"], run["task"]) == (arm, task)]
    ends = [at for run in runs for at in run["collapsed_at"].values()]
    collapsed = sum(at is not None for at in ends)
    if not collapsed:
        return "0" if runs else "-"
    horizon = min(run["iterations"] for run in runs)
    mean = np.mean([horizon if at is None else min(at, horizon) for at in ends])
    return f"{collapsed} of {len(ends)} ({mean:.1f} of {horizon})"


def _comparisons(results: Results, *, declared: bool) -> Table:
    head = ["claim", "comparison", "on", "n", "difference", "margin", "verdict"]
    rows, waiting = [], []
    for row in results["statistics"]:
        if not is_measured(results, row):
            waiting.append(f"{row['claim']} ({row['task']})")
            continue
        across = ", two processors" if is_across_processors(results, row) else ""
        rows.append(
            [
                row["claim"],
                f"{row['arm']} - {baseline_of(row)}",
                f"{row['metric']}, {row['task']}",
                str(row["n"]),
                difference(row),
                margin(row),
                result_words(row) + across,
            ]
        )
    note = f"Without runs: {'; '.join(waiting)}." if waiting else ""
    if declared:
        return Table("Claims", head, rows, note=note)
    return Table("Differences to the first arm", head[1:5], [row[1:5] for row in rows], note=note)


def setting_tables(results: Results) -> list[Table]:
    """How the arms differ from the first one, if they do: one table if that is the same on all tasks."""
    arms, tasks = results["arms"], list(results["kl_coef"])
    found = [settings_that_differ({arm: one["config"][task] for arm, one in arms.items()}) for task in tasks]
    if all(one == found[0] for one in found):
        found = found[:1]
    else:
        titles = [f"{found[0].title} on {task}" for task in tasks]
        found = [one._replace(title=title) for one, title in zip(found, titles, strict=True)]
    return [
        one._replace(note=_in_common(arms, task)) for one, task in zip(found, tasks, strict=False) if one.rows
    ]


def _in_common(arms: Mapping[str, Any], task: str) -> str:
    """The settings that all arms share, of those that a reader asks for first."""
    configs = [one["config"][task] for one in arms.values()]
    common = [name for name in GAME if name in configs[0] and name not in differing(configs)]
    return f"All arms: {written(configs[0], common)}." if common else ""
