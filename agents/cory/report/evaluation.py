"""Results of `cory evaluate`: tables for the terminal, and sections of the report page."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cory.evaluation import records
from cory.evaluation.bootstrap import MIN_QUERIES
from cory.report import html
from cory.report.tables import Table, cell, edits_and_failures
from cory.tracking.labels import in_order, label


def sections(run: Path, config: Mapping[str, Any]) -> list[html.Markup]:
    """A section for every evaluation in a run, those with the run's own settings first."""
    results = records.read_all(run)
    if not results:
        return []
    policies = records.exported(run)
    compared = [(unlike_run(result, config, policies), result) for result in results]
    compared.sort(key=lambda one: len(one[0]))
    sections = [part for others, result in compared for part in _section(result, others)]
    return [html.heading("Intervals", anchor="intervals"), *sections]


def unlike_run(
    result: Mapping[str, Any], config: Mapping[str, Any], policies: Mapping[str, str]
) -> list[str]:
    """What an evaluation measured otherwise than its run: `kl.coef 2.0 (run: 0.2)`."""
    measured = result["measured"]
    texts = records.other_settings(measured, config)
    if "evaluation.queries" in config:
        queries = min(config["evaluation.queries"], result["data"]["test"])
        texts += [f"queries {measured['queries']} (run: {queries})"] * (measured["queries"] != queries)
    if others := records.other_weights(policies, measured):
        texts.append(f"other weights than policies/ of {', '.join(others)}")
    return texts + ([] if measured["game"] else ["no games"])


def _section(result: Mapping[str, Any], unlike: Sequence[str]) -> list[html.Markup]:
    from cory.report import figures, plots

    measured = result["measured"]
    weights = [
        f"{name} {of['folder']} (sha256 {(of['sha256'] or '-')[:8]})"
        for name, of in measured["weights"].items()
    ]
    text = (
        f"Measured unlike the run: {'; '.join(unlike)}" if unlike else "Measured with the run's own settings"
    )
    parts = [
        html.heading(f"Held-out evaluation with intervals: {records.describe(measured)}", level=3),
        html.paragraph(f"{text}. Weights: {', '.join(weights)}."),
    ]
    for i, table in enumerate(make_tables(result)):
        rows = [[label(row[0]), *row[1:]] for row in table.rows]
        content = html.table(table.head, rows, kind="numbers")
        parts.append(html.collapsible(table.title, content, is_open=i == 0))
    if figure := figures.grid([pass_at_k(result)], figures.pass_at_k):
        caption = f"{plots.PASS_AT_K} Shaded: 95 % intervals."
        parts.append(figures.on_page(figure, title="pass@k", caption=caption))
    return parts + [html.paragraph(line, muted=True) for line in remarks(result)]


def pass_at_k(result: Mapping[str, Any]) -> dict[str, dict[int, tuple[float, float, float]]]:
    """Pass@k and its interval (NaN if there is none), by policy and k."""
    points: dict[str, dict[int, tuple[float, float, float]]] = {}
    for name, metrics in result["metrics"].items():
        for quantity in in_order(metrics):
            if quantity.startswith("pass_at_"):
                numbers = (metrics[quantity], *result["intervals"][name][quantity])
                value, low, high = (math.nan if number is None else number for number in numbers)
                points.setdefault(name, {})[int(quantity.removeprefix("pass_at_"))] = (value, low, high)
    return points


def remarks(result: Mapping[str, Any]) -> list[str]:
    """Lines on missing intervals, data left out, signs of collapse and judge failures."""
    lines = []
    if any(" [-]" in cell for table in make_tables(result) for row in table.rows for cell in row):
        lines.append(
            f"[-]: no interval, with fewer than {MIN_QUERIES} queries or a value at the edge of its range (a "
            "share of 0 or 1, a KL of 0)."
        )
    lines += [f"{line}." for line in result["data"]["left_out"]]
    lines += [f"Signs of collapse: {'; '.join(result['collapse_signs'])}."]
    lines += [f"{name}: {'; '.join(signs) or 'none'}" for name, signs in result["collapse"].items()]
    return lines + edits_and_failures(result)


def make_tables(result: Mapping[str, Any]) -> list[Table]:
    """The tables of an evaluation summary, without empty ones."""
    standalone = {
        name: {"metrics": metrics, "intervals": result["intervals"][name]}
        for name, metrics in result["metrics"].items()
    }
    samples = "" if result["samples"] == 1 else f" x {result['samples']} samples"
    correct = "" if result["threshold"] is None else f", correct from a reward of {result['threshold']:g}"
    conditions = (
        f"{result['queries']} of {result['data']['test']} held-out queries{samples}, "
        f"{result['sampling']} sampling, "
        f"KL coefficient {result['kl_coef']:g}{correct}; 95 % intervals"
    )
    tables = [
        _table(f"standalone: {conditions}", _measured(standalone)),
        _table("gain over the reference, query by query", result["gain_over_reference"], sign="+"),
        _table("in the game", _measured(result["in_game"])),
        _table("differences, query by query", result["comparison"], sign="+"),
    ]
    return [table for table in tables if table.rows]


def _measured(columns: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, dict[str, float | None]]]:
    """Metrics and intervals by name as estimates."""
    return {
        name: {
            quantity: dict(zip(("value", "low", "high"), (value, *of["intervals"][quantity]), strict=True))
            for quantity, value in of["metrics"].items()
        }
        for name, of in columns.items()
    }


def _table(title: str, columns: Mapping[str, Mapping[str, Any]], *, sign: str = "") -> Table:
    """Make a table with a column of estimates per name and a row per quantity that any of them has."""

    def text(estimate: Mapping[str, float | None] | None) -> str:
        if estimate is None:
            return "-"
        value = estimate.get("value", estimate.get("gain"))
        return cell(value, estimate["low"], estimate["high"], sign=sign)

    quantities = in_order(quantity for of in columns.values() for quantity in of)
    rows = [[quantity, *(text(of.get(quantity)) for of in columns.values())] for quantity in quantities]
    return Table(title, ["", *columns], [row for row in rows if any(cell != "-" for cell in row[1:])])
