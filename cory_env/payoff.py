"""From scores to what each seat is paid: payoff = W @ scores.

Shapes: B games, N seats.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Mix = str | float | Sequence[Sequence[float]] | np.ndarray
"""A name, a number lambda, or the matrix itself."""


@dataclass(frozen=True)
class Linear:
    """A payoff that changes with the iteration: from one mix, in equal steps, to another, where it stays.

    W_k = (1 - u) W(first) + u W(last) with u = min(k / iterations, 1).
    """

    first: Mix
    """The payoff at iteration 0."""

    last: Mix
    """The payoff from iteration `iterations` on."""

    iterations: int
    """How many steps the change takes."""

    def __post_init__(self) -> None:
        if self.iterations < 1:
            raise ValueError(f"iterations is {self.iterations}; a payoff needs 1 or more to change in")


Payoff = Mix | Linear
"""The same at every iteration, or a schedule of them."""

NAMES = ("cooperative", "independent", "competitive")


def matrix(kind: Payoff, seats: int, *, iteration: int = 0) -> np.ndarray:
    """The mixing matrix W, `[N, N]` float64; row i says what seat i is paid for each seat's score.

    `cooperative`: all ones, everyone is paid the sum, as in CORY. `independent`: the identity. `competitive`:
    one's own score less the mean of the others'. A number: one's own plus that times the sum of the others'.
    `iteration` matters to schedules only.
    """
    if iteration < 0:
        raise ValueError(f"iteration is {iteration}; the clock starts at 0")
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
                    "payoff 'competitive' needs a rival; with one seat take 'independent' or add seats"
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
