"""Figure of the differences between arms."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cory.report.figures import PALETTE, REFERENCE
from cory.study.analysis import values_by_seed
from cory.study.plots.panels import metric_label
from cory.study.results import Results


def draw_differences(results: Results) -> Figure | None:
    """The comparisons that have seeds, one row each, a panel per metric."""
    rows = [row for row in results["statistics"] if row["n"]]
    if not rows:
        return None
    names = list(dict.fromkeys(row["metric"] for row in rows))
    figure = Figure(figsize=(9, 0.5 * len(rows) + 0.8 * len(names) + 0.4), layout="constrained")
    heights = [1.0 + sum(row["metric"] == name for row in rows) for name in names]
    panels = figure.subplots(len(names), 1, squeeze=False, gridspec_kw={"height_ratios": heights}).flatten()
    for axes, name in zip(panels, names, strict=True):
        shown = [row for row in rows if row["metric"] == name]
        for y, row in enumerate(reversed(shown)):
            _draw_difference(axes, y, row, results)
        axes.axvline(0, color=REFERENCE, linewidth=0.8)
        axes.set_yticks(range(len(shown)), [_name(row, results) for row in reversed(shown)])
        axes.set_ylim(-0.6, len(shown) - 0.4)
        axes.set_xlabel(f"difference in {metric_label(name)}")
    return figure


def _draw_difference(axes: Axes, y: int, row: Mapping[str, Any], results: Results) -> None:
    color = {"supported": PALETTE[2], "refuted": PALETTE[1]}.get(row["result"], "#666666")
    arm = values_by_seed(results, row["arm"], row["task"], row["metric"])
    baseline = values_by_seed(results, row["baseline"], row["task"], row["baseline_metric"] or row["metric"])
    axes.plot([arm[s] - baseline[s] for s in row["seeds"]], [y - 0.2] * row["n"], ".", color=color, alpha=0.4)
    if row["low"] is not None:
        axes.plot([row["low"], row["high"]], [y, y], color=color, solid_capstyle="butt")
    axes.plot(row["difference"], y, "o", color=color)
    signs = {"higher": (1,), "lower": (-1,), "equal": (-1, 1)}[row["direction"]]
    for margin in (sign * row["margin"] for sign in signs if row["margin"]):
        axes.plot([margin, margin], [y - 0.4, y + 0.4], color=REFERENCE, linestyle=":")


def _name(row: Mapping[str, Any], results: Results) -> str:
    task = f" ({row['task']})" if len(results["kl_coef"]) > 1 else ""
    other = f" in {metric_label(row['baseline_metric'])}".partition(" (")[0] if row["baseline_metric"] else ""
    return f"{row['arm']} - {row['baseline']}{other}{task}"
