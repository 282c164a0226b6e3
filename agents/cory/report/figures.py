"""What all figures share: style, panels in a grid, bands and bars of spread, and their place on a page.

Imports no run and no study.
"""

import base64
import io
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase, SubFigure
from matplotlib.ticker import MaxNLocator

from cory.report import html

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#8B4513")
"""Colours of lines: Okabe and Ito's, which colour-blind readers can distinguish, and two more."""
REFERENCE = "#444444"
COLLAPSE = "#B3261E"
DASHES: tuple[Any, ...] = ("-", (0, (3, 1.5)), (0, (1, 1)), (0, (6, 1.5, 1, 1.5)))
PANEL = (3.45, 2.6)
"""Width and height of a panel in inches: readable on a phone, and three fit a page side by side."""
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.labelsize": 10,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.7,
    "savefig.dpi": 160,
    "svg.fonttype": "none",
    "svg.hashsalt": "cory",
    "text.parse_math": False,
}


class Plot(NamedTuple):
    """A figure, also on disk, with its title and caption."""

    path: Path
    title: str
    caption: str
    figure: Figure


T = TypeVar("T")
Kind: TypeAlias = tuple[str, str, str, Callable[[T], Figure | None]]
"""Name of the file, title, caption, and what draws the figure (None if there is nothing to show)."""


def draw_kinds(kinds: Sequence[Kind[T]], source: T, folder: Path) -> list[Plot]:
    """Draw every kind that has something to show, as `folder/<name>.png`; earlier figures are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    plots = []
    for name, title, caption, draw_figure in kinds:
        path = folder / f"{name}.png"
        path.unlink(missing_ok=True)
        with matplotlib.rc_context(STYLE):
            figure = draw_figure(source)
            if figure is not None:
                figure.savefig(path)
                figure.set_layout_engine("none")  # the page's drawing has the same places
                plots.append(Plot(path, title, caption, figure))
    return plots


def section(plot: Plot, *, level: int = 2, anchor: str = "") -> list[html.Markup]:
    """A plot under its title."""
    heading = html.heading(plot.title, level=level, anchor=anchor)
    return [heading, on_page(plot.figure, title=plot.title, caption=plot.caption)]


def on_page(figure: Figure, *, title: str, caption: str) -> html.Markup:
    """A figure element with a caption."""
    drawing = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(drawing, format="svg", transparent=True, metadata={"Date": None})
    source = base64.b64encode(drawing.getvalue()).decode("ascii")
    return html.Markup(html.figure(source, title, caption, figure.get_figwidth() > 2 * PANEL[0]))


@matplotlib.rc_context(STYLE)
def grid(
    names: Sequence[T], panel: Callable[[Axes, T], bool], *, columns: int = 3, legend: bool = True
) -> Figure | None:
    """Draw a panel for each name, `columns` in a row; None if no panel has anything to show.

    `panel` returns whether it has drawn anything. With `legend` the names of all lines are above the panels.
    """
    if not names:
        return None
    columns = min(columns, len(names))
    width, height = max(4.6, PANEL[0] * columns), PANEL[1] * math.ceil(len(names) / columns) + 0.5
    figure = Figure(figsize=(width, height), layout="constrained")
    handles = fill(figure, names, panel, columns)
    if handles is None:
        return None
    figure.align_ylabels()
    if legend and handles:
        add_legend(figure, handles)
    return figure


def fill(
    block: FigureBase, names: Sequence[T], panel: Callable[[Axes, T], bool], columns: int
) -> dict[str, Any] | None:
    """Draw the panels into a block; the handles of a legend by name, or None if nothing was drawn."""
    places = block.subplots(math.ceil(len(names) / columns), columns, squeeze=False).flatten()
    handles: dict[str, Any] | None = None
    for axes, name in zip(places, names, strict=False):
        if not panel(axes, name):
            axes.remove()
            continue
        axes.set_ylabel(axes.get_ylabel().replace(" (", "\n(", 1))
        lines, texts = axes.get_legend_handles_labels()
        handles = (handles or {}) | dict(zip(texts, lines, strict=True))
    for axes in places[len(names) :]:
        axes.remove()
    return handles


def add_legend(
    block: Figure | SubFigure,
    lines: Mapping[str, Any],
    where: Literal["upper", "lower"] = "upper",
    column: float = 0.1,
) -> int:
    """Add a legend of lines by name above the panels, or below them (`where` lower); its number of columns.

    One row of up to six names, two of more, and more rows where they do not fit; a column is at least
    `column` inches wide.
    """
    loc: Any = f"outside {where} center"
    room = block.bbox.width
    columns = len(lines) if len(lines) <= 6 else math.ceil(len(lines) / 2)
    columns = max(1, min(columns, int(room / block.figure.dpi / column)))
    while True:
        legend = block.legend([*lines.values()], [*lines], loc=loc, ncols=columns, handlelength=2.6)
        if columns == 1 or legend.get_window_extent().width <= room:
            return columns
        legend.remove()
        columns -= 1


def line_style(place: int) -> dict[str, Any]:
    """The colour and line of the series at a place; lines change after all colours."""
    turn, colour = divmod(place, len(PALETTE))
    return {"color": PALETTE[colour], "linestyle": DASHES[turn % len(DASHES)]}


def band(axes: Axes, x: Sequence[float], mean: Any, low: Any, high: Any, **style: Any) -> None:
    """Draw a line in a shaded band; ends that are NaN have none."""
    axes.plot(x, mean, **style)
    axes.fill_between(x, low, high, color=style["color"], alpha=0.15)


def pass_at_k(axes: Axes, points: Mapping[str, Mapping[int, tuple[float, float, float]]]) -> bool:
    """Draw pass@k over k by name; each k has (value, low, high), NaN without an interval."""
    place = 0
    for name, by_k in points.items():
        is_reference = name.startswith("reference")
        style = {"color": REFERENCE, "linestyle": "--"} if is_reference else line_style(place)
        place += not is_reference
        mean, low, high = np.array(list(by_k.values())).T
        band(axes, list(by_k), mean, low, high, label=name, marker="o", markersize=3.5, **style)
        axes.set_xticks(list(by_k))
    axes.set_xlabel("k")
    axes.set_ylabel("pass@k (share of queries)")
    axes.set_ylim(bottom=0)
    return bool(axes.lines)


def over_iterations(axes: Axes) -> None:
    """Name the horizontal axis and give it whole numbers."""
    axes.set_xlabel("iteration")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
