"""Plots of a run, drawn from its curves. Colour is the policy, line style the seat it sat in."""

import math
from collections.abc import Callable, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from cory.report import html
from cory.tracking.curves import Curves, exchanges, policies, quantities, seats, split_at_exchanges
from cory.tracking.labels import label
from cory.tracking.tracker import NO_CURVE, Curve, Key

MAIN = ("task_reward", "kl", "combined_reward")
PALETTE = html.SERIES
REFERENCE = "#444444"
PANEL = (3.7, 2.7)
"""Width and height of a panel in inches, readable on a phone."""
DASHES: tuple[Any, ...] = ("-", (0, (3, 1.5)), (0, (1, 1)), (0, (6, 1.5, 1, 1.5)))
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


def draw(curves: Curves, folder: Path) -> list[Plot]:
    """Draw every plot the run has metrics for, as `folder/*.png`."""
    kinds: list[Kind[Curves]] = [
        ("training", "Training", TRAINING, _training),
        ("held_out", "Held-out evaluation, each policy standalone", HELD_OUT, _held_out),
        ("team", "Held-out games of the team", TEAM, _team),
        ("frontier", "Task reward against KL", FRONTIER, _frontier),
        ("updates", "Other training metrics", UPDATES, _updates),
        ("speed", "Time and speed", SPEED, _speed),
    ]
    return draw_kinds(kinds, curves, folder)


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
                plots.append(Plot(path, title, caption, figure))
    return plots


TRAINING = (
    "Means over each iteration's games during training. Colour is the policy, line style the seat it sat in "
    "(a single iteration is a dot, hollow for observers); faint vertical lines: role exchanges. The seats "
    "see different prompts: compare a policy with itself in the same seat; the held-out plot shows the "
    "policies as they are deployed."
)
HELD_OUT = (
    "Every policy responds to the same held-out queries, given the query only, without a partner. The "
    "dashed line is the frozen reference that the policies started from. Quantities that never change are "
    "left out."
)
TEAM = (
    "Games of all seats on the held-out queries. Colour is the seat, `all` the team: its collective reward "
    "is the sum of the scores, the best reward the highest score of a game."
)
FRONTIER = (
    "Held-out task reward against the KL to the reference, one point per evaluation; the last one is filled. "
    "Up and to the left is better. The cross is the reference, at KL zero."
)
UPDATES = (
    "Other metrics of each iteration, by policy (colour) and seat (line style); those that never change are "
    "left out."
)
SPEED = "Wall-clock seconds of the whole run by phase, and tokens per second."


def _training(curves: Curves) -> Figure | None:
    shown = [quantity for quantity in MAIN if quantity in quantities(curves, seats(curves))]
    return _panels(curves, shown, draw_by_seat, columns=3, size=PANEL)


def _held_out(curves: Curves) -> Figure | None:
    shown = [
        quantity
        for quantity in quantities(curves, ["eval"])
        if not quantity.startswith("pass_at_") and not _is_constant(curves, ["eval"], quantity)
    ]
    return _panels(curves, shown, _draw_standalone, columns=3, size=PANEL)


def _team(curves: Curves) -> Figure | None:
    shown = [q for q in quantities(curves, ["team"]) if not q.startswith("pass_at_")]
    figure = _panels(curves, shown, _draw_team, columns=3, size=PANEL)
    if figure is not None:
        lines = [Line2D([], [], color=colour, label=seat) for seat, colour in _team_colours(curves).items()]
        figure.legend(handles=lines, loc="outside upper center", ncols=len(lines))
    return figure


def _team_colours(curves: Curves) -> dict[str, str]:
    """The seats of held-out games, `all` last, with their colours."""
    names = [*seats(curves), "all"]
    return {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(names)}


def _draw_team(axes: Axes, curves: Curves, quantity: str) -> None:
    for seat, colour in _team_colours(curves).items():
        if (curve := curves.get(Key("team", seat, quantity))) is not None:
            axes.plot(*curve, color=colour, marker="o" if len(curve.iterations) <= 30 else "", markersize=3.5)


def _updates(curves: Curves) -> Figure | None:
    shown = [
        quantity
        for quantity in quantities(curves, seats(curves))
        if quantity not in MAIN and not _is_constant(curves, seats(curves), quantity)
    ]
    return _panels(curves, shown, draw_by_seat, columns=3, size=PANEL)


def _is_constant(curves: Curves, places: Sequence[str], quantity: str) -> bool:
    """Whether a quantity has one value everywhere, in several iterations, such as a fixed coefficient."""
    found = [curve for key, curve in curves.items() if key.quantity == quantity and key.place in places]
    finite = [[value for value in curve.values if math.isfinite(value)] for curve in found]
    return len(set(chain.from_iterable(finite))) == 1 and max(map(len, finite)) > 1


def _panels(
    curves: Curves, shown: list[str], panel: Callable[..., None], *, columns: int, size: tuple[float, float]
) -> Figure | None:
    """Return a figure with one panel of `size` inches per quantity; None without quantities."""
    if not shown:
        return None
    columns = min(columns, len(shown))
    rows = math.ceil(len(shown) / columns)
    figure = Figure(figsize=(max(5.6, size[0] * columns), size[1] * rows + 0.5), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes, quantity in zip(grid, shown, strict=False):
        panel(axes, curves, quantity)
        axes.set_ylabel(label(quantity).replace(" (", "\n(", 1))
        over_iterations(axes)
    for axes in grid[len(shown) :]:
        axes.remove()
    figure.align_ylabels()
    if panel is not _draw_team:
        _legend(figure, curves, by_seat=panel is draw_by_seat)
    return figure


def draw_by_seat(axes: Axes, curves: Curves, quantity: str) -> None:
    """Draw one training quantity; a faint line connects the segments of a policy in different seats."""
    changes = exchanges(curves)
    for iteration in changes if len(changes) <= 60 else []:
        axes.axvline(iteration - 0.5, color="0.5", alpha=0.3, linewidth=0.6, zorder=0)
    for colour, policy in _coloured(curves):
        by_seat = {s: curves[k] for s in seats(curves) if (k := Key(s, policy, quantity)) in curves}
        points = [point for curve in by_seat.values() for point in zip(*curve, strict=True)]
        if len({iteration for iteration, _ in points}) == len(points) and len(by_seat) > 1:
            axes.plot(*zip(*sorted(points), strict=True), color=colour, alpha=0.35, linewidth=0.8)
        for seat, curve in by_seat.items():
            for segment in split_at_exchanges(curve, changes):
                marker = _single_point_marker(segment, curves, seat)
                axes.plot(*segment, color=colour, linestyle=_dash(curves, seat), **marker)


def _draw_standalone(axes: Axes, curves: Curves, quantity: str) -> None:
    """Draw one held-out quantity over iterations, the reference as a dashed line."""
    reference = curves.get(Key("eval", "reference", quantity))
    if reference and len(reference.iterations) == 1:
        axes.axhline(reference.values[0], color=REFERENCE, linestyle="--", linewidth=1.2)
    elif reference:
        axes.plot(*reference, color=REFERENCE, linestyle="--", linewidth=1.2)
    for colour, policy in _coloured(curves):
        if (curve := curves.get(Key("eval", policy, quantity))) is not None:
            axes.plot(*curve, color=colour, marker="o" if len(curve.iterations) <= 30 else "", markersize=3.5)


def _frontier(curves: Curves) -> Figure | None:
    if not {"kl", "task_reward"} <= set(quantities(curves, ["eval"])):
        return None
    figure = Figure(figsize=(4.1, 3.2), layout="constrained")
    axes = figure.subplots()
    if reference := curves.get(Key("eval", "reference", "task_reward")):
        axes.plot(0, reference.values[-1], "x", color=REFERENCE, markersize=9, markeredgewidth=2)
    for colour, policy in _coloured(curves):
        kl, reward = (
            dict(zip(*curves.get(Key("eval", policy, q), NO_CURVE), strict=True))
            for q in ("kl", "task_reward")
        )
        points = [(kl[i], reward[i]) for i in kl if i in reward]
        if points:
            axes.plot(*zip(*points, strict=True), "-o", color=colour, markerfacecolor="white", markersize=4.5)
            axes.plot(*points[-1], "o", color=colour, markersize=7)
    axes.set_xlabel(label("kl"))
    axes.set_ylabel(label("task_reward"))
    _legend(figure, curves, by_seat=False, cross=True)
    return figure


def _speed(curves: Curves) -> Figure | None:
    seconds = {
        key.policy: sum(filter(math.isfinite, c.values)) for key, c in curves.items() if key.place == "time"
    }
    rate = curves.get(Key("speed", "tokens", "per_second"))
    if not seconds:
        return None
    figure = Figure(figsize=(9, 0.34 * len(seconds) + 2.2), layout="constrained")
    bars, *others = figure.subplots(1, 2 if rate else 1, squeeze=False)[0]
    phases = sorted(seconds, key=seconds.__getitem__)
    total = sum(seconds.values()) or 1.0
    drawn = bars.barh(phases, [seconds[phase] for phase in phases], color=PALETTE[0], height=0.65)
    bars.bar_label(drawn, [f"{seconds[phase] / total:.0%}" for phase in phases], padding=3)
    bars.margins(x=0.15)
    bars.grid(visible=False, axis="y")
    bars.set_xlabel("seconds")
    if rate:
        axes = others[0]
        axes.plot(*rate, color=PALETTE[0], marker="o" if len(rate.iterations) == 1 else "")
        axes.set_ylim(0, 1.1 * max(filter(math.isfinite, rate.values), default=1))
        axes.set_ylabel("tokens per second")
        over_iterations(axes)
    return figure


def _legend(figure: Figure, curves: Curves, *, by_seat: bool, cross: bool = False) -> None:
    """Add a legend above the panels: one row, or policies above seats if that is too long."""
    of_policies = [Line2D([], [], color=colour, label=policy) for colour, policy in _coloured(curves)]
    of_seats = []
    if by_seat:
        of_seats = [Line2D([], [], color="0.3", linestyle=_dash(curves, s), label=s) for s in seats(curves)]
    elif any(key.policy == "reference" for key in curves):
        style: dict[str, Any] = {"linestyle": "", "marker": "x"} if cross else {"linestyle": "--"}
        of_seats = [Line2D([], [], color=REFERENCE, label="reference", **style)]
    handles = [*of_policies, *of_seats]
    if len(handles) > 6:  # matplotlib fills a legend column by column
        blank = Line2D([], [], alpha=0, label=" ")
        handles = [
            handle for column in zip_longest(of_policies, of_seats, fillvalue=blank) for handle in column
        ]
    columns = len(handles) if len(handles) <= 6 else len(handles) // 2
    figure.legend(handles=handles, loc="outside upper center", ncols=columns, handlelength=2.6)


def _coloured(curves: Curves) -> list[tuple[str, str]]:
    """Return the policies with their colours."""
    return [(PALETTE[i % len(PALETTE)], policy) for i, policy in enumerate(policies(curves))]


def _dash(curves: Curves, seat: str) -> Any:
    """Return the line style of a seat."""
    return DASHES[seats(curves).index(seat) % len(DASHES)]


def _single_point_marker(segment: Curve, curves: Curves, seat: str) -> dict[str, Any]:
    """Return the marker of a segment of one iteration, which has no line: a dot, hollow for observers."""
    if len(segment.iterations) > 1:
        return {}
    return {"marker": "o", "markersize": 4, "fillstyle": "full" if seat == seats(curves)[0] else "none"}


def over_iterations(axes: Axes) -> None:
    """Name the horizontal axis and give it whole numbers."""
    axes.set_xlabel("iteration")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
