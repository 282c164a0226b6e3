"""Role exchange: the policy in each seat as a function of the iteration. Weights never move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from cory import rng
from cory.runtime.checks import check_fields

if TYPE_CHECKING:
    from cory_env.registry import Registry

Order = Callable[[int, Sequence[str], Sequence[str]], Mapping[str, str]]
"""(iteration of the latest exchange, seats, policies) -> the policy in each seat.

A pure function, so that a run resumes exactly. Seats and policies are in the order of play at iteration 0."""


@dataclass(frozen=True, kw_only=True)
class ExchangeConfig:
    """Schedule and order of role exchanges."""

    every: int = 5
    """Iterations between exchanges (the paper's T_REx); 0 = never."""

    order: str = "rotate"
    """`rotate`: each policy takes the seats of the next. `random`: the seating is drawn anew each time. Or a
    function (iteration, seats, policies) -> seating of your own, called for the iterations that are multiples
    of `every`: `module:function`, `file.py:function` or an entry point of `cory.exchanges`."""

    reset: bool = False
    """Whether exchanges reset optimisers, KL coefficients and payoff statistics, as in the released code, and
    what the algorithm keeps for each policy."""

    def __post_init__(self) -> None:
        check_fields(self, "exchange", natural="every")
        registry().load(self.order)


def seating_at(
    iteration: int,
    *,
    every: int,
    seats: Sequence[str],
    first: Sequence[str],
    order: str = "rotate",
    random_key: tuple[int | str, ...] | None = None,
) -> Mapping[str, str]:
    """Return the policy in each seat at `iteration`.

    `first` holds the policies at iteration 0, in the order of `seats`; one policy may sit in several seats.
    At each exchange every policy takes the seats of the next one, and the last those of the first; with a
    `random_key` they are shuffled instead, by that key and the number of the exchange. An `order` of your own
    decides also about iteration 0; ValueError if it does not seat all policies. As a pure function of the
    iteration the seating needs no state in checkpoints.
    """
    if len(first) != len(seats):
        raise ValueError(
            f"{len(first)} policies for {len(seats)} seats; name one policy per seat (repeats are allowed)"
        )
    turns = iteration // every if every else 0  # exchanges before it, one at its start included
    if (own_order := registry().load(order)) is not None:
        seating, again = (
            _checked(own_order(turns * every, tuple(seats), tuple(first)), order, seats, first)
            for _ in range(2)
        )
        if seating != again:
            raise ValueError(
                f"exchange.order {order!r} returned {seating} and then {again} for iteration "
                f"{turns * every}; make it a pure function, which draws as random.Random(iteration) does"
            )
        return seating
    policies = list(dict.fromkeys(first))
    order_N = (np.arange(len(policies)) - turns) % len(policies)
    if random_key is not None and turns:
        order_N = rng.permutation((*random_key, "seating", turns), len(policies))
    moved = {policy: policies[int(i)] for policy, i in zip(policies, order_N, strict=True)}
    return {seat: moved[policy] for seat, policy in zip(seats, first, strict=True)}


@cache
def registry() -> Registry[Order | None]:
    """Orders of exchanges by name; None for the two of this file."""
    from cory_env.registry import Registry

    kinds: dict[str, Order | None] = {"rotate": None, "random": None}
    form = "module:function or file.py:function"
    takes = ("iteration", "seats", "policies")
    return Registry("exchange.order", "cory.exchanges", kinds, form=form, takes=takes)


def _checked(seating: object, order: str, seats: Sequence[str], first: Sequence[str]) -> Mapping[str, str]:
    """The seating in the order of play; ValueError if it is none of these policies in these seats."""
    if not isinstance(seating, Mapping):
        raise ValueError(
            f"exchange.order {order!r} returned {seating!r:.80}; return a dict of policies by seat"
        )
    theirs, ours = Counter(seating.values()), Counter(first)  # turns of one policy may become another's
    alike = theirs.keys() == ours.keys() and sorted(theirs.values()) == sorted(ours.values())
    if set(seating) != set(seats) or not alike:
        raise ValueError(
            f"exchange.order {order!r} returned {dict(seating)}; seat {', '.join(first)} in "
            f"{', '.join(seats)}"
        )
    return {seat: seating[seat] for seat in seats}
