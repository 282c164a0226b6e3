"""Results of `cory evaluate` in the report: a section with tables and pass@k for every measurement."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from cory.evaluation import records
from cory.evaluation.tables import make_tables, remarks
from cory.report import html, svg
from cory.report.plots import PALETTE, REFERENCE, STYLE, Plot
from cory.tracking.curves import Curves
from cory.tracking.labels import label

PASS_AT_K = (
    "The probability that at least one of k responses to a held-out query is correct, estimated without bias "
    "from all samples (Chen et al. 2021). Shaded: 95 % intervals, if `cory evaluate` has computed them."
)

OF_PASS_AT_K = re.compile(r"pass_at_k(_\d+)?\.png")
"""Figures that are drawn here."""

Points = dict[int, tuple[float, float, float]]
"""k -> pass@k with the ends of its interval."""


def sections(run: Path, config: Mapping[str, Any], folder: Path) -> list[html.Markup]:
    """Return a section for every evaluation in a run, those with the run's own settings first.

    The figures of pass@k are drawn into `folder`; earlier ones are removed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("pass_at_k*.png"):
        if OF_PASS_AT_K.fullmatch(path.name):
            path.unlink()
    results = sorted(records.read_all(run), key=lambda result: len(differing(result, config)))
    parts = [html.heading("Intervals", anchor="intervals")] if results else []
    for number, result in enumerate(results, start=1):
        parts += _section(result, config)
        if points := pass_at_k_of_evaluation(result):
            plot = _draw(points, folder / f"pass_at_k{'' if number == 1 else f'_{number}'}.png")
            parts.append(svg.figure(plot.figure, title=plot.title, caption=plot.caption))
    return parts


def differing(result: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    """Return what an evaluation measured otherwise than its run: `kl.coef 2.0 (run: 0.2)`."""
    measured = result["measured"]
    found = dict(measured["settings"])
    if "evaluation.queries" in config:
        own = min(config["evaluation.queries"], result["data"]["test"])
        found |= {"queries": measured["queries"]}
        config = {**config, "queries": own}
    texts = [
        f"{name} {value} (run: {config[name]})"
        for name, value in found.items()
        if name in config and config[name] != value
    ]
    return texts + ([] if measured["game"] else ["no games"])


def _section(result: Mapping[str, Any], config: Mapping[str, Any]) -> list[html.Markup]:
    """Return heading, conditions, tables (the first one open) and remarks of an evaluation."""
    measured = result["measured"]
    others = differing(result, config)
    weights = [
        f"{name} {of['folder']}" + (f" (sha256 {of['sha256'][:8]})" if of["sha256"] else "")
        for name, of in measured["weights"].items()
    ]
    text = (
        f"Measured unlike the run: {'; '.join(others)}."
        if others
        else "Measured with the run's own settings."
    )
    parts = [
        html.heading(f"Held-out evaluation with intervals: {records.describe(measured)}", level=3),
        html.paragraph(f"{text} Weights: {', '.join(weights)}."),
    ]
    for i, table in enumerate(make_tables(result)):
        rows = [[label(row[0]), *row[1:]] for row in table.rows]
        content = html.table(table.head, rows, kind="numbers")
        parts.append(html.collapsible(table.title, content, is_open=i == 0))
    return parts + [html.paragraph(line, muted=True) for line in remarks(result)]


def draw_training(curves: Curves, folder: Path) -> list[Plot]:
    """Draw pass@k of the last evaluation during training, unless `sections` has drawn a figure."""
    points = pass_at_k_of_training(curves)
    if not points or (folder / "pass_at_k.png").exists():
        return []
    return [_draw(points, folder / "pass_at_k.png")]


def _draw(points: Mapping[str, Points], path: Path) -> Plot:
    """Draw pass@k over k as `path`."""
    with matplotlib.rc_context(STYLE):
        figure = _figure(points)
        figure.savefig(path)
    return Plot(path, "pass@k", PASS_AT_K, figure)


def pass_at_k_of_evaluation(result: Mapping[str, Any]) -> dict[str, Points]:
    """Return pass@k and its interval (NaN if there is none), by policy and k."""
    points = {
        name: {
            _k(quantity): (value, *map(_number, result["intervals"][name][quantity]))
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


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _figure(points: Mapping[str, Points]) -> Figure:
    figure = Figure(figsize=(4.1, 3.2), layout="constrained")
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
