"""Payoffs: what each seat is paid, a function of the scores of all seats; mostly a matrix times the scores.

The cooperative payoff is the collective reward of CORY: every seat is paid the sum of all scores,
r_pioneer + r_observer for two seats (CORY paper, eq. 4). Other matrices weigh the scores otherwise. `best`
and `difference` are not linear, `shuffled` mixes the games of a batch, and any other function of the scores
may be given.

Shapes: B games, N seats.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Real

import numpy as np

from cory_env.registry import Registry, check_call

Mix = str | float | Sequence[Sequence[float]] | np.ndarray
"""A name of a matrix, a weight lambda of the others' scores, or the matrix itself."""


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


PayoffFunction = Callable[[np.ndarray, int], np.ndarray]
"""(scores [B, N], iteration) -> payoffs [B, N], both float64."""

Payoff = Mix | Linear | PayoffFunction
"""A constant payoff, a schedule, or a function; a string may also name a function."""


def best(scores_BN: np.ndarray, _iteration: int) -> np.ndarray:
    """Pay every seat the highest score of the game."""
    return np.repeat(scores_BN.max(1, keepdims=True), scores_BN.shape[1], axis=1)


def difference(scores_BN: np.ndarray, _iteration: int) -> np.ndarray:
    """Pay each seat what the highest score would lose without it (a difference reward).

    A single seat is paid its score.
    """
    N = scores_BN.shape[1]
    if N == 1:
        return scores_BN
    without = [np.delete(scores_BN, i, axis=1).max(1) for i in range(N)]
    difference_BN: np.ndarray = scores_BN.max(1, keepdims=True) - np.stack(without, axis=1)
    return difference_BN


def shuffled(scores_BN: np.ndarray, iteration: int) -> np.ndarray:
    """Pay each seat its own score plus the others' scores of another game of the batch.

    payoff_bi = score_bi + sum over j != i of score_cj, where c(b) != b is one cycle through all games, drawn
    anew at each iteration. A control for the collective reward: it has the mean of the sum, and its variance
    but for the covariance within a game, and tells a seat nothing about what its response does to others.
    """
    B = len(scores_BN)
    if B < 2:
        raise ValueError(
            "payoff 'shuffled' pays with the scores of another game, and there is one game only; give a "
            "batch of 2 or more"
        )
    order = np.random.default_rng(iteration).permutation(B)
    other_B = np.empty(B, dtype=np.int64)
    other_B[order] = np.roll(order, 1)
    others_BN: np.ndarray = (scores_BN.sum(1, keepdims=True) - scores_BN)[other_B]
    payoffs_BN: np.ndarray = scores_BN + others_BN
    return payoffs_BN


REGISTRY: Registry[PayoffFunction | None] = Registry(
    "payoff",
    "cory.payoffs",
    {
        "cooperative": None,
        "independent": None,
        "competitive": None,
        "best": best,
        "difference": difference,
        "shuffled": shuffled,
    },
    form="a number, an N x N matrix, module:function or file.py:function",
)
"""Payoffs by name: None for those of a matrix, else a function."""


def check_one_game(payoff: Payoff) -> None:
    """Raise ValueError for a payoff that a game alone does not have."""
    if isinstance(payoff, str) and payoff == "shuffled":
        raise ValueError(
            "payoff 'shuffled' pays with the scores of another game of a batch, and an environment plays one "
            "game; use it in training or in a VectorGame, or give 'cooperative'"
        )


def rule(kind: Payoff, seats: int, *, iteration: int = 0) -> Callable[[np.ndarray], np.ndarray]:
    """Return the function from scores [B, N] to payoffs [B, N] that `kind` stands for at `iteration`.

    ValueError for a payoff that does not exist or does not fit the seats; a function's payoffs are checked
    whenever it is called.
    """
    function = kind if callable(kind) else None
    if isinstance(kind, str) and not _is_number(kind):
        function = REGISTRY.load(kind)
    if function is None:
        return partial(pay, matrix(kind, seats, iteration=iteration))
    name = kind if isinstance(kind, str) else repr(kind)
    check_call(f"payoff {name}", function, "scores", "iteration")
    return partial(_checked, function, name, iteration)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _checked(function: PayoffFunction, name: str, iteration: int, scores_BN: np.ndarray) -> np.ndarray:
    """Call a payoff function; ValueError if it does not return finite payoffs of the scores' shape."""
    returned = function(scores_BN.copy(), iteration)
    try:
        payoffs_BN = np.asarray(returned, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"payoff {name} returned {returned!r:.80}; return a number for every game and seat"
        ) from error
    if payoffs_BN.shape != scores_BN.shape or not np.isfinite(payoffs_BN).all():
        raise ValueError(
            f"payoff {name} returned shape {payoffs_BN.shape} for scores of shape {scores_BN.shape}, or "
            "numbers that are not finite; return a payoff for every game and seat"
        )
    return payoffs_BN


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
        if not _is_number(kind):
            REGISTRY.load(kind)
            raise ValueError(
                f"payoff {kind!r} is a function of the scores; schedules go from one matrix to another"
            )
        kind = float(kind)
    mix = np.where(own == 1, 1.0, kind) if isinstance(kind, Real) else kind
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
