"""Payoffs: what each seat is paid, a mixing matrix times the scores of all seats.

The cooperative payoff is the collective reward of CORY: every seat is paid the sum of all scores,
r_pioneer + r_observer for two seats (CORY paper, eq. 4). Other matrices weigh the scores otherwise.

Shapes: B games, N seats.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Mix = str | float | Sequence[Sequence[float]] | np.ndarray
"""A name out of `NAMES`, a weight lambda of the others' scores, or the matrix itself."""


@dataclass(frozen=True)
class Linear:
    """A payoff that moves in equal steps from one mix to another, and then stays there.

    W_k = (1 - u) W(first) + u W(last) with u = min(k / iterations, 1).
    """

    first: Mix
    """The payoff at iteration 0."""

    last: Mix
    """The payoff from iteration `iterations` on."""

    iterations: int
    """The number of steps from `first` to `last`."""

    def __post_init__(self) -> None:
        if self.iterations < 1:
            raise ValueError(f"iterations is {self.iterations}; a payoff needs 1 or more to change in")


Payoff = Mix | Linear
"""A constant payoff, or a schedule."""

NAMES = ("cooperative", "independent", "competitive")


def matrix(kind: Payoff, seats: int, *, iteration: int = 0) -> np.ndarray:
    """Return the mixing matrix W, `[N, N]` float64; row i weighs the scores that seat i is paid for.

    `cooperative`: all ones, each seat is paid the collective reward. `independent`: the identity.
    `competitive`: the seat's own score minus the mean of the others'. A number lambda: the seat's own score
    plus lambda times the sum of the others'. Only schedules depend on `iteration`.
    """
    if iteration < 0:
        raise ValueError(f"iteration is {iteration}; give a number from 0")
    if isinstance(kind, Linear):
        share = min(iteration / kind.iterations, 1.0)
        return (1 - share) * matrix(kind.first, seats) + share * matrix(kind.last, seats)
    own = np.eye(seats)
    others = 1 - own
    if isinstance(kind, str):
        if kind == "cooperative":
            return own + others
        if kind == "independent":
            return own
        if kind == "competitive":
            if seats == 1:
                raise ValueError(
                    "payoff 'competitive' needs another seat; with one seat take 'independent' or add seats"
                )
            return own - others / (seats - 1)
        try:
            kind = float(kind)
        except ValueError:
            known = ", ".join(NAMES)
            raise ValueError(
                f"no payoff called {kind!r}; there are {known}, a number, an N x N matrix"
            ) from None
    mix = np.where(own == 1, 1.0, kind) if isinstance(kind, int | float) else kind
    try:
        W = np.array(mix, dtype=np.float64)
    except ValueError as error:
        raise ValueError(f"payoff {kind} is not a matrix of numbers: give {seats} rows of {seats}") from error
    if W.shape != (seats, seats):
        raise ValueError(f"the payoff matrix has shape {W.shape}; {seats} seats need {(seats, seats)}")
    if not np.isfinite(W).all():
        raise ValueError(f"payoff is {kind}; every entry must be a finite number")
    return W


def pay(W: np.ndarray, scores_BN: np.ndarray) -> np.ndarray:
    """payoff_bi = sum_j W_ij score_bj."""
    payoff_BN: np.ndarray = scores_BN @ W.T
    return payoff_BN
