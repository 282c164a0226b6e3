"""Results of `cory probe`: tables for the terminal and the page, and a section with a plot for the page."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cory.evaluation.bootstrap import MIN_QUERIES
from cory.evaluation.tables import Table, cell
from cory.report import html, svg
from cory.report.plots import PALETTE, REFERENCE, STYLE

FILE = "probe.json"
"""Name of a probe's result in a run directory."""

VARIANCE = {"query": "query", "pioneer": "pioneer's\nresponse", "observer": "observer's\nown chance"}
READ = ("own", "unrelated", "corrupted", "none")
SEATS = ("pioneer_0", "observer_1")
PLACES = ("standalone", *SEATS)

CAPTION = (
    "First: what the variance of the observer's score comes from. Second: the observer's mean score by what "
    "it reads: its own pioneer's response, a response to another query, its own pioneer's with shuffled "
    "tokens, or none. Third: each policy's mean score standalone and in each seat. Lines: 95 % intervals."
)

ROWS = {
    "influence": {
        "query": "variance: query",
        "pioneer": "variance: pioneer's response",
        "observer": "variance: observer's own chance",
        "pioneer_share": "pioneer's share of the variance given the query",
        "slope": "slope of the observer's on the pioneer's score",
        "slope_none": "the same, nothing read",
        "own_query": "pioneer's score, variance: query",
        "own_chance": "pioneer's score, variance: own chance",
    },
    "reading": {
        "own": "reads its own pioneer's response",
        "unrelated": "reads that of another query",
        "corrupted": "reads its own pioneer's, tokens shuffled",
        "none": "reads none",
        "own minus unrelated": "own minus unrelated",
        "own minus corrupted": "own minus corrupted",
        "own minus none": "own minus none",
        "shuffled": "responses changed by shuffling (share)",
    },
    "copying": {
        "equal_read": "equal to the response it read (share)",
        "equal_same_query": "equal to another one to the query (share)",
        "equal_other_query": "equal to one to another query (share)",
        "overlap_read": "n-gram overlap with the response it read",
        "overlap_same_query": "n-gram overlap with another one to the query",
        "overlap_other_query": "n-gram overlap with one to another query",
        "overlap_read minus same_query": "overlap: read minus another one to the query",
    },
}
"""Rows of the tables with a column per pair of policies."""

TITLES = {
    "influence": "influence on the observer's score",
    "reading": "observer's mean score by what it reads",
    "copying": "copying by the observer",
}
LEARNING = {
    "explained_variance": "explained variance of returns",
    "value_first": "value of the first token",
    "return_first": "return of the first token",
    "signal_share": "advantage: share of variance that the seat causes",
    "signal_to_noise": "advantage: signal to noise",
}


def read(run: Path) -> dict[str, Any] | None:
    """Return the probe in a run directory; None if there is none or it is incomplete."""
    try:
        result = json.loads((run / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    complete = isinstance(result, dict) and {"measured", "pairs", "skill", "specialisation"} <= result.keys()
    return result if complete else None


def describe(result: Mapping[str, Any]) -> str:
    """Return task, judge and size of a probe in one line."""
    measured = result["measured"]
    judge = "its own score" if measured["judge"] is None else f"judge {measured['judge']}"
    size = f"{measured['pioneers']} pioneer x {measured['observers']} observer responses"
    return (
        f"task {measured['task']}, {judge}, {measured['queries']} {measured['split']} queries x {size}, "
        f"seed {measured['seed']}"
    )


def make_tables(result: Mapping[str, Any]) -> list[Table]:
    """Return the tables of a probe, without empty rows and tables."""
    pairs = {_pair(one["seating"]): one for one in result["pairs"]}
    tables = [
        _table(TITLES[part], ROWS[part], {name: one[part] for name, one in pairs.items()}) for part in ROWS
    ]
    seated = {
        f"{seat}, {name}": {**one["values"].get(seat, {}), **one["advantage"].get(seat, {})}
        for name, one in pairs.items()
        for seat in SEATS
    }
    tables.append(_table("learning signal of each seat", LEARNING, seated))
    for quantity, title in (("task_reward", "mean score"), ("kl", "KL to the reference (nats)")):
        by_policy = {name: of_policy[quantity] for name, of_policy in result["skill"].items()}
        rows = [row for of_policy in by_policy.values() for row in of_policy]
        tables.append(_table(f"{title} of each policy by place", {row: row for row in rows}, by_policy))
    differing = {
        "differing": "differing responses (share)",
        "ngram_distance": "distance between responses",
        "score_correlation": "correlation of expected scores over queries",
    }
    tables.append(_table("the two policies standalone", differing, result["specialisation"]))
    return [table for table in tables if table.rows]


def remarks(result: Mapping[str, Any]) -> list[str]:
    """Return lines on missing intervals and on responses that a judge failed on."""
    lines = []
    if result["measured"]["queries"] < MIN_QUERIES:
        lines.append(f"[-]: no intervals, since there are fewer than {MIN_QUERIES} queries.")
    if not any(one["advantage"] for one in result["pairs"]):
        lines.append(
            "No learning signal: the values of a central critic are not saved with the policies, or the "
            "algorithm's group does not divide pioneers x observers."
        )
    return lines + [f"judge {row['judge']} failed: {row['failure']}" for row in result["failures"]]


def sections(run: Path, folder: Path) -> list[html.Markup]:
    """Return the section of a run's probe, with its plot drawn into `folder`; empty without a probe."""
    path = folder / "probe.png"
    path.unlink(missing_ok=True)
    result = read(run)
    if result is None:
        return []
    path.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        drawn = figure(result)
        drawn.savefig(path)
    title = "Probe: what the seats do to each other"
    parts = [
        html.heading(title, anchor="probe"),
        html.paragraph(f"Measured: {describe(result)}."),
        svg.figure(drawn, title=title, caption=CAPTION),
    ]
    for table in make_tables(result):
        content = html.table(table.head, table.rows, kind="numbers")
        parts.append(html.collapsible(table.title, content))
    return parts + [html.paragraph(line, muted=True) for line in remarks(result)]


def figure(result: Mapping[str, Any]) -> Figure:
    """Draw variance components, mean score by what is read, and scores of policies by place."""
    drawn = Figure(figsize=(11, 3.8), layout="constrained")
    variance, gap, skill = drawn.subplots(1, 3)
    pairs, colours = result["pairs"], iter(PALETTE)
    of_pairs = [REFERENCE if one["reference"] else next(colours) for one in pairs]
    for i, (one, colour) in enumerate(zip(pairs, of_pairs, strict=True)):
        name = _pair(one["seating"])
        _bars(variance, [one["influence"][part] for part in VARIANCE], i, len(pairs), colour, name)
        _bars(gap, [one["reading"][read_] for read_ in READ], i, len(pairs), colour, name)
    policies, colours = result["skill"], iter(PALETTE[2:])
    for i, (name, of_policy) in enumerate(policies.items()):
        colour = next(colours) if name in result["policies"] else REFERENCE
        found = [of_policy["task_reward"].get(place) for place in PLACES]
        _bars(skill, found, i, len(policies), colour, name)
    for axes, ticks, title in (
        (variance, list(VARIANCE.values()), "variance of the observer's score"),
        (gap, list(READ), "observer's mean score by what it reads"),
        (skill, list(PLACES), "mean score of each policy"),
    ):
        axes.axhline(0, color="0.3", linewidth=0.8)
        axes.set_xticks(range(len(ticks)), ticks)
        axes.set_title(title, fontsize=10)
        axes.grid(visible=False, axis="x")
        axes.margins(y=0.25)
        axes.legend(fontsize=8)
    return drawn


def _bars(
    axes: Axes,
    found: Sequence[Mapping[str, float | None] | None],
    place: int,
    count: int,
    colour: str,
    name: str,
) -> None:
    """Draw one series of estimates as bars with intervals; `place` of `count` series beside each tick."""
    width = 0.8 / count
    for tick, estimate in enumerate(found):
        if estimate is None or estimate["value"] is None:
            continue
        x, value = tick + (place - (count - 1) / 2) * width, estimate["value"]
        axes.bar(x, value, 0.92 * width, color=colour, label=name if tick == 0 else None)
        low, high = estimate["low"], estimate["high"]
        if low is not None and high is not None:
            axes.plot([x, x], [low, high], color="black", linewidth=1.0)
    if found and (found[0] is None or found[0]["value"] is None):
        axes.bar(math.nan, math.nan, color=colour, label=name)


def _pair(seating: Mapping[str, str]) -> str:
    """`llm_1 -> llm_2`: the pioneer, then the observer that reads it."""
    return " -> ".join(seating[seat] for seat in SEATS)


def _table(title: str, rows: Mapping[str, str], columns: Mapping[str, Mapping[str, Any]]) -> Table:
    """Make a table with a column per name and a row per quantity that any of them has."""
    body = [
        [label, *(cell(**found[key]) if key in found else "-" for found in columns.values())]
        for key, label in rows.items()
    ]
    return Table(title, ["", *columns], [row for row in body if any(text != "-" for text in row[1:])])
