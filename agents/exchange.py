"""Role exchange: which policy sits in which seat, as a function of time. Weights never move."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Config:
    """When policies change seats."""

    every: int = 5
    """Iterations between exchanges (the paper's T_REx); 0 = never."""

    def __post_init__(self) -> None:
        if self.every < 0:
            raise ValueError(
                f"exchange.every is {self.every}; give the iterations between exchanges, or 0 for never"
            )


def seating_at(
    iteration: int, *, every: int, seats: Sequence[str], first: Sequence[str]
) -> Mapping[str, str]:
    """The policy in each seat at `iteration`; `first` names who sits where at iteration 0, in the order of
    `seats`.

    At each exchange the policy in seat i moves to seat i + 1 mod N. A pure function of the counter: a resumed
    run needs no flag to agree with the run it resumes. One policy may hold several seats.
    """
    if len(first) != len(seats):
        raise ValueError(
            f"{len(first)} policies for {len(seats)} seats; name one policy per seat (repeats are allowed)"
        )
    turns = iteration // every if every else 0
    return {seat: first[(i - turns) % len(seats)] for i, seat in enumerate(seats)}
