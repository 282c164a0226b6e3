"""Core types of the game (query, response), seat names, and checks of values that users pass in."""

import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

from cory_env.tokenizer import Tokenizer

MAX_SEATS = 16


@dataclass(frozen=True)
class Query:
    """The text and token ids that a game starts from; s0 in the paper."""

    text: str
    """The text as the task wrote it, for judges and logs."""

    ids: tuple[int, ...]
    """The token ids that policies read."""

    row: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """The row of the data set, from which a scorer takes the gold answer."""

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "ids", tuple(map(operator.index, self.ids)))
        except TypeError as error:
            raise ValueError(
                f"the query {self.text!r} has ids {self.ids!r:.80}; give whole numbers"
            ) from error


@dataclass(frozen=True)
class Response:
    """The tokens that one seat wrote."""

    ids: tuple[int, ...]
    """Every token the seat chose, EOS included when it was chosen."""

    text: str
    """The decoded ids, without EOS and special tokens."""

    seat: str = ""
    """The seat that wrote it, for tasks that score seats differently."""

    @classmethod
    def of(cls, ids: Sequence[int], tokenizer: Tokenizer, *, seat: str = "") -> "Response":
        """Decode `ids` into a response; the text is for judges and logs and is never encoded again."""
        return cls(tuple(ids), tokenizer.decode(without_end(ids, tokenizer.eos)), seat)


def without_end(ids: Sequence[int], eos: Collection[int]) -> Sequence[int]:
    """Return `ids` without the EOS that ends them, if one does."""
    return ids[:-1] if ids and ids[-1] in eos else ids


def seat_names(seats: int) -> tuple[str, ...]:
    """Return `pioneer_0`, `observer_1`, `observer_2`, ... in the order of play."""
    if not isinstance(seats, Integral) or not 1 <= seats <= MAX_SEATS:
        raise ValueError(f"seats is {seats!r}; a game has 1 to {MAX_SEATS}")
    return ("pioneer_0", *(f"observer_{k}" for k in range(1, seats)))


def response_range(max_response: int | tuple[int, int]) -> tuple[int, int]:
    """Return the shortest and longest cap that `max_response` allows; a single number is both."""
    given = (max_response, max_response) if isinstance(max_response, int | Integral) else max_response
    try:
        low, high = map(operator.index, given)
    except (TypeError, ValueError):  # no two whole numbers
        low = high = 0
    if not 1 <= low <= high:
        raise ValueError(
            f"max_response is {max_response!r}; give a number of tokens from 1, or (low, high) in order, for "
            "all seats"
        )
    return low, high


def token_id(action: Any, *, seat: str, vocab_size: int) -> int:
    """Convert `action` (a Python or NumPy integer) to a token id.

    Raises a ValueError that names `seat` if it is no integer from 0 to `vocab_size - 1`.
    """
    try:
        token = operator.index(action)
    except TypeError:
        token = -1
    if not 0 <= token < vocab_size:
        raise ValueError(f"{seat} played {action!r}; it must play an id from 0 to {vocab_size - 1}")
    return token


def one_of(name: str, value: str | None, choices: Sequence[str | None]) -> None:
    """Raise a ValueError if the option `name` has a `value` that is not among its `choices`."""
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; choose one of {', '.join(map(repr, choices))}")
