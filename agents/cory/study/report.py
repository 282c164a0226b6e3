"""The report of a study: Markdown and one self-contained HTML page, from the results only."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cory.evaluation.records import differing, written
from cory.report import html
from cory.report.figures import section
from cory.report.tables import Table
from cory.report.tables import markdown as table_markdown
from cory.report.tables import on_page as table_on_page
from cory.runtime.files import check_output, write_text
from cory.study import statistics, suite
from cory.study.analysis import (
    GAME_TOTAL,
    TABLE,
    baseline_of,
    metrics_of,
    result_words,
    runs_of,
    values_by_seed,
)
from cory.study.badges import badges, payoff_lines
from cory.study.metric import Metric
from cory.study.plots import draw
from cory.study.records import references
from cory.study.results import Results
from cory.study.spec import TARGET
from cory.tracking.labels import defined

MARKDOWN, PAGE = "report.md", "report.html"
RESULT_WORDS = {
    "supported": "the whole interval lies beyond the margin; for a claim of equality, within both margins",
    "refuted": "no part of the interval lies there; though above (below) zero: all of it between zero and "
    "margin",
    "undecided": f"the interval holds the margin, there are fewer than {statistics.MIN_RUNS} runs, or longer "
    "runs could change it, since some have not collapsed",
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
LISTED = 5
"""Commits that are named; of more runs' the number is."""
ESTIMATES = (
    "Mean \N{PLUS-MINUS SIGN} half of the 95 % interval over runs; "
    f"fewer than {statistics.MIN_RUNS}: [smallest, largest]."
)
"""What the cells of the tables of arms are; on a page it stands at the first."""
DEFINITIONS = (
    "The unit is the run: the mean over its policies at the end of training. Intervals are two-sided 95 % t "
    "intervals over runs, of differences paired by seed.",
    "Verdicts by the margin declared in the study file. "
    + "; ".join(f"{name}: {text}" for name, text in RESULT_WORDS.items())
    + ".",
)


def check_folder(folder: Path) -> None:
    """Raise ValueError if a report would replace files that are no study's."""
    if not folder.is_dir():
        return
    files = {PAGE: html.GENERATOR, MARKDOWN: "# Study "}
    for name, word in files.items():
        check_output(folder / name, word)
    if (folder / "plots").exists() and not any((folder / name).exists() for name in files):
        raise ValueError(f"{folder / 'plots'} is no study's; name another --out")


def write_report(results: Results, folder: Path, failures: Sequence[str] = ()) -> Path:
    """Write `report.md`, `report.html` and `plots/` into a folder; the path of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / MARKDOWN, markdown(results, failures))
    write_text(folder / PAGE, page(f"Study {results['study']}", results, folder / "plots", failures))
    return folder / PAGE


def page(
    title: str, results: Results, figures: Path, alerts: Sequence[str], details: Sequence[html.Markup] = ()
) -> str:
    """The page of a study; its figures go to the folder `figures` too.

    It begins with what is missing or limits what the results say, and ends with `details` and with how it was
    made.
    """
    first, *others = [section(plot) for plot in draw(results, figures)] or [[]]
    note = [f"Note: {results['notes']}"] if results["notes"] else []
    made = [*origin(results), *DEFINITIONS[: 1 + bool(results["verdicts"])]]
    parts = [
        html.heading(results["study"], level=1),
        html.paragraph(results["question"]),
        *map(html.alert, alerts),
        badges(results),
        *first,
        *map(html.paragraph, [*payoff_lines(results), *note]),
        *html.definitions(defined(Metric.named(metric).quantity for metric in metrics_of(results))),
        *(part for table in result_tables(results) for part in table_on_page(table)),
        *(part for plot in others for part in plot),
        *table_on_page(settings_table(results)),
        *details,
        html.heading("How it was made"),
        *(html.paragraph(line, muted=True) for line in made),
    ]
    return html.page(title, parts)


def markdown(results: Results, failures: Sequence[str] = (), *, figures: Sequence[str] = ()) -> str:
    """The report as Markdown; `failures` say what is missing and why, `figures` are lines that show them."""
    lines = [f"# Study {results['study']}", "", results["question"]]
    lines += [f"\n{text}" for text in failures]
    lines += [line for table in result_tables(results) for line in table_markdown(table)]
    lines += [f"\n**Note:** {results['notes']}"] if results["notes"] else []
    lines += ["", *figures] if figures else []
    lines += table_markdown(settings_table(results))
    return "\n".join([*lines, "", *(f"{line}  " for line in origin(results))]) + "\n"


def margin(row: Mapping[str, Any]) -> str:
    """Direction and margin of a comparison in words, or the expected difference and its margin."""
    if "expected" in row:
        return f"{row['expected']:+g} within {row['margin']:g}"
    return f"{row['direction']} {'within' if row['direction'] == 'equal' else 'by'} {row['margin']:g}"


def difference(row: Mapping[str, Any]) -> str:
    """The difference of a comparison, with its interval if it has one."""
    if row["difference"] is None:
        return "-"
    return f"{row['difference']:+.3f}" + (
        "" if row["low"] is None else f" ({row['low']:+.3f} to {row['high']:+.3f})"
    )


def verdict_lines(results: Results) -> list[str]:
    """Each result with the claim and its numbers in words."""
    return [
        f"{result_words(row)}: {row['claim']} ({row['task']}). {verdict['words']}"
        for verdict, row in zip(results["verdicts"], results["statistics"], strict=True)
    ]


def result_tables(results: Results) -> list[Table]:
    """The suite, the comparisons, and the arms of each task that has runs."""
    names = [*results["arms"], *results["sweeps"], *results["pools"]]
    played = {run["task"] for run in results["runs"]}
    tasks = [task for task in results["kl_coef"] if task in played]
    notes = [ESTIMATES, *[""] * len(tasks)]
    arms = [_arms(results, names, task, note) for task, note in zip(tasks, notes, strict=False)]
    return [*suite.table(results), *_claims(results), *arms]


def _claims(results: Results) -> list[Table]:
    """The comparisons that have runs, the others in the note; no table without any.

    Those that were not fixed before the runs have no verdicts, and differences only.
    """
    head = ["claim", "verdict", "comparison", "on", "n", "difference", "margin"]
    rows = [
        [
            row["claim"],
            result_words(row),
            f"{row['arm']} - {baseline_of(row)}",
            f"{row['metric']}, {row['task']}",
            str(row["n"]),
            difference(row),
            margin(row),
        ]
        for row in results["statistics"]
        if row["n"]
    ]
    waiting = [f"{row['claim']} ({row['task']})" for row in results["statistics"] if not row["n"]]
    note = f"Declared, without runs yet: {'; '.join(waiting)}." if waiting else ""
    if not results["statistics"]:
        return []
    whole, differences = ("Claims", slice(None)), ("Differences to the first arm", slice(2, 6))
    title, shown = whole if results["verdicts"] else differences
    return [Table(title, head[shown], [row[shown] for row in rows], kind="runs", note=note)]


def settings_table(results: Results) -> Table:
    """What each arm sets, and what all arms share on all tasks."""
    arms = results["arms"]
    rows = [[name, written(arm["settings"], arm["settings"]) or "-"] for name, arm in arms.items()]
    configs = [config for arm in arms.values() for config in arm["config"].values()]
    common = [name for name in GAME if name in configs[0] and name not in differing(configs)]
    note = f"All arms: {written(configs[0], common)}." if common else ""
    return Table("Settings of the arms", ["arm", "settings"], rows, kind="runs", note=note)


def origin(results: Results) -> list[str]:
    """Command, commits, machines and KL coefficients."""
    eta = ", ".join(f"{coef:g} ({task})" for task, coef in results["kl_coef"].items())
    commits = sorted({run["commit"] or "no commit" for run in results["runs"]})
    listed = ", ".join(commits) if len(commits) <= LISTED else f"{len(commits)} commits, in the results file"
    processors = [run["processor"] or "an unknown processor" for run in results["runs"]]
    counts = ", ".join(f"{name} ({processors.count(name)} runs)" for name in dict.fromkeys(processors))
    return [
        f"Command: {results['command']}.",
        f"Runs of {listed or 'no commit'}; learning version {results['learning_version']}.",
        f"Processors: {counts or 'none'}.",
        f"Combined reward is task reward - eta KL, eta = {eta}.",
    ]


def _arms(results: Results, names: Sequence[str], task: str, note: str) -> Table:
    runs = runs_of(results, task)
    trained = [run for run in runs if TARGET not in results["arms"][run["arm"]]["settings"]]
    untrained = {metric: _untrained(trained, metric) for metric in _columns(results, task)}
    measured = {
        arm: {metric: values_by_seed(results, arm, task, metric) for metric in untrained} for arm in names
    }
    metrics = [
        metric
        for metric, start in untrained.items()
        if start != "-" or any(by_metric[metric] for by_metric in measured.values())
    ]
    collapsed = any(at is not None for run in runs for at in run["collapsed_at"].values())
    last = ["collapsed", "responses"] if collapsed else ["responses"]
    rows, later = [], []
    for arm in names:
        by_metric = {metric: measured[arm][metric] for metric in metrics}
        if not (n := max(map(len, by_metric.values()), default=0)):
            later += [arm] if arm in results["arms"] else []
            continue
        cells = [
            _estimate(list(values.values())) + (f", n = {len(values)}" if 0 < len(values) < n else "")
            for values in by_metric.values()
        ]
        used = [run["budget"]["judge_calls"] for run in runs if run["arm"] == arm]
        responses = f"{np.mean(used):,.0f}" if used else "-"
        rows.append([arm, str(n), *cells, *[_collapsed(runs, arm), responses][-len(last) :]])
    rows.append(["before training", "", *(untrained[metric] for metric in metrics), *[""] * len(last)])
    notes = [note, "Collapsed: policies with a sign of collapse." if collapsed else ""]
    notes += [f"Without runs: {', '.join(later)}." if later else ""]
    head = ["arm", "runs", *metrics, *last]
    return Table(f"Arms on {task}", head, rows, note=" ".join(filter(None, notes)))


def _columns(results: Results, task: str) -> list[str]:
    """The metrics that the table of a task may have; that of a suite and those of all tables in one."""
    if scale := results.get("suite", {}).get(task):
        return list(dict.fromkeys([scale["metric"], *TABLE]))
    seats = {len(run["game"]) for run in results["runs"] if run["game"]}
    total = [GAME_TOTAL] if len(seats) == 1 else []  # a sum of two scores says nothing beside one score
    return list(dict.fromkeys([*metrics_of(results), *total]))


def _untrained(runs: Sequence[Mapping[str, Any]], metric: str) -> str:
    """A metric of the reference, standalone or in all seats; its range where arms differ in it.

    In seats it is that of the policies at iteration 0, which curves that begin at a checkpoint lack.
    """
    named = Metric.named(metric)
    if named.place not in ("", "average", "on", "team"):
        return "-"
    quantity, team = named.quantity, named.place == "team"
    evaluated = [run.get("on", {}).get(named.of, {}) if named.place == "on" else run for run in runs]
    sides = [
        side
        for run in evaluated
        for side in (
            [run.get("team", {}).get(named.of or "all", {})] if team else references(run.get("eval", {}))
        )
    ]
    if not team and quantity == "combined_reward":
        quantity = "task_reward"  # its KL is 0
    starts = [points[0] for side in sides if (points := side.get(quantity))]
    values = sorted({round(value, 3) for at, value in starts if at == 0 or not team})
    return " to ".join(f"{value:.3f}" for value in dict.fromkeys([*values[:1], *values[-1:]])) or "-"


def _estimate(values: Sequence[float]) -> str:
    if not values:
        return "-"
    average = f"{np.mean(values):.3f}"
    low, high = statistics.interval(values)
    if low == low:
        return f"{average} \N{PLUS-MINUS SIGN} {(high - low) / 2:.3f}"
    return average + (f" [{min(values):.3f}, {max(values):.3f}]" if len(values) > 1 else "")


def _collapsed(runs: Sequence[Mapping[str, Any]], arm: str) -> str:
    ends = [at for run in runs if run["arm"] == arm for at in run["collapsed_at"].values()]
    return f"{sum(at is not None for at in ends)} of {len(ends)}" if ends else "-"
