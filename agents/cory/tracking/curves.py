"""Seats, policies, seatings and exchanges of a run, derived from its curves. Imports no plot and no page."""

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise

from cory.tracking.labels import in_order
from cory.tracking.tracker import Curve, Key

Curves = Mapping[Key, Curve]

NOT_SEATS = ("eval", "team", "validation", "all", "judge", "time", "speed")
"""First parts of metric names that are not seats."""


def seats(curves: Curves) -> list[str]:
    """Return the seats of the run in the order of play."""
    return _ordered(key.place for key in curves if key.place not in NOT_SEATS)


def policies(curves: Curves) -> list[str]:
    """Return the policies that learn and their average, without references, in the order of their numbers."""
    places = {*seats(curves), "eval", "validation"}
    names = (key.policy for key in curves if key.place in places)
    return _ordered(name for name in names if not name.startswith("reference"))


def references(curves: Curves) -> list[str]:
    """Return the references that were evaluated: one, or `reference_<policy>` where policies differ."""
    return _ordered(
        key.policy for key in curves if key.place == "eval" and key.policy.startswith("reference")
    )


def seatings(curves: Curves) -> dict[int, dict[str, str]]:
    """Return the policy in each seat, for every iteration played."""
    by_iteration: dict[int, dict[str, str]] = {}
    places = seats(curves)
    for key, curve in curves.items():
        if key.place in places:
            for iteration in curve.iterations:
                by_iteration.setdefault(iteration, {})[key.place] = key.policy
    return dict(sorted(by_iteration.items()))


def exchanges(curves: Curves) -> list[int]:
    """Return the iterations at which some seat has another policy than in the iteration before."""
    return [now for (_, before), (now, after) in pairwise(seatings(curves).items()) if after != before]


def split_at_exchanges(curve: Curve, changes: list[int]) -> list[Curve]:
    """Split the curve of one policy in one seat wherever the policy left the seat and came back."""
    segments: list[Curve] = []
    for iteration, value in zip(*curve, strict=True):
        if not segments or any(segments[-1].iterations[-1] < change <= iteration for change in changes):
            segments.append(Curve([], []))
        segments[-1].iterations.append(iteration)
        segments[-1].values.append(value)
    return segments


def quantities(curves: Curves, places: Iterable[str]) -> list[str]:
    """Return the quantities of these places that have a finite value, in the order of the labels."""
    finite = {
        key.quantity
        for key, curve in curves.items()
        if key.place in places and any(math.isfinite(value) for value in curve.values)
    }
    return in_order(finite)


def _ordered(names: Iterable[str]) -> list[str]:
    """Return the distinct names by the number they end in: llm_2 before llm_10."""

    def position(name: str) -> tuple[int, str]:
        tail = name.rpartition("_")[2]
        return (int(tail) if tail.isdigit() else 0, name)

    return sorted(set(names), key=position)
