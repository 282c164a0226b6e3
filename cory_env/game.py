"""The sequential game of CORY over token ids, in plain Python.

A query is on the table. The pioneer responds token by token; each observer, in its turn, reads what its view
shows and responds too. No spaces, no arrays, no models: every rule can be tested with `==`.
"""

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cory_env.tokenizer import Tokenizer

if TYPE_CHECKING:
    from cory_env.views import View

MAX_SEATS = 16


@dataclass(frozen=True)
class Query:
    """What a game starts from."""

    text: str
    """As the task wrote it, for judges and people."""

    ids: tuple[int, ...]
    """As policies read it."""

    row: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """The data row it came from, so that a scorer can see the gold answer."""


@dataclass(frozen=True)
class Response:
    """What one seat wrote."""

    ids: tuple[int, ...]
    """Every token the seat chose, EOS included when it was chosen."""

    text: str
    """The same without EOS."""

    seat: str = ""
    """Who wrote it, for tasks that ask different things of different seats."""

    @classmethod
    def of(cls, ids: Sequence[int], tokenizer: Tokenizer, *, seat: str = "") -> "Response":
        """The response with these ids; its text is for reading and judging, never encoded again."""
        return cls(tuple(ids), tokenizer.decode(ids), seat)


def seat_names(seats: int) -> tuple[str, ...]:
    """`pioneer_0`, `observer_1`, `observer_2`, ... in the order of play."""
    if not 1 <= seats <= MAX_SEATS:
        raise ValueError(f"seats is {seats}; a game has 1 to {MAX_SEATS}")
    return ("pioneer_0", *(f"observer_{k}" for k in range(1, seats)))


def response_range(max_response: int | tuple[int, int]) -> tuple[int, int]:
    """Shortest and longest cap that `max_response` allows: a number stands for itself twice."""
    low, high = (max_response, max_response) if isinstance(max_response, int) else max_response
    if not 1 <= low <= high:
        raise ValueError(
            f"max_response is {max_response}; give a number of tokens from 1, or (low, high) in order"
        )
    return low, high


def token_id(action: Any, *, seat: str, vocab_size: int) -> int:
    """`action` as the token id it is (NumPy's integers too), refused unless `seat` may play it."""
    try:
        token = operator.index(action)
    except TypeError:
        token = -1
    if not 0 <= token < vocab_size:
        raise ValueError(f"{seat} played {action!r}; it must play an id from 0 to {vocab_size - 1}")
    return token


def one_of(name: str, value: str | None, choices: Sequence[str | None]) -> None:
    """Refuse an option whose `value` is not among its `choices`."""
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; choose one of {', '.join(map(repr, choices))}")


class Game:
    """One game in progress. A response ends with an EOS id or at its cap; both end it for good."""

    def __init__(
        self, query: Query, *, views: Sequence["View"], eos: Iterable[int], max_response: int | Sequence[int]
    ) -> None:
        """`max_response` is the cap of every response, or one cap per seat."""
        self.query = query
        self.views = tuple(views)
        self.seats = tuple(view.seat for view in views)
        self.eos = frozenset(eos)
        self.caps = (max_response,) * len(views) if isinstance(max_response, int) else tuple(max_response)
        if not query.ids:
            raise ValueError(f"the query {query.text!r} has no tokens; a game starts from at least one")
        if len(self.caps) != len(views) or min(self.caps) < 1:
            raise ValueError(
                f"max_response is {max_response}; give one cap from 1 for each of {len(views)} seats"
            )
        self._said: tuple[list[int], ...] = tuple([] for _ in views)

    @property
    def turn(self) -> str | None:
        """The seat to act: the first whose response is unfinished, None once all are done."""
        for seat, said, cap in zip(self.seats, self._said, self.caps, strict=True):
            if len(said) < cap and not (said and said[-1] in self.eos):
                return seat
        return None

    @property
    def responses(self) -> dict[str, tuple[int, ...]]:
        """The tokens each seat has chosen so far, EOS included; a copy."""
        return {seat: tuple(said) for seat, said in zip(self.seats, self._said, strict=True)}

    def play(self, token: int) -> None:
        """Append `token` to the response of the seat whose turn it is."""
        self._said[self._acting()].append(token)

    def _acting(self) -> int:
        """The index of the seat whose turn it is."""
        if (turn := self.turn) is None:
            raise ValueError("the game is over: every response is finished; start a new Game")
        return self.seats.index(turn)

    def begun(self, ids: Sequence[int]) -> list[int]:
        """The response of the seat whose turn it is that `ids` begin with: to the first EOS, or to the cap.

        What follows is not looked at, so players may hand in rows of one length; too short a row is refused.
        """
        k = self._acting()
        said, cap = len(self._said[k]), self.caps[k]
        room = cap - said
        end = next((i + 1 for i, token in enumerate(ids[:room]) if token in self.eos), room)
        if len(ids) < end:
            raise ValueError(
                f"{self.turn} wrote {said + len(ids)} tokens without EOS; go on to EOS or to its cap of {cap}"
            )
        return list(ids[:end])

    def respond(self, ids: Sequence[int]) -> None:
        """Play a whole response of the seat whose turn it is; refused unless its last token ends it."""
        whole, said = self.begun(ids), self._said[self._acting()]
        if len(ids) > len(whole):
            written, ended = len(said) + len(ids), len(said) + len(whole)
            raise ValueError(f"{self.turn} wrote {written} tokens; its response ended after {ended}")
        said += whole

    def flat(self, *, max_query: int, max_response: int, pad: int) -> list[int]:
        """The whole game as one row of a fixed length, for centralised critics.

        Query and responses, each padded; their lengths; the caps; the index of the seat to act, N if none.
        """
        turn = len(self.seats) if self.turn is None else self.seats.index(self.turn)
        row = [*self.query.ids, *[pad] * (max_query - len(self.query.ids))]
        for said in self._said:
            row += [*said, *[pad] * (max_response - len(said))]
        return [*row, len(self.query.ids), *map(len, self._said), *self.caps, turn]

    def get_state(self) -> dict[str, Any]:
        """The game in plain values (JSON, where the query's row is), to be resumed by `from_state`."""
        query = {"text": self.query.text, "ids": list(self.query.ids), "row": dict(self.query.row)}
        return {"query": query, "caps": list(self.caps), "responses": [list(said) for said in self._said]}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], *, views: Sequence["View"], eos: Iterable[int]) -> "Game":
        """The game that `get_state` described, among the same seats and EOS ids."""
        query = Query(state["query"]["text"], tuple(state["query"]["ids"]), state["query"]["row"])
        game = cls(query, views=views, eos=eos, max_response=state["caps"])
        for ids in state["responses"]:
            for token in ids:
                game.play(token)
        return game

    def prompt(self, seat: str) -> tuple[int, ...]:
        """What `seat` conditions on before its own response, given what has been said so far."""
        return self.views[self.seats.index(seat)].prompt(self.query.ids, self._said)
