"""Role exchange: the policy in each seat as a function of the iteration. Weights never move."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cory import rng


@dataclass(frozen=True, kw_only=True)
class ExchangeConfig:
    """Schedule and order of role exchanges."""

    every: int = 5
    """Iterations between exchanges (the paper's T_REx); 0 = never."""

    order: Literal["rotate", "random"] = "rotate"
    """`rotate`: each policy moves to the next seat. `random`: the seating is drawn anew each time."""

    reset: bool = False
    """Whether exchanges reset optimisers, KL coefficients and payoff statistics, as in the released code."""

    restart_rng: bool = False
    """Whether random numbers (caps, sampling, order of rows) repeat from every exchange on, as they do in the
    released code, whose generators are seeded anew; queries go on."""

    def __post_init__(self) -> None:
        if self.every < 0:
            raise ValueError(
                f"exchange.every is {self.every}; give the iterations between exchanges, or 0 for never"
            )
        if self.order not in ("rotate", "random"):
            raise ValueError(f"exchange.order is {self.order!r}; there are rotate, random")


def seating_at(
    iteration: int,
    *,
    every: int,
    seats: Sequence[str],
    first: Sequence[str],
    random_key: tuple[int | str, ...] | None = None,
) -> Mapping[str, str]:
    """Return the policy in each seat at `iteration`.

    `first` holds the policies at iteration 0, in the order of `seats`; one policy may sit in several seats.
    At each exchange the policy in seat i moves to seat i + 1 mod N; with a `random_key` the policies are
    shuffled instead, by that key and the number of the exchange. As a pure function of the iteration it needs
    no state in checkpoints.
    """
    if len(first) != len(seats):
        raise ValueError(
            f"{len(first)} policies for {len(seats)} seats; name one policy per seat (repeats are allowed)"
        )
    turns = exchanges_before(iteration, every=every)
    if random_key is not None and turns:
        order = rng.permutation((*random_key, "seating", turns), len(seats))
        return {seat: first[int(order[i])] for i, seat in enumerate(seats)}
    return {seat: first[(i - turns) % len(seats)] for i, seat in enumerate(seats)}


def exchanges_before(iteration: int, *, every: int) -> int:
    """Return the number of exchanges before `iteration`, including one at its start."""
    return iteration // every if every else 0
