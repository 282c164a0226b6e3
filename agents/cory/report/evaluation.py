"""Results of `cory evaluate` in the report: tables, and a figure of pass@k over k."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from cory.evaluation.tables import make_tables, remarks
from cory.report import html
from cory.report.plots import PALETTE, REFERENCE, STYLE, Plot
from cory.tracking.curves import Curves
from cory.tracking.labels import label

EVALUATION = "evaluation.json"

PASS_AT_K = (
    "The probability that at least one of k responses to a held-out query is correct, estimated without bias "
    "from all samples (Chen et al. 2021). Shaded: 95 % intervals, if `cory evaluate` has computed them."
)

Points = dict[int, tuple[float, float, float]]
"""k -> pass@k with the ends of its interval."""


def read_evaluation(run: Path) -> dict[str, Any] | None:
    """Return the evaluation summary in a run directory; None if there is none or it is incomplete."""
    try:
        result: dict[str, Any] = json.loads((run / EVALUATION).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return result if "data" in result else None


def section(result: Mapping[str, Any] | None) -> list[html.Markup]:
    """Return the tables of an evaluation summary, the first one open; empty without a summary."""
    if result is None:
        return []
    parts = [html.heading("Held-out evaluation with intervals")]
    for i, table in enumerate(make_tables(result)):
        rows = [[label(row[0]), *row[1:]] for row in table.rows]
        content = html.table(table.head, rows, kind="numbers")
        parts.append(html.collapsible(table.title, content, is_open=i == 0))
    return parts + [html.paragraph(line, muted=True) for line in remarks(result)]


def draw_pass_at_k(curves: Curves, result: Mapping[str, Any] | None, folder: Path) -> list[Plot]:
    """Draw pass@k over k, from the summary or else from the last evaluation during training."""
    path = folder / "pass_at_k.png"
    path.unlink(missing_ok=True)
    points = pass_at_k_of_evaluation(result) if result is not None else {}
    points = points or pass_at_k_of_training(curves)
    if not points:
        return []
    with matplotlib.rc_context(STYLE):
        _figure(points).savefig(path)
    return [Plot(path, "pass@k", PASS_AT_K)]


def pass_at_k_of_evaluation(result: Mapping[str, Any]) -> dict[str, Points]:
    """Return pass@k and its interval, by policy and k."""
    points = {
        name: {
            _k(quantity): (value, *result["intervals"][name][quantity])
            for quantity, value in metrics.items()
            if quantity.startswith("pass_at_")
        }
        for name, metrics in result["metrics"].items()
    }
    return _sorted(points)


def pass_at_k_of_training(curves: Curves) -> dict[str, Points]:
    """Return pass@k of the last evaluation in the curves, without intervals."""
    points: dict[str, Points] = {}
    for key, curve in curves.items():
        if key.place == "eval" and key.quantity.startswith("pass_at_"):
            points.setdefault(key.policy, {})[_k(key.quantity)] = (curve.values[-1],) * 3
    return _sorted(points)


def _sorted(points: Mapping[str, Points]) -> dict[str, Points]:
    """Sort points by k and drop policies without any."""
    return {name: dict(sorted(by_k.items())) for name, by_k in points.items() if by_k}


def _k(quantity: str) -> int:
    return int(quantity.removeprefix("pass_at_"))


def _figure(points: Mapping[str, Points]) -> Figure:
    figure = Figure(figsize=(5.6, 4.2), layout="constrained")
    axes = figure.subplots()
    colours = iter(PALETTE * len(points))
    for name, by_k in points.items():
        colour, line = (REFERENCE, "--") if name.startswith("reference") else (next(colours), "-")
        values, low, high = zip(*by_k.values(), strict=True)
        axes.plot(list(by_k), values, line, color=colour, marker="o", markersize=3.5, label=name)
        axes.fill_between(list(by_k), low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set_xlabel("k")
    axes.set_ylabel("pass@k (share of queries)")
    axes.set_xticks(list(next(iter(points.values()))))
    axes.set_ylim(bottom=0)
    axes.legend()
    return figure
