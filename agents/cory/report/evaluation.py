"""What `cory evaluate` found, in the report: its tables, and pass@k over k."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from cory.report import html
from cory.tracking.curves import Curves
from cory.tracking.labels import label
from cory.evaluation.tables import remarks, sheets
from cory.report.plots import PALETTE, REFERENCE, STYLE, Plot

EVALUATION = "evaluation.json"

PASS_AT_K = (
    "The chance that one of k responses to a held-out query is correct, estimated without bias from all "
    "that were written (Chen et al. 2021). Shaded: 95 % intervals, where `cory evaluate` has drawn them."
)

Points = dict[int, tuple[float, float, float]]


def found_in(run: Path) -> dict[str, Any] | None:
    """The evaluation that lies in a run, None where there is none or one that was never finished."""
    try:
        told: dict[str, Any] = json.loads((run / EVALUATION).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return told if "data" in told else None


def section(told: Mapping[str, Any] | None) -> list[html.Markup]:
    """Its tables, folded but for the first; nothing where there is none."""
    if told is None:
        return []
    parts = [html.heading("Held-out evaluation with intervals")]
    for i, sheet in enumerate(sheets(told)):
        rows = [[label(row[0]), *row[1:]] for row in sheet.rows]
        table = html.table(sheet.head, rows, kind="numbers")
        parts.append(html.folded(sheet.title, table, unfolded=i == 0))
    return parts + [html.paragraph(line, soft=True) for line in remarks(told)]


def draw_pass_at_k(curves: Curves, told: Mapping[str, Any] | None, folder: Path) -> list[Plot]:
    """The figure of pass@k over k, of the evaluation or else of the last one while training; none without."""
    path = folder / "pass_at_k.png"
    path.unlink(missing_ok=True)
    points = of_evaluation(told) if told is not None else {}
    points = points or of_training(curves)
    if not points:
        return []
    with matplotlib.rc_context(STYLE):
        _figure(points).savefig(path)
    return [Plot(path, "pass@k", PASS_AT_K)]


def of_evaluation(told: Mapping[str, Any]) -> dict[str, Points]:
    """By name and k: pass@k and its interval."""
    return _known({
        name: {
            _k(quantity): (value, *told["intervals"][name][quantity])
            for quantity, value in of.items()
            if quantity.startswith("pass_at_")
        }
        for name, of in told["figures"].items()
    })  # fmt: skip


def of_training(curves: Curves) -> dict[str, Points]:
    """The same of the last evaluation in the curves, without intervals."""
    told: dict[str, Points] = {}
    for key, curve in curves.items():
        if key.place == "alone" and key.quantity.startswith("pass_at_"):
            told.setdefault(key.policy, {})[_k(key.quantity)] = (curve.values[-1],) * 3
    return _known(told)


def _known(points: Mapping[str, Points]) -> dict[str, Points]:
    return {name: dict(sorted(of.items())) for name, of in points.items() if of}


def _k(quantity: str) -> int:
    return int(quantity.removeprefix("pass_at_"))


def _figure(points: Mapping[str, Points]) -> Figure:
    figure = Figure(figsize=(5.6, 4.2), layout="constrained")
    axes = figure.subplots()
    colours = iter(PALETTE * len(points))
    for name, of in points.items():
        known = name.startswith("reference")
        colour, line = (REFERENCE, "--") if known else (next(colours), "-")
        values, low, high = zip(*of.values(), strict=True)
        axes.plot(list(of), values, line, color=colour, marker="o", markersize=3.5, label=name)
        axes.fill_between(list(of), low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set_xlabel("k")
    axes.set_ylabel("pass@k (share of queries)")
    axes.set_xticks(list(next(iter(points.values()))))
    axes.set_ylim(bottom=0)
    axes.legend()
    return figure
