"""What a run's curves say about who played, where and when. Knows no plot and no page."""

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise

from cory.tracking.labels import in_order
from cory.tracking.tracker import Curve, Key

Curves = Mapping[Key, Curve]

def seats(curves: Curves) -> list[str]:
    """The seats of the run in the order of play."""
    return _ordered(
        key.place for key in curves if key.place not in ("alone", "all", "judge", "time", "speed")
    )


def policies(curves: Curves) -> list[str]:
    """The policies that learn, in the order of their numbers; the reference is not one."""
    places = {*seats(curves), "alone"}
    return _ordered(key.policy for key in curves if key.place in places and key.policy != "reference")


def seatings(curves: Curves) -> dict[int, dict[str, str]]:
    """Who sat where: for every iteration played, the policy in each seat."""
    found: dict[int, dict[str, str]] = {}
    places = seats(curves)
    for key, curve in curves.items():
        if key.place in places:
            for iteration in curve.iterations:
                found.setdefault(iteration, {})[key.place] = key.policy
    return dict(sorted(found.items()))


def exchanges(curves: Curves) -> list[int]:
    """The iterations at which some seat has another policy than the iteration before."""
    return [now for (_, before), (now, after) in pairwise(seatings(curves).items()) if after != before]


def stays(curve: Curve, changes: list[int]) -> list[Curve]:
    """A seat's curve of one policy, cut where the policy left the seat and came back."""
    kept: list[Curve] = []
    for iteration, value in zip(*curve, strict=True):
        away = kept and any(kept[-1].iterations[-1] < change <= iteration for change in changes)
        if not kept or away:
            kept.append(Curve([], []))
        kept[-1].iterations.append(iteration)
        kept[-1].values.append(value)
    return kept


def quantities(curves: Curves, places: Iterable[str]) -> list[str]:
    """What these places have at least one finite number for, in the order of `LABELS`, then by name."""
    shown = {
        key.quantity
        for key, curve in curves.items()
        if key.place in places and any(math.isfinite(value) for value in curve.values)
    }
    return in_order(shown)


def _ordered(names: Iterable[str]) -> list[str]:
    """Names once each, by the number they end in: llm_2 before llm_10."""

    def place(name: str) -> tuple[int, str]:
        tail = name.rpartition("_")[2]
        return (int(tail) if tail.isdigit() else 0, name)

    return sorted(set(names), key=place)
