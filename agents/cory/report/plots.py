"""Figures of one run, from its curves alone. Colour is the policy, line style the seat it sat in."""

import math
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from cory.tracking.curves import Curves, exchanges, policies, quantities, seats, stays
from cory.tracking.labels import label
from cory.tracking.tracker import Curve, Key

MAIN = ("task_reward", "kl", "combined_reward")
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#8B4513")
"""Okabe and Ito's colours, told apart by colour-blind readers too, and two more."""
REFERENCE = "#444444"
DASHES = ("-", (0, (3, 1.5)), (0, (1, 1)), (0, (6, 1.5, 1, 1.5)))
STYLE = {
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
}


class Plot(NamedTuple):
    """One figure on disk and the words that go with it."""

    path: Path
    title: str
    caption: str


def draw(curves: Curves, folder: Path) -> list[Plot]:
    """Every figure the run has numbers for, saved as `folder/*.png`."""
    folder.mkdir(parents=True, exist_ok=True)
    sheets: list[tuple[str, str, str, Callable[[Curves], Figure | None]]] = [
        ("training", "Training", TRAINING, _training),
        ("held_out", "Each policy alone on held-out queries", HELD_OUT, _held_out),
        ("frontier", "Task reward against distance", FRONTIER, _frontier),
        ("updates", "Inside the updates", UPDATES, _updates),
        ("speed", "Where the time went", SPEED, _speed),
    ]
    plots = []
    for name, title, caption, drawn in sheets:
        path = folder / f"{name}.png"
        path.unlink(missing_ok=True)
        with matplotlib.rc_context(STYLE):
            figure = drawn(curves)
            if figure is not None:
                figure.savefig(path)
                plots.append(Plot(path, title, caption))
    return plots


TRAINING = (
    "Means over each iteration's games, sampled while training. Colour is the policy, line style the seat it "
    "sat in (one iteration by itself is a dot, hollow for observers); faint vertical lines: role exchanges. "
    "The seats see different prompts: compare a policy with itself in the same seat, and read the held-out "
    "figure for what is deployed."
)
HELD_OUT = (
    "Every policy answers the same held-out queries by itself: no partner, no second prompt, no exchange. "
    "The dashed line is the frozen reference that the policies started from."
)
FRONTIER = (
    "Held-out task reward against the KL distance it cost, one point per evaluation; the last one is filled. "
    "Up and to the left is better. The cross is the reference, at distance zero."
)
UPDATES = "The other numbers each iteration records, by policy (colour) and seat (line style)."
SPEED = "Left: wall-clock seconds of the whole run by phase. Right: tokens per second."


def _training(curves: Curves) -> Figure | None:
    shown = [quantity for quantity in MAIN if quantity in quantities(curves, seats(curves))]
    return _panels(curves, shown, draw_by_seat, columns=1, size=(9, 2.5))


def _held_out(curves: Curves) -> Figure | None:
    shown = [q for q in quantities(curves, ["alone"]) if not q.startswith("pass_at_")]
    return _panels(curves, shown, _alone, columns=3, size=(3.7, 2.7))


def _updates(curves: Curves) -> Figure | None:
    shown = [quantity for quantity in quantities(curves, seats(curves)) if quantity not in MAIN]
    return _panels(curves, shown, draw_by_seat, columns=3, size=(3.7, 2.7))


def _panels(
    curves: Curves, shown: list[str], panel: Callable[..., None], *, columns: int, size: tuple[float, float]
) -> Figure | None:
    """One panel of `size` inches per quantity, row by row."""
    if not shown:
        return None
    columns = min(columns, len(shown))
    rows = math.ceil(len(shown) / columns)
    figure = Figure(figsize=(max(5.6, size[0] * columns), size[1] * rows + 0.5), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes, quantity in zip(grid, shown, strict=False):
        panel(axes, curves, quantity)
        axes.set_ylabel(label(quantity).replace(" (", "\n(", 1))
        _over_iterations(axes)
    for axes in grid[len(shown) :]:
        axes.remove()
    figure.align_ylabels()
    _legend(figure, curves, by_seat=panel is draw_by_seat)
    return figure


def draw_by_seat(axes: Axes, curves: Curves, quantity: str) -> None:
    """One quantity while training; a faint line joins a policy's stays in different seats."""
    changes = exchanges(curves)
    for iteration in changes if len(changes) <= 60 else []:
        axes.axvline(iteration - 0.5, color="0.5", alpha=0.3, linewidth=0.6, zorder=0)
    for colour, policy in _coloured(curves):
        mine = {s: curves[k] for s in seats(curves) if (k := Key(s, policy, quantity)) in curves}
        points = [point for curve in mine.values() for point in zip(*curve, strict=True)]
        if len({iteration for iteration, _ in points}) == len(points) and len(mine) > 1:
            axes.plot(*zip(*sorted(points), strict=True), color=colour, alpha=0.35, linewidth=0.8)
        for seat, curve in mine.items():
            for stay in stays(curve, changes):
                axes.plot(*stay, color=colour, linestyle=_dash(curves, seat), **_dot(stay, curves, seat))


def _alone(axes: Axes, curves: Curves, quantity: str) -> None:
    """One held-out quantity over iterations, with the reference as a level."""
    reference = curves.get(Key("alone", "reference", quantity))
    if reference and len(reference.iterations) == 1:
        axes.axhline(reference.values[0], color=REFERENCE, linestyle="--", linewidth=1.2)
    elif reference:
        axes.plot(*reference, color=REFERENCE, linestyle="--", linewidth=1.2)
    for colour, policy in _coloured(curves):
        if (curve := curves.get(Key("alone", policy, quantity))) is not None:
            axes.plot(*curve, color=colour, marker="o" if len(curve.iterations) <= 30 else "", markersize=3.5)


def _frontier(curves: Curves) -> Figure | None:
    if not {"kl", "task_reward"} <= set(quantities(curves, ["alone"])):
        return None
    figure = Figure(figsize=(5.6, 4.2), layout="constrained")
    axes = figure.subplots()
    if start := curves.get(Key("alone", "reference", "task_reward")):
        axes.plot(0, start.values[-1], "x", color=REFERENCE, markersize=9, markeredgewidth=2)
    for colour, policy in _coloured(curves):
        kl, reward = (curves.get(Key("alone", policy, q), Curve([], [])) for q in ("kl", "task_reward"))
        far, high = dict(zip(*kl, strict=True)), dict(zip(*reward, strict=True))
        both = [(far[i], high[i]) for i in far if i in high]
        if both:
            axes.plot(*zip(*both, strict=True), "-o", color=colour, markerfacecolor="white", markersize=4.5)
            axes.plot(*both[-1], "o", color=colour, markersize=7)
    axes.set_xlabel(label("kl"))
    axes.set_ylabel(label("task_reward"))
    _legend(figure, curves, by_seat=False, cross=True)
    return figure


def _speed(curves: Curves) -> Figure | None:
    spent = {
        key.policy: sum(filter(math.isfinite, c.values)) for key, c in curves.items() if key.place == "time"
    }
    pace = curves.get(Key("speed", "tokens", "per_second"))
    if not spent:
        return None
    figure = Figure(figsize=(9, 0.34 * len(spent) + 2.2), layout="constrained")
    bars, *rest = figure.subplots(1, 2 if pace else 1, squeeze=False)[0]
    phases = sorted(spent, key=spent.__getitem__)
    whole = sum(spent.values()) or 1.0
    drawn = bars.barh(phases, [spent[phase] for phase in phases], color=PALETTE[0], height=0.65)
    bars.bar_label(drawn, [f"{spent[phase] / whole:.0%}" for phase in phases], padding=3)
    bars.margins(x=0.15)
    bars.grid(visible=False, axis="y")
    bars.set_xlabel("seconds")
    for axes in rest:
        axes.plot(*pace, color=PALETTE[0], marker="o" if len(pace.iterations) == 1 else "")
        axes.set_ylim(0, 1.1 * max(filter(math.isfinite, pace.values), default=1))
        axes.set_ylabel("tokens per second")
        _over_iterations(axes)
    return figure


def _legend(figure: Figure, curves: Curves, *, by_seat: bool, cross: bool = False) -> None:
    """One row above the panels; where that is too long, policies above seats."""
    who = [Line2D([], [], color=colour, label=policy) for colour, policy in _coloured(curves)]
    where = []
    if by_seat:
        where = [Line2D([], [], color="0.3", linestyle=_dash(curves, s), label=s) for s in seats(curves)]
    elif any(key.policy == "reference" for key in curves):
        look = {"linestyle": "", "marker": "x"} if cross else {"linestyle": "--"}
        where = [Line2D([], [], color=REFERENCE, label="reference", **look)]
    handles = [*who, *where]
    if len(handles) > 6:  # matplotlib fills a legend column by column
        blank = Line2D([], [], alpha=0, label=" ")
        handles = [handle for column in zip_longest(who, where, fillvalue=blank) for handle in column]
    columns = len(handles) if len(handles) <= 6 else len(handles) // 2
    figure.legend(handles=handles, loc="outside upper center", ncols=columns, handlelength=2.6)


def _coloured(curves: Curves) -> list[tuple[str, str]]:
    names = policies(curves)
    return [(PALETTE[place % len(PALETTE)], policy) for place, policy in enumerate(names)]


def _dash(curves: Curves, seat: str) -> str | tuple[int, tuple[float, ...]]:
    return DASHES[seats(curves).index(seat) % len(DASHES)]


def _dot(stay: Curve, curves: Curves, seat: str) -> dict[str, object]:
    """A stay of one iteration has no line to see: a dot, hollow for observers."""
    if len(stay.iterations) > 1:
        return {}
    return {"marker": "o", "markersize": 4, "fillstyle": "full" if seat == seats(curves)[0] else "none"}


def _over_iterations(axes: Axes) -> None:
    axes.set_xlabel("iteration")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
