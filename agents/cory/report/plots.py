"""Plots of a run, drawn from its curves. Colour is the policy, line style the seat it sat in."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from cory.evaluation.collapse import SIGNS
from cory.report.figures import (
    COLLAPSE,
    DASHES,
    PALETTE,
    REFERENCE,
    Kind,
    Plot,
    add_legend,
    draw_kinds,
    grid,
    over_iterations,
    pass_at_k,
)
from cory.tracking.curves import (
    Curves,
    exchanges,
    policies,
    quantities,
    references,
    seats,
    split_at_exchanges,
)
from cory.tracking.labels import label
from cory.tracking.tracker import Curve, Key

MAIN = ("task_reward", "kl", "combined_reward")
FIRST = ("combined_reward", "kl")
"""Held-out quantities of the first figure."""
MARKED = 30
"""Up to so many points of a curve are marked."""

TRAINING = (
    "Means over each iteration's games during training. Colour is the policy, line style the seat it sat in "
    "(a single iteration is a dot); faint vertical lines: role exchanges. The seats see different prompts: "
    "compare a policy with itself in the same seat; the held-out plot shows policies as they are deployed."
)
OBJECTIVE = (
    "Combined reward, which training raises, and KL on the same held-out queries, each policy standalone; "
    "dashed: the reference that the policies started from."
)
HELD_OUT = (
    "Every policy responds to the same held-out queries, given the query only, without a partner. The "
    "dashed line is the frozen reference that the policies started from, the dotted red one the limit beyond "
    "which a quantity is a sign of collapse. Quantities that never change are left out."
)
TEAM = (
    "Games of all seats on the held-out queries. Colour is the seat, `all` the team: its collective reward "
    "is the sum of the scores, the best reward the highest score of a game."
)
PASS_AT_K = (
    "The probability that at least one of k responses to a held-out query is correct, estimated without bias "
    "from all samples (Chen et al. 2021)."
)
UPDATES = (
    "Other metrics of each iteration, by policy (colour) and seat (line style); those that never change are "
    "left out."
)


def draw(curves: Curves, folder: Path) -> list[Plot]:
    """Draw every plot the run has metrics for, as `folder/*.png`."""
    kinds: list[Kind[Curves]] = [
        ("objective", "Objective", OBJECTIVE, _objective),
        ("training", "Training, by seat", TRAINING, _training),
        ("held_out", "Held-out evaluation, each policy standalone", HELD_OUT, _held_out),
        ("team", "Held-out games of the team", TEAM, _team),
        ("pass_at_k", "pass@k", PASS_AT_K, _pass_at_k),
        ("updates", "Other training metrics", UPDATES, _updates),
    ]
    return draw_kinds(kinds, curves, folder)


def pass_at_k_of(curves: Curves) -> dict[str, dict[int, tuple[float, float, float]]]:
    """Pass@k of the last evaluation by policy and k, without intervals."""
    points: dict[str, dict[int, tuple[float, float, float]]] = {}
    for quantity in quantities(curves, ["eval"]):
        for key, curve in curves.items():
            if (key.place, key.quantity) == ("eval", quantity) and quantity.startswith("pass_at_"):
                k = int(quantity.removeprefix("pass_at_"))
                points.setdefault(key.policy, {})[k] = (curve.values[-1], math.nan, math.nan)
    return points


def _objective(curves: Curves) -> Figure | None:
    shown = [quantity for quantity in FIRST if quantity in quantities(curves, ["eval"])]
    return _panels(curves, shown, _draw_standalone, columns=1)


def _training(curves: Curves) -> Figure | None:
    shown = [quantity for quantity in MAIN if quantity in quantities(curves, seats(curves))]
    return _panels(curves, shown, draw_by_seat, by_seat=True)


def _updates(curves: Curves) -> Figure | None:
    shown = [q for q in _changing(curves, seats(curves)) if q not in MAIN]
    return _panels(curves, shown, draw_by_seat, by_seat=True)


def _held_out(curves: Curves) -> Figure | None:
    shown = [quantity for quantity in _changing(curves, ["eval"]) if quantity not in FIRST]
    return _panels(curves, shown, _draw_standalone)


def _team(curves: Curves) -> Figure | None:
    shown = [q for q in quantities(curves, ["team"]) if not q.startswith("pass_at_")]
    return grid(shown, partial(_over_iterations, _draw_team, curves))


def _pass_at_k(curves: Curves) -> Figure | None:
    return grid([pass_at_k_of(curves)], pass_at_k)


def _changing(curves: Curves, places: Sequence[str]) -> list[str]:
    """The quantities of these places but pass@k and those with one value in several iterations."""
    shown = []
    for quantity in quantities(curves, places):
        series = [curve for key, curve in curves.items() if key.quantity == quantity and key.place in places]
        finite = [[value for value in curve.values if math.isfinite(value)] for curve in series]
        is_constant = len(set(chain.from_iterable(finite))) == 1 and max(map(len, finite)) > 1
        if not is_constant and not quantity.startswith("pass_at_"):
            shown.append(quantity)
    return shown


def _panels(
    curves: Curves, shown: list[str], panel: Callable[..., None], *, by_seat: bool = False, columns: int = 3
) -> Figure | None:
    """A panel per quantity, and a legend of the policies and of the seats or the reference."""
    figure = grid(shown, partial(_over_iterations, panel, curves), columns=columns, legend=False)
    if figure is None:
        return None
    drawn = {key.policy for key in curves if by_seat or key.place == "eval"}
    lines = [Line2D([], [], color=c, label=policy) for c, policy in _coloured(curves) if policy in drawn]
    if by_seat:
        lines += [Line2D([], [], color="0.3", linestyle=_dash(curves, s), label=s) for s in seats(curves)]
    elif references(curves):
        lines.append(Line2D([], [], color=REFERENCE, label="reference", linestyle="--"))
    add_legend(figure, {str(line.get_label()): line for line in lines})
    return figure


def _over_iterations(panel: Callable[..., None], curves: Curves, axes: Axes, quantity: str) -> bool:
    panel(axes, curves, quantity)
    axes.set_ylabel(label(quantity))
    over_iterations(axes)
    return True


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
                marker = "o" if len(segment.iterations) == 1 else ""  # a line of one iteration cannot be seen
                axes.plot(*segment, color=colour, linestyle=_dash(curves, seat), marker=marker, markersize=4)


def _draw_standalone(axes: Axes, curves: Curves, quantity: str) -> None:
    """Draw one held-out quantity over iterations, each reference as a dashed line."""
    for reference in filter(None, (curves.get(Key("eval", name, quantity)) for name in references(curves))):
        if len(reference.iterations) == 1:
            axes.axhline(reference.values[0], color=REFERENCE, linestyle="--", linewidth=1.2)
        else:
            axes.plot(*reference, color=REFERENCE, linestyle="--", linewidth=1.2)
        limits = [sign.limit(reference.values[0]) for sign in SIGNS if sign.quantity == quantity]
        for limit in filter(math.isfinite, limits):
            axes.axhline(limit, color=COLLAPSE, linestyle=":", linewidth=1.2)
    for colour, policy in _coloured(curves):
        _draw_curve(axes, curves.get(Key("eval", policy, quantity)), color=colour)


def _draw_team(axes: Axes, curves: Curves, quantity: str) -> None:
    for i, seat in enumerate([*seats(curves), "all"]):
        colour = PALETTE[i % len(PALETTE)]
        _draw_curve(axes, curves.get(Key("team", seat, quantity)), color=colour, label=seat)


def _draw_curve(axes: Axes, curve: Curve | None, **style: Any) -> None:
    if curve is not None:
        axes.plot(*curve, marker="o" if len(curve.iterations) <= MARKED else "", markersize=3.5, **style)


def _coloured(curves: Curves) -> list[tuple[str, str]]:
    """The policies with their colours."""
    return [(PALETTE[i % len(PALETTE)], policy) for i, policy in enumerate(policies(curves))]


def _dash(curves: Curves, seat: str) -> Any:
    """The line style of a seat."""
    return DASHES[seats(curves).index(seat) % len(DASHES)]
