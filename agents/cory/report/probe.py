"""Results of `cory probe`: tables for the terminal and a section of the report page."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cory.evaluation import records
from cory.evaluation.bootstrap import MIN_QUERIES
from cory.report import html
from cory.report.tables import Table, cell, edits_and_failures

FILE = "probe.json"
"""Name of a probe's result in a run directory."""

TITLES = {
    "influence": "influence on the observer's score",
    "reading": "observer's mean score by what it reads",
    "copying": "copying by the observer",
    "free_riding": "mean score of each policy as the observer and without a partner",
}
ROWS = {
    "influence": {
        "query": "variance: query",
        "pioneer": "variance: pioneer's response",
        "observer": "variance: observer's own chance",
        "pioneer_share": "pioneer's share of the variance given the query",
        "slope": "slope of the observer's on the pioneer's score",
    },
    "reading": {
        "own": "reads its own pioneer's response",
        "unrelated": "reads that of another query",
        "none": "reads none",
        "own minus unrelated": "own minus unrelated",
        "own minus none": "own minus none",
    },
    "copying": {
        "read": "n-gram overlap with the response it read",
        "same_query": "n-gram overlap with another one to the query",
        "read minus same_query": "difference",
    },
    "free_riding": {
        "standalone": "standalone",
        "observer": "as the observer",
        "gap": "observer minus standalone",
        "free-riding": "free-riding: that, less the reference's",
    },
}
"""Rows of each table; columns are pairs of policies, and in the last one policies."""


def describe(result: Mapping[str, Any]) -> str:
    """Task, judge and size of a probe in one line."""
    measured = result["measured"]
    judge = "its own score" if measured["judge"] is None else f"judge {measured['judge']}"
    size = f"{measured['pioneers']} pioneer x {measured['observers']} observer responses"
    return (
        f"task {measured['task']}, {judge}, {measured['queries']} {measured['split']} queries x {size}, "
        f"seed {measured['seed']}"
    )


def make_tables(result: Mapping[str, Any]) -> list[Table]:
    """The tables of a probe; `llm_1 -> llm_2` is a pioneer and the observer that reads it."""
    pairs = {" -> ".join(pair["seating"].values()): pair for pair in result["pairs"]}
    tables = []
    for part, rows in ROWS.items():
        columns = result[part] if part in result else {name: pair[part] for name, pair in pairs.items()}
        body = [
            [label, *(cell(**values[key]) if key in values else "-" for values in columns.values())]
            for key, label in rows.items()
        ]
        tables.append(Table(TITLES[part], ["", *columns], body))
    return [table for table in tables if len(table.head) > 1]


def remarks(result: Mapping[str, Any]) -> list[str]:
    """Lines on missing intervals and on responses that a judge failed on."""
    lines = []
    if result["measured"]["queries"] < MIN_QUERIES:
        lines.append(f"[-]: no intervals, since there are fewer than {MIN_QUERIES} queries.")
    return lines + edits_and_failures(result)


def sections(run: Path) -> list[html.Markup]:
    """The section of a run's probe; empty without a probe, and for an incomplete one."""
    result = records.read_whole(run / FILE, "measured", "pairs", "free_riding")
    if result is None:
        return []
    others = records.other_weights(records.exported(run), result["measured"])
    text = f" Of other weights than policies/ has of {', '.join(others)}." if others else ""
    parts = [
        html.heading("Probe: what the seats do to each other", anchor="probe"),
        html.paragraph(f"Measured: {describe(result)}.{text}"),
    ]
    for table in make_tables(result):
        content = html.table(table.head, table.rows, kind="numbers")
        parts.append(html.collapsible(table.title, content, is_open=table.title == TITLES["reading"]))
    return parts + [html.paragraph(line, muted=True) for line in remarks(result)]
